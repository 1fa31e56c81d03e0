//! Random nested types, random slices, random batches: written and read back.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType, Field, Fields, Schema, SchemaRef, UnionFields, UnionMode};
use proptest::prelude::*;

use super::bytes::{read_with_arrow, read_with_host_table, write};
use super::cases::{dictionary, field};
use super::generate::{self, Random};

fn leaf() -> impl Strategy<Value = DataType> {
    prop::sample::select(vec![
        DataType::Null,
        DataType::Boolean,
        DataType::Int8,
        DataType::Float64,
        DataType::Decimal128(20, 2),
        DataType::FixedSizeBinary(3),
        DataType::Utf8,
        DataType::LargeBinary,
        DataType::Utf8View,
        dictionary(DataType::UInt8, DataType::Utf8),
        dictionary(DataType::Int32, DataType::Int64),
    ])
}

fn nested() -> impl Strategy<Value = DataType> {
    leaf().prop_recursive(4, 24, 3, |inner| {
        let inner = inner.boxed();
        prop_oneof![
            inner.clone().prop_map(|t| DataType::List(field("item", t))),
            inner.clone().prop_map(|t| DataType::LargeList(field("item", t))),
            inner.clone().prop_map(|t| DataType::ListView(field("item", t))),
            (inner.clone(), 0..4_i32).prop_map(|(t, size)| DataType::FixedSizeList(field("item", t), size)),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|types| DataType::Struct(fields(types))),
            (prop::collection::vec(inner.clone(), 1..3), any::<bool>()).prop_map(|(types, dense)| {
                let mode = if dense { UnionMode::Dense } else { UnionMode::Sparse };
                DataType::Union(UnionFields::from_fields(fields(types).iter().cloned()), mode)
            }),
            inner.prop_map(|t| {
                DataType::RunEndEncoded(Arc::new(Field::new("run_ends", DataType::Int32, false)), field("values", t))
            }),
        ]
    })
}

fn fields(types: Vec<DataType>) -> Fields {
    types.into_iter().enumerate().map(|(index, t)| Field::new(format!("f{index}"), t, true)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn random_tables_come_back(
        types in prop::collection::vec(nested(), 1..4),
        cuts in prop::collection::vec((0..30_usize, 0..30_usize), 1..4),
        nulls in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let random = &mut Random::new(seed);
        let schema: SchemaRef = Arc::new(Schema::new(fields(types)));
        let batches: Vec<RecordBatch> = cuts
            .into_iter()
            .map(|(skip, rows)| {
                let column = |f: &Arc<Field>| generate::array(f.data_type(), skip + rows, nulls, random);
                let columns = schema.fields().iter().map(column).collect();
                RecordBatch::try_new(schema.clone(), columns).unwrap().slice(skip, rows)
            })
            .collect();
        let file = write(&schema, &batches);
        let (found_schema, found) = read_with_arrow(&file);
        prop_assert_eq!(&found_schema, &schema);
        prop_assert_eq!(&found, &batches);
        let (_, found) = read_with_host_table(&file);
        prop_assert_eq!(&found, &batches);
    }
}
