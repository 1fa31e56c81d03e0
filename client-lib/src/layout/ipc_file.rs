//! Tables to Arrow IPC files: the entry points.

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::array::DeviceBuffer;
use super::device_table::DeviceTable;
use super::error::LayoutError;
use super::host_array::host_batches;
use super::message::MAGIC;
use super::plan::FilePlan;
use super::write::plan_file;

/// Plans the file of a host table. Bodies share the batches' memory wherever a slice starts on a byte.
///
/// Field and schema metadata (pandas' among it) is kept. Batches with different dictionaries for one column are
/// unified; no batches and no columns are fine.
///
/// # Errors
/// [`LayoutError::SchemaMismatch`] when a batch does not have the schema's columns,
/// [`LayoutError::UnsupportedType`] for a dictionary of dictionaries or nesting past 60 levels,
/// [`LayoutError::DictionaryOverflow`] when the unified dictionary is too large for the key type.
pub fn plan_host(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<FilePlan<Buffer>, LayoutError> {
    plan_file(schema, &host_batches(schema, batches)?)
}

/// Plans the file of a device table. No byte of device memory is read.
///
/// # Errors
/// [`LayoutError::MalformedArray`] when a column's buffers do not fit its type and length,
/// [`LayoutError::DictionaryDiffers`] when batches name different dictionaries for one column,
/// [`LayoutError::SchemaMismatch`] when a batch does not have the schema's columns.
pub fn plan_device(table: &DeviceTable) -> Result<FilePlan<DeviceBuffer>, LayoutError> {
    plan_file(&table.schema, &table.batches)
}

/// True when bytes that begin with `first` and end with `last` claim to be an Arrow IPC file: the magic is at both
/// ends. Give at least 6 bytes of each; says nothing about what lies between.
pub fn is_ipc_file(first: &[u8], last: &[u8]) -> bool {
    first.starts_with(MAGIC) && last.ends_with(MAGIC)
}
