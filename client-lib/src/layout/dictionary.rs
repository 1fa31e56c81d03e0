//! One dictionary for all batches of a column: an Arrow file can neither replace nor (here) extend one.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::{ArrowNativeType, Buffer};
use arrow_data::ArrayData;
use arrow_schema::DataType;
use arrow_select::concat::concat;
use arrow_select::interleave::interleave;

use super::error::LayoutError;

/// The dictionary of all batches, and for each batch the new number of every old value (`None`: unchanged).
#[derive(Debug)]
pub(crate) struct Unified {
    pub(crate) values: ArrayRef,
    pub(crate) maps: Vec<Option<Vec<usize>>>,
}

/// Makes one dictionary of the batches' dictionaries, in order of first appearance.
///
/// Values that can be compared as bytes stay unique (pandas refuses categories that repeat); nested values are
/// laid one after the other.
pub(crate) fn unify(column: &str, dictionaries: &[ArrayRef]) -> Result<Unified, LayoutError> {
    let Some((first, rest)) = dictionaries.split_first() else {
        return Err(LayoutError::Corrupt {
            what: format!("column '{column}'"),
            detail: "a dictionary column without values".to_owned(),
        });
    };
    let first_data = first.to_data();
    let equal = |other: &ArrayRef| {
        let other = other.to_data();
        ArrayData::ptr_eq(&first_data, &other) || first_data == other
    };
    if rest.iter().all(equal) {
        return Ok(Unified { values: first.clone(), maps: vec![None; dictionaries.len()] });
    }
    if has_byte_keys(first.data_type()) { merge(column, dictionaries) } else { append(column, dictionaries) }
}

fn append(column: &str, dictionaries: &[ArrayRef]) -> Result<Unified, LayoutError> {
    let arrays: Vec<&dyn Array> = dictionaries.iter().map(AsRef::as_ref).collect();
    let values =
        concat(&arrays).map_err(|error| LayoutError::arrow(format!("the dictionaries of '{column}'"), error))?;
    let mut start = 0;
    let mut maps = Vec::with_capacity(dictionaries.len());
    for dictionary in dictionaries {
        maps.push((start > 0).then(|| (start..start + dictionary.len()).collect()));
        start += dictionary.len();
    }
    Ok(Unified { values, maps })
}

fn merge(column: &str, dictionaries: &[ArrayRef]) -> Result<Unified, LayoutError> {
    let keys: Vec<ByteKeys> = dictionaries.iter().map(ByteKeys::new).collect();
    let mut numbers: HashMap<Option<&[u8]>, usize> = HashMap::new();
    let mut picked: Vec<(usize, usize)> = Vec::new();
    let mut maps = Vec::with_capacity(dictionaries.len());
    for (batch, keys) in keys.iter().enumerate() {
        let mut map = Vec::with_capacity(keys.len);
        for index in 0..keys.len {
            let next = picked.len();
            // The first dictionary keeps its own numbers even where it repeats a value.
            let number = if batch == 0 { next } else { *numbers.entry(keys.get(index)).or_insert(next) };
            if batch == 0 {
                numbers.entry(keys.get(index)).or_insert(next);
            }
            if number == next {
                picked.push((batch, index));
            }
            map.push(number);
        }
        maps.push((batch > 0).then_some(map));
    }
    let arrays: Vec<&dyn Array> = dictionaries.iter().map(AsRef::as_ref).collect();
    let values = interleave(&arrays, &picked)
        .map_err(|error| LayoutError::arrow(format!("the dictionaries of '{column}'"), error))?;
    Ok(Unified { values, maps })
}

/// New keys for one batch. Slots under a null become 0: what lies there is not a key.
pub(crate) fn remap(column: &str, keys: &dyn Array, map: &[usize], values: usize) -> Result<Buffer, LayoutError> {
    match keys.data_type() {
        DataType::Int8 => remap_typed(column, keys.as_primitive::<Int8Type>(), map, values),
        DataType::Int16 => remap_typed(column, keys.as_primitive::<Int16Type>(), map, values),
        DataType::Int32 => remap_typed(column, keys.as_primitive::<Int32Type>(), map, values),
        DataType::Int64 => remap_typed(column, keys.as_primitive::<Int64Type>(), map, values),
        DataType::UInt8 => remap_typed(column, keys.as_primitive::<UInt8Type>(), map, values),
        DataType::UInt16 => remap_typed(column, keys.as_primitive::<UInt16Type>(), map, values),
        DataType::UInt32 => remap_typed(column, keys.as_primitive::<UInt32Type>(), map, values),
        DataType::UInt64 => remap_typed(column, keys.as_primitive::<UInt64Type>(), map, values),
        other => Err(LayoutError::malformed(column, other, "dictionary keys must be integers")),
    }
}

fn remap_typed<K: ArrowDictionaryKeyType>(
    column: &str,
    keys: &PrimitiveArray<K>,
    map: &[usize],
    values: usize,
) -> Result<Buffer, LayoutError> {
    let overflow = || LayoutError::DictionaryOverflow {
        column: column.to_owned(),
        values,
        key_type: Box::new(keys.data_type().clone()),
    };
    let mut renumbered: Vec<K::Native> = Vec::with_capacity(keys.len());
    for (index, key) in keys.values().iter().enumerate() {
        let number = if keys.is_null(index) { 0 } else { map.get(key.as_usize()).copied().unwrap_or(0) };
        renumbered.push(K::Native::from_usize(number).ok_or_else(overflow)?);
    }
    Ok(Buffer::from_vec(renumbered))
}

fn has_byte_keys(data_type: &DataType) -> bool {
    data_type.primitive_width().is_some()
        || matches!(
            data_type,
            DataType::Utf8
                | DataType::LargeUtf8
                | DataType::Utf8View
                | DataType::Binary
                | DataType::LargeBinary
                | DataType::BinaryView
                | DataType::FixedSizeBinary(_)
        )
}

/// The values of an array as bytes that are equal exactly when the values are.
#[derive(Debug)]
struct ByteKeys {
    array: ArrayRef,
    len: usize,
    /// Values and bytes per value, for types of fixed width.
    fixed: Option<(Buffer, usize)>,
}

impl ByteKeys {
    fn new(array: &ArrayRef) -> Self {
        let width = match array.data_type() {
            DataType::FixedSizeBinary(width) => usize::try_from(*width).ok(),
            other => other.primitive_width(),
        };
        let fixed = width.and_then(|width| {
            let data = array.to_data();
            let values = data.buffers().first()?;
            Some((values.slice_with_length(data.offset() * width, data.len() * width), width))
        });
        Self { array: array.clone(), len: array.len(), fixed }
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        if self.array.is_null(index) {
            return None;
        }
        if let Some((values, width)) = &self.fixed {
            return Some(&values[index * width..(index + 1) * width]);
        }
        let array = &self.array;
        match array.data_type() {
            DataType::Utf8 => Some(array.as_string::<i32>().value(index).as_bytes()),
            DataType::LargeUtf8 => Some(array.as_string::<i64>().value(index).as_bytes()),
            DataType::Utf8View => Some(array.as_string_view().value(index).as_bytes()),
            DataType::Binary => Some(array.as_binary::<i32>().value(index)),
            DataType::LargeBinary => Some(array.as_binary::<i64>().value(index)),
            DataType::BinaryView => Some(array.as_binary_view().value(index)),
            _ => None,
        }
    }
}
