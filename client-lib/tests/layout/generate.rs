//! Random arrays of every type, valid for arrow-rs and for pyarrow's full validation.

use std::sync::Arc;

use arrow_array::types::Int32Type;
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeListArray, GenericListArray,
    GenericListViewArray, LargeBinaryArray, LargeStringArray, MapArray, NullArray, OffsetSizeTrait, PrimitiveArray,
    StringArray, StringViewArray, StructArray, UnionArray, make_array,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, FieldRef, Fields, UnionMode};

/// A small generator of random numbers (xorshift64*): the same cases on every run.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        usize::try_from(number).unwrap() % limit.max(1)
    }
}

/// An array of `len` random elements; about one in four is null where `nulls` is set.
pub fn array(data_type: &DataType, len: usize, nulls: bool, random: &mut Random) -> ArrayRef {
    let validity = nulls.then(|| NullBuffer::from_iter((0..len).map(|_| random.below(4) != 0)));
    let nullable = |field: &FieldRef| field.is_nullable() && nulls;
    match data_type {
        DataType::Null => Arc::new(NullArray::new(len)),
        DataType::Boolean => Arc::new(BooleanArray::new((0..len).map(|_| random.below(2) == 1).collect(), validity)),
        DataType::Utf8 => Arc::new(StringArray::from(strings(len, validity.as_ref(), random))),
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(strings(len, validity.as_ref(), random))),
        DataType::Utf8View => Arc::new(StringViewArray::from_iter(strings(len, validity.as_ref(), random))),
        DataType::Binary => Arc::new(BinaryArray::from_iter(strings(len, validity.as_ref(), random))),
        DataType::LargeBinary => Arc::new(LargeBinaryArray::from_iter(strings(len, validity.as_ref(), random))),
        DataType::BinaryView => Arc::new(BinaryViewArray::from_iter(strings(len, validity.as_ref(), random))),
        DataType::List(field) => list::<i32>(field, len, validity, nullable(field), random),
        DataType::LargeList(field) => list::<i64>(field, len, validity, nullable(field), random),
        DataType::ListView(field) => list_view::<i32>(field, len, validity, nullable(field), random),
        DataType::LargeListView(field) => list_view::<i64>(field, len, validity, nullable(field), random),
        DataType::FixedSizeList(field, size) => {
            let values = array(field.data_type(), len * usize::try_from(*size).unwrap(), nullable(field), random);
            Arc::new(FixedSizeListArray::try_new_with_length(field.clone(), *size, values, validity, len).unwrap())
        }
        DataType::Struct(fields) if fields.is_empty() => Arc::new(StructArray::new_empty_fields(len, validity)),
        DataType::Struct(fields) => Arc::new(struct_array(fields, len, validity, nulls, random)),
        DataType::Map(field, sorted) => {
            let (offsets, total) = offsets::<i32>(len, random);
            let DataType::Struct(fields) = field.data_type() else { panic!("map of {field}") };
            let entries = struct_array(fields, total, None, nulls, random);
            Arc::new(MapArray::new(field.clone(), offsets, entries, validity, *sorted))
        }
        DataType::Union(fields, mode) => {
            let ids: Vec<i8> = fields.iter().map(|(id, _)| id).collect();
            let picks: Vec<usize> = (0..len).map(|_| random.below(ids.len())).collect();
            let mut used = vec![0_i32; ids.len()];
            let offsets: ScalarBuffer<i32> = picks
                .iter()
                .map(|pick| {
                    used[*pick] += 1;
                    used[*pick] - 1
                })
                .collect();
            let dense = *mode == UnionMode::Dense;
            let children = fields
                .iter()
                .zip(&used)
                .map(|((_, field), used)| {
                    let len = if dense { usize::try_from(*used).unwrap() } else { len };
                    array(field.data_type(), len, nullable(field), random)
                })
                .collect();
            let type_ids = picks.iter().map(|pick| ids[*pick]).collect();
            Arc::new(UnionArray::try_new(fields.clone(), type_ids, dense.then_some(offsets), children).unwrap())
        }
        DataType::Dictionary(keys, values) => dictionary(data_type, keys, values, len, validity, random),
        DataType::RunEndEncoded(ends, values) => run_ends(data_type, ends, values, len, nulls, random),
        fixed => fixed_width(fixed, len, validity, random),
    }
}

fn strings(len: usize, validity: Option<&NullBuffer>, random: &mut Random) -> Vec<Option<String>> {
    let word = |random: &mut Random| match random.below(4) {
        0 => String::new(),
        1 => format!("é{}", random.below(9)),
        2 => format!("w{}", random.below(1000)),
        _ => format!("a string that does not fit in a view: {}", random.below(1000)),
    };
    (0..len).map(|i| validity.is_none_or(|v| v.is_valid(i)).then(|| word(random))).collect()
}

fn offsets<O: OffsetSizeTrait>(len: usize, random: &mut Random) -> (OffsetBuffer<O>, usize) {
    let lengths: Vec<usize> = (0..len).map(|_| random.below(4)).collect();
    let total = lengths.iter().sum();
    (OffsetBuffer::from_lengths(lengths), total)
}

fn list<O: OffsetSizeTrait>(
    field: &FieldRef,
    len: usize,
    validity: Option<NullBuffer>,
    nulls: bool,
    random: &mut Random,
) -> ArrayRef {
    let (offsets, total) = offsets::<O>(len, random);
    let values = array(field.data_type(), total, nulls, random);
    Arc::new(GenericListArray::<O>::new(field.clone(), offsets, values, validity))
}

fn list_view<O: OffsetSizeTrait>(
    field: &FieldRef,
    len: usize,
    validity: Option<NullBuffer>,
    nulls: bool,
    random: &mut Random,
) -> ArrayRef {
    let values = array(field.data_type(), len * 2, nulls, random);
    let mut offsets = Vec::new();
    let mut sizes = Vec::new();
    for _ in 0..len {
        let start = random.below(len * 2);
        offsets.push(O::usize_as(start));
        sizes.push(O::usize_as(random.below(4).min(len * 2 - start)));
    }
    Arc::new(GenericListViewArray::<O>::new(field.clone(), offsets.into(), sizes.into(), values, validity))
}

fn struct_array(
    fields: &Fields,
    len: usize,
    validity: Option<NullBuffer>,
    nulls: bool,
    random: &mut Random,
) -> StructArray {
    let children =
        fields.iter().map(|field| array(field.data_type(), len, nulls && field.is_nullable(), random)).collect();
    StructArray::new(fields.clone(), children, validity)
}

fn dictionary(
    data_type: &DataType,
    keys: &DataType,
    values: &DataType,
    len: usize,
    validity: Option<NullBuffer>,
    random: &mut Random,
) -> ArrayRef {
    let count = 1 + random.below(6);
    let values = array(values, count, false, random);
    let width = keys.primitive_width().unwrap();
    let numbers = (0..len).map(|_| random.below(count) as u64);
    build(data_type, len, little_endian(numbers, width), validity, vec![values.to_data()])
}

fn run_ends(
    data_type: &DataType,
    ends: &FieldRef,
    values: &FieldRef,
    len: usize,
    nulls: bool,
    random: &mut Random,
) -> ArrayRef {
    let mut positions = Vec::new();
    let mut at = 0;
    while at < len {
        at = (at + 1 + random.below(4)).min(len);
        positions.push(at as u64);
    }
    let runs = positions.len();
    let width = ends.data_type().primitive_width().unwrap();
    let ends = build(ends.data_type(), runs, little_endian(positions.into_iter(), width), None, Vec::new());
    let values = array(values.data_type(), runs, nulls && values.is_nullable(), random);
    let data = ArrayData::builder(data_type.clone()).len(len).child_data(vec![ends.to_data(), values.to_data()]);
    make_array(data.build().unwrap())
}

/// Small numbers, which are valid decimals, times of day and whole days in milliseconds.
fn fixed_width(data_type: &DataType, len: usize, validity: Option<NullBuffer>, random: &mut Random) -> ArrayRef {
    let width = match data_type {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).unwrap(),
        other => other.primitive_width().unwrap(),
    };
    let unit = if *data_type == DataType::Date64 { 86_400_000 } else { 1 };
    let values: Vec<u64> = (0..len).map(|_| random.below(100) as u64 * unit).collect();
    build(data_type, len, little_endian(values.into_iter(), width), validity, Vec::new())
}

fn little_endian(values: impl Iterator<Item = u64>, width: usize) -> Buffer {
    let mut bytes = Vec::new();
    for value in values {
        let mut wide = [0_u8; 64];
        wide[..8].copy_from_slice(&value.to_le_bytes());
        bytes.extend_from_slice(&wide[..width]);
    }
    Buffer::from(bytes)
}

fn build(
    data_type: &DataType,
    len: usize,
    values: Buffer,
    validity: Option<NullBuffer>,
    children: Vec<ArrayData>,
) -> ArrayRef {
    let data = ArrayData::builder(data_type.clone()).len(len).add_buffer(values).nulls(validity).child_data(children);
    make_array(data.align_buffers(true).build().unwrap())
}

/// Numbers 0, 1, 2 ...: for tests that look for bytes.
pub fn counting(len: i32) -> ArrayRef {
    Arc::new(PrimitiveArray::<Int32Type>::from_iter_values(0..len))
}
