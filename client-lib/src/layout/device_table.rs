//! A table in device memory, as lengths and addresses.

use arrow_schema::SchemaRef;

use super::array::{ArrayNode, Batch, DeviceBuffer, Extent};
use super::error::LayoutError;
use super::ipc_table::IpcTable;
use super::project::project;

/// An array in device memory.
pub type DeviceArray = ArrayNode<DeviceBuffer>;
/// A batch in device memory.
pub type DeviceBatch = Batch<DeviceBuffer>;

/// A table in device memory.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceTable {
    /// The schema, with field and table metadata.
    pub schema: SchemaRef,
    /// Rows of all batches.
    pub rows: u64,
    /// The batches in order.
    pub batches: Vec<DeviceBatch>,
}

impl DeviceTable {
    /// The table of a file whose bodies lie in device memory. `resolve(offset, len)` gives the device range of a
    /// range of the object's bytes; it is called for ranges of at least one byte only.
    ///
    /// `columns` chooses columns by name, in that order; `None` takes all. Nothing is read from the device, so
    /// offsets, views and dictionary keys are as the writer left them: kernels must not trust them more than the writer.
    ///
    /// # Errors
    /// [`LayoutError::UnsupportedFeature`] for compressed bodies and delta dictionaries,
    /// [`LayoutError::NoSuchColumn`], [`LayoutError::Corrupt`] or [`LayoutError::MalformedArray`] for metadata that
    /// does not fit the schema, and what `resolve` returns.
    pub fn from_ipc(
        table: &IpcTable,
        resolve: &dyn Fn(u64, u64) -> Result<DeviceBuffer, LayoutError>,
        columns: Option<&[&str]>,
    ) -> Result<Self, LayoutError> {
        let (indices, schema) = match columns {
            Some(names) => project(&table.schema, names)?,
            None => ((0..table.schema.fields().len()).collect(), table.schema.clone()),
        };
        let dictionaries = table.dictionary_trees()?;
        let mut batches = Vec::with_capacity(table.batches.len());
        for index in 0..table.batches.len() {
            let trees = table.in_place_columns(index, &dictionaries)?;
            let mut located = Vec::with_capacity(indices.len());
            for index in &indices {
                located.push(trees[*index].try_map(&mut |extent: &Extent| resolved(*extent, resolve))?);
            }
            batches.push(Batch { rows: table.batches[index].rows, columns: located });
        }
        Ok(Self { schema, rows: table.rows(), batches })
    }
}

fn resolved(
    extent: Extent,
    resolve: &dyn Fn(u64, u64) -> Result<DeviceBuffer, LayoutError>,
) -> Result<DeviceBuffer, LayoutError> {
    let buffer = resolve(extent.offset, extent.len)?;
    if buffer.len >= extent.len {
        return Ok(DeviceBuffer { len: extent.len, ..buffer });
    }
    let detail = format!("bytes {}..+{} resolve to {} bytes on the device", extent.offset, extent.len, buffer.len);
    Err(LayoutError::corrupt("object", detail))
}
