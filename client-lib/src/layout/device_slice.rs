//! Offsets of device arrays folded into addresses: the Arrow C data interface has them, IPC does not.

use arrow_schema::{DataType, UnionMode};

use super::array::{ArrayNode, BodySource, DeviceBuffer};
use super::device_table::DeviceArray;
use super::error::LayoutError;
use super::shape::{Shape, Slot, child_path};

impl DeviceArray {
    /// Elements `offset..offset + len` of this array, without touching the device.
    ///
    /// Use it to fold the `offset` of an `ArrowArray` into the addresses: build the node with
    /// `len = offset + length`, then slice. `null_count` is the exact count of nulls inside the slice if the caller
    /// knows it; it is needed where the array has nulls and the slice is not all of it. `column` names the array in errors.
    ///
    /// # Errors
    /// [`LayoutError::UnalignedSlice`] when bits (validity, booleans) would start inside a byte, or for run-end
    /// arrays; [`LayoutError::UnknownNullCount`]; [`LayoutError::MalformedArray`] when the range is outside the array.
    pub fn slice(
        &self,
        offset: u64,
        len: u64,
        null_count: Option<u64>,
        column: &str,
    ) -> Result<DeviceArray, LayoutError> {
        let data_type = &self.data_type;
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.len);
        if !inside {
            let detail = format!("{len} elements at {offset} of an array of {}", self.len);
            return Err(LayoutError::malformed(column, data_type, detail));
        }
        if offset == 0 && len == self.len {
            return Ok(self.clone());
        }
        let shape = Shape::of(data_type, column)?;
        let null_count = match (data_type, self.null_count) {
            (DataType::Null, _) => len,
            (_, 0) => 0,
            _ => null_count.ok_or_else(|| LayoutError::UnknownNullCount { column: column.to_owned() })?,
        };
        let unaligned = |part: &'static str| LayoutError::UnalignedSlice {
            column: column.to_owned(),
            data_type: Box::new(data_type.clone()),
            offset,
            part,
        };
        let mut buffers = Vec::with_capacity(self.buffers.len());
        for (index, buffer) in self.buffers.iter().enumerate() {
            let skip = match shape.slots.get(index) {
                Some(Slot::Validity) if null_count == 0 => {
                    buffers.push(None);
                    continue;
                }
                Some(Slot::Validity) if !offset.is_multiple_of(8) => return Err(unaligned("validity bits")),
                Some(Slot::Bits) if !offset.is_multiple_of(8) => return Err(unaligned("boolean bits")),
                Some(Slot::Validity | Slot::Bits) => Some(offset / 8),
                Some(Slot::Fixed(width) | Slot::Offsets(width)) => offset.checked_mul(*width),
                // Offsets and views keep pointing into the whole of the bytes.
                Some(Slot::Bytes) | None => Some(0),
            };
            let skip = skip.ok_or_else(|| LayoutError::malformed(column, data_type, "the offset is out of range"))?;
            buffers.push(buffer.map(|buffer| skipped(buffer, skip)));
        }
        let mut children = Vec::with_capacity(self.children.len());
        for (child, field) in self.children.iter().zip(&shape.children) {
            let path = child_path(column, field);
            children.push(match data_type {
                DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse) => child.slice(offset, len, None, &path)?,
                DataType::FixedSizeList(_, size) => {
                    let size = u64::try_from(*size).unwrap_or(0);
                    let range = offset.checked_mul(size).zip(len.checked_mul(size));
                    let (offset, len) =
                        range.ok_or_else(|| LayoutError::malformed(column, data_type, "the offset is out of range"))?;
                    child.slice(offset, len, None, &path)?
                }
                DataType::RunEndEncoded(_, _) => return Err(unaligned("runs")),
                _ => child.clone(),
            });
        }
        let (data_type, dictionary) = (data_type.clone(), self.dictionary.clone());
        Ok(ArrayNode { data_type, len, null_count, buffers, children, dictionary })
    }
}

fn skipped(buffer: DeviceBuffer, bytes: u64) -> DeviceBuffer {
    let bytes = bytes.min(buffer.byte_len());
    DeviceBuffer { address: buffer.address.saturating_add(bytes), len: buffer.len - bytes }
}
