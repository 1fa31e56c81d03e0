//! Run-end arrays without an offset: the runs that a slice touches, with ends counted from its start.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int32Type, Int64Type, RunEndIndexType};
use arrow_array::{Array, ArrayRef, PrimitiveArray};
use arrow_buffer::ArrowNativeType;
use arrow_schema::DataType;

use super::error::LayoutError;

/// The run ends and values of exactly the rows that the array shows.
pub(crate) fn rebased(array: &ArrayRef, column: &str) -> Result<[ArrayRef; 2], LayoutError> {
    let DataType::RunEndEncoded(ends, _) = array.data_type() else {
        return Err(LayoutError::malformed(column, array.data_type(), "not a run-end array"));
    };
    match ends.data_type() {
        DataType::Int16 => typed::<Int16Type>(array, column),
        DataType::Int32 => typed::<Int32Type>(array, column),
        DataType::Int64 => typed::<Int64Type>(array, column),
        _ => Err(LayoutError::malformed(column, array.data_type(), "run ends must be int16, int32 or int64")),
    }
}

fn typed<R: RunEndIndexType>(array: &ArrayRef, column: &str) -> Result<[ArrayRef; 2], LayoutError> {
    let malformed = |detail: &str| LayoutError::malformed(column, array.data_type(), detail);
    let run = array.as_run_opt::<R>().ok_or_else(|| malformed("run ends of another type"))?;
    let ends = run.run_ends();
    let len = run.len();
    if len == 0 {
        return Ok([Arc::new(PrimitiveArray::<R>::new(Vec::new().into(), None)), run.values().slice(0, 0)]);
    }
    if ends.offset() == 0 && ends.max_value() == len && ends.inner().len() == run.values().len() {
        return Ok([Arc::new(PrimitiveArray::<R>::new(ends.inner().clone(), None)), run.values().clone()]);
    }
    let first = ends.get_start_physical_index();
    let last = ends.get_end_physical_index();
    let mut rebased: Vec<R::Native> = Vec::with_capacity(last - first + 1);
    for end in &ends.values()[first..last] {
        let end = R::Native::from_usize(end.as_usize() - ends.offset());
        rebased.push(end.ok_or_else(|| malformed("a run end is out of range"))?);
    }
    rebased.push(R::Native::from_usize(len).ok_or_else(|| malformed("the length is out of range"))?);
    let values = run.values().slice(first, last - first + 1);
    Ok([Arc::new(PrimitiveArray::<R>::new(rebased.into(), None)), values])
}
