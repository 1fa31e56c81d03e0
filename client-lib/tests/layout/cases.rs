//! Tables of every type, with nulls, at odd slices, in several batches.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{
    DataType, Field, FieldRef, Fields, IntervalUnit, Schema, SchemaRef, TimeUnit, UnionFields, UnionMode,
};

use super::generate::{self, Random};

pub struct Case {
    pub name: String,
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    /// False for the two types that pyarrow has no class for.
    pub pyarrow: bool,
}

pub fn field(name: &str, data_type: DataType) -> FieldRef {
    Arc::new(Field::new(name, data_type, true))
}

pub fn dictionary(keys: DataType, values: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(values))
}

fn map_of(key: DataType, value: DataType) -> DataType {
    let entries = Fields::from(vec![Field::new("key", key, false), Field::new("value", value, true)]);
    DataType::Map(Arc::new(Field::new("entries", DataType::Struct(entries), false)), false)
}

fn runs_of(ends: DataType, values: DataType) -> DataType {
    DataType::RunEndEncoded(Arc::new(Field::new("run_ends", ends, false)), field("values", values))
}

fn union_of(mode: UnionMode) -> DataType {
    let fields = [
        Field::new("n", DataType::Int32, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("d", dictionary(DataType::Int8, DataType::Utf8), true),
    ];
    DataType::Union(UnionFields::try_new([5, 0, 7], fields).unwrap(), mode)
}

fn flat_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![Null, Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64];
    types.extend([Float16, Float32, Float64, Date32, Date64]);
    types.extend([Time32(TimeUnit::Second), Time32(TimeUnit::Millisecond)]);
    types.extend([Time64(TimeUnit::Microsecond), Time64(TimeUnit::Nanosecond)]);
    types.extend([Timestamp(TimeUnit::Second, None), Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into()))]);
    types.extend([Duration(TimeUnit::Millisecond), Duration(TimeUnit::Nanosecond)]);
    types.extend([Interval(IntervalUnit::YearMonth), Interval(IntervalUnit::DayTime)]);
    types.extend([Interval(IntervalUnit::MonthDayNano)]);
    types.extend([Decimal32(7, 2), Decimal64(15, 3), Decimal128(30, 4), Decimal256(60, -2)]);
    types.extend([FixedSizeBinary(3), FixedSizeBinary(16)]);
    types.extend([Utf8, LargeUtf8, Utf8View, Binary, LargeBinary, BinaryView]);
    types
}

fn nested_types() -> Vec<DataType> {
    use DataType::*;
    let point = Struct(Fields::from(vec![Field::new("x", Int16, true), Field::new("ok", Boolean, true)]));
    let labelled = Struct(Fields::from(vec![
        Field::new("label", dictionary(Int16, Utf8), true),
        Field::new("views", Utf8View, true),
    ]));
    let mut types = vec![
        List(field("item", Int32)),
        LargeList(field("item", Utf8)),
        ListView(field("item", Int64)),
        LargeListView(field("item", Utf8)),
        FixedSizeList(field("item", Boolean), 3),
        FixedSizeList(field("item", Utf8View), 2),
        FixedSizeList(field("item", Int32), 0),
        point.clone(),
        Struct(Fields::empty()),
        map_of(Utf8, Int32),
        map_of(Int32, List(field("item", Utf8))),
        union_of(UnionMode::Sparse),
        union_of(UnionMode::Dense),
        runs_of(Int16, Utf8),
        runs_of(Int32, Boolean),
        runs_of(Int64, Struct(Fields::from(vec![Field::new("v", Float64, true)]))),
        List(field("item", List(field("item", point.clone())))),
        List(field("item", dictionary(UInt8, LargeUtf8))),
        List(field("item", BinaryView)),
        Struct(Fields::from(vec![Field::new("deep", labelled.clone(), true), Field::new("n", Null, true)])),
        map_of(Utf8, dictionary(Int32, Int64)),
        runs_of(Int32, dictionary(Int32, Utf8)),
        dictionary(Int32, labelled),
        dictionary(Int8, List(field("item", Int32))),
    ];
    for keys in [Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64] {
        types.push(dictionary(keys, Utf8));
    }
    for values in [Int64, Float32, Utf8View, LargeBinary, FixedSizeBinary(5), Boolean, Decimal128(10, 2)] {
        types.push(dictionary(Int32, values));
    }
    types
}

pub fn all_types() -> Vec<DataType> {
    let mut types = flat_types();
    types.extend(nested_types());
    types
}

fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> RecordBatch {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema.clone(), columns, &options).unwrap()
}

fn of_type(data_type: &DataType, seed: u64) -> Vec<Case> {
    let random = &mut Random::new(seed);
    let schema: SchemaRef = Arc::new(Schema::new(vec![Field::new("c", data_type.clone(), true)]));
    let pyarrow = !matches!(data_type, DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime));
    let case = |name: &str, arrays: Vec<ArrayRef>| Case {
        name: format!("{seed:03}-{name}"),
        schema: schema.clone(),
        batches: arrays.into_iter().map(|array| batch(&schema, vec![array.clone()], array.len())).collect(),
        pyarrow,
    };
    let full = generate::array(data_type, 67, true, random);
    let dense = generate::array(data_type, 40, false, random);
    vec![
        case("nulls", vec![full.clone()]),
        case("no-nulls", vec![dense.clone()]),
        case("slices", vec![full.slice(3, 41), full.slice(8, 16), full.slice(0, 9), full.slice(66, 1)]),
        case("slice-of-slice", vec![full.slice(5, 50).slice(6, 20), full.slice(20, 0), dense.slice(1, 8)]),
        case("empty", vec![full.slice(0, 0), generate::array(data_type, 0, true, random)]),
        // Other batches bring other dictionaries.
        case("several", vec![full, dense, generate::array(data_type, 19, true, random)]),
        case("no-batches", vec![]),
    ]
}

fn special() -> Vec<Case> {
    let random = &mut Random::new(7);
    let mut cases = Vec::new();
    let empty: SchemaRef = Arc::new(Schema::empty());
    let mut add = |name: &str, schema: &SchemaRef, batches: Vec<RecordBatch>| {
        cases.push(Case { name: name.to_owned(), schema: schema.clone(), batches, pyarrow: true });
    };
    add("no-columns", &empty, vec![batch(&empty, vec![], 12)]);
    add("nothing", &empty, vec![]);
    let metadata = HashMap::from([("pandas".to_owned(), "{\"index_columns\": []}".to_owned())]);
    let on_field = HashMap::from([("unit".to_owned(), "m/s".to_owned())]);
    let fields: Vec<Field> = all_types()
        .into_iter()
        .filter(|t| !matches!(t, DataType::Interval(IntervalUnit::YearMonth | IntervalUnit::DayTime)))
        .enumerate()
        .map(|(index, t)| Field::new(format!("c{index}"), t, true).with_metadata(on_field.clone()))
        .collect();
    let wide: SchemaRef = Arc::new(Schema::new_with_metadata(fields, metadata));
    let mut rows = |len: usize| {
        let columns = wide.fields().iter().map(|f| generate::array(f.data_type(), len, true, random)).collect();
        batch(&wide, columns, len)
    };
    let batches = vec![rows(30).slice(3, 21), rows(0), rows(101)];
    add("wide", &wide, batches);
    let ordered = Field::new("o", dictionary(DataType::Int8, DataType::Utf8), false).with_dict_is_ordered(true);
    let ordered: SchemaRef = Arc::new(Schema::new(vec![ordered]));
    let column = generate::array(ordered.field(0).data_type(), 9, false, &mut Random::new(3));
    add("ordered", &ordered, vec![batch(&ordered, vec![column], 9)]);
    cases
}

pub fn all() -> Vec<Case> {
    let mut cases = special();
    for (seed, data_type) in all_types().iter().enumerate() {
        cases.extend(of_type(data_type, seed as u64));
    }
    cases
}
