"""Tables as files: what one side writes, as a file or by the library, the other side reads."""

import os

import mounted

mounted.enter()
if not mounted.is_volume():
    mounted.skip("only a volume has tables")
try:
    import gpuvol
    import pyarrow
    import pyarrow.feather
except ImportError as error:
    mounted.skip(f"{error.name} is missing")

here = os.getcwd()
table = pyarrow.table({"x": list(range(50_000)), "s": [str(n) for n in range(50_000)]})
for compression in ("uncompressed", "lz4", "zstd"):
    path = f"{here}/{compression}.arrow"
    pyarrow.feather.write_feather(table, path, compression=compression)
    opened = gpuvol.open(path)
    assert (opened.kind, opened.way) == ("arrow", "mapped"), opened
    assert gpuvol.get(path, as_="arrow").equals(table), compression
gpuvol.put(f"{here}/put.arrow", table)
assert pyarrow.feather.read_table(f"{here}/put.arrow").equals(table)
assert os.getxattr("put.arrow", "user.gpuvol.kind") == b"arrow"
# From a directory below, by relative paths and through a link.
os.makedirs("a/b")
os.symlink("a/b", "link")
os.chdir("a/b")
gpuvol.put("in.arrow", table)
assert os.listdir() == ["in.arrow"]
for path in ("in.arrow", "../b/in.arrow", f"{here}/link/in.arrow"):
    assert gpuvol.get(path, as_="arrow").equals(table), path
