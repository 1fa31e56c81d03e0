"""pandas, pyarrow, polars and DuckDB write files and read each other's."""

# deadline: 120
import os

import mounted

try:
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.feather
    import pyarrow.parquet
except ImportError as error:
    mounted.skip(f"{error.name} is missing")

mounted.enter()
rows = 50_000
table = pa.table({
    "n": pa.array(range(rows), pa.int64()),
    "x": pa.array([n / 7 for n in range(rows)], pa.float64()),
    "s": pa.array([f"row {n}" if n % 11 else None for n in range(rows)]),
})


def same(got, what):
    got = got.select(["n", "x", "s"]).cast(table.schema).combine_chunks()
    assert got.equals(table.combine_chunks()), f"{what}: another table came back"


pa.parquet.write_table(table, "a.parquet")
same(pa.parquet.read_table("a.parquet"), "parquet")
same(pa.parquet.read_table("a.parquet", memory_map=True), "mapped parquet")
pl.from_arrow(table).write_parquet("p.parquet")
same(pl.read_parquet("p.parquet").to_arrow(), "polars parquet")
same(pl.scan_parquet("*.parquet").filter(pl.col("n") >= 0).unique().sort("n").collect().to_arrow(), "polars scan")
table.to_pandas().to_parquet("d.parquet")
same(pa.Table.from_pandas(pd.read_parquet("d.parquet"), preserve_index=False), "pandas parquet")

for compression in ("uncompressed", "lz4", "zstd"):
    pa.feather.write_feather(table, "a.feather", compression=compression)
    same(pa.feather.read_table("a.feather"), compression)
    same(pa.feather.read_table("a.feather", memory_map=True), f"mapped {compression}")
    same(pl.read_ipc("a.feather").to_arrow(), f"polars {compression}")
with pa.OSFile("s.arrows", "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
    for batch in table.to_batches(max_chunksize=1000):
        writer.write_batch(batch)
same(pa.ipc.open_stream(pa.memory_map("s.arrows")).read_all(), "stream")
# A new file over one that is mapped: what was mapped stays as it was.
pa.feather.write_feather(table, "m.feather", compression="uncompressed")
mapped = pa.ipc.open_file(pa.memory_map("m.feather")).read_all()
if mounted.is_volume():
    pa.feather.write_feather(table.slice(5, 10), "m.feather", compression="uncompressed")
    same(mapped, "mapped before it was written again")

table.to_pandas().to_csv("a.csv", index=False)
assert len(pd.read_csv("a.csv")) == rows
pl.from_arrow(table).write_csv("p.csv")
same(pl.read_csv("p.csv", schema_overrides={"s": pl.String}).to_arrow(), "csv")
table.to_pandas().to_pickle("a.pickle")
same(pa.Table.from_pandas(pd.read_pickle("a.pickle"), preserve_index=False), "pickle")
pa.dataset.write_dataset(table, "parts", format="parquet", max_rows_per_file=10_000, max_rows_per_group=10_000)
assert len(os.listdir("parts")) == 5
same(pa.dataset.dataset("parts").to_table().sort_by("n"), "dataset")

try:
    import duckdb
except ImportError:
    print("not run: DuckDB is missing")
else:
    with duckdb.connect("d.db") as database:
        database.execute("CREATE TABLE t AS SELECT * FROM 'a.parquet'")
        database.execute("UPDATE t SET x = x + 1 WHERE n < 1000")
        database.execute("CHECKPOINT")
        database.execute("COPY t TO 'duck.parquet' (FORMAT parquet)")
    with duckdb.connect("d.db", read_only=True) as database:
        assert database.execute("SELECT count(*), sum(n) FROM t").fetchone() == (rows, rows * (rows - 1) // 2)
    assert pa.parquet.read_table("duck.parquet").num_rows == rows
    assert duckdb.sql("SELECT count(*) FROM read_csv('a.csv')").fetchall() == [(rows,)]
