//! Tables and tensors as an object's bytes, for host and device memory alike.
//!
//! A table object is, byte for byte, an Arrow IPC *file*; a tensor object is a `.npy` file. Small host pieces
//! (magic, metadata, padding) alternate with body buffers that lie where the arrays lie, at multiples of 64.
//! So writing is *planning*: [`plan_host`] and [`plan_device`] list pieces without looking at a buffer's contents,
//! which the CPU could not read on a device anyway. And reading is parsing metadata: [`parse`] yields the
//! ranges of the buffers, [`DeviceTable::from_ipc`] turns them into addresses, and [`HostTable`] into arrays.
//!
//! ```text
//!   RecordBatch --host_array--> ArrayNode<Buffer> ------+
//!                                                       +--write--> FilePlan --(put)--> object
//!   DeviceTable ------------- ArrayNode<DeviceBuffer> --+                                 |
//!                                                                                       parse
//!   DeviceTable <--resolve-- ArrayNode<Extent> <--------------- IpcTable <----------------+
//!   RecordBatch <--HostTable (arrow-ipc's decoder over the same bytes) <------------------+
//! ```
//!
//! What is written: little-endian, uncompressed, metadata version 5, one dictionary per field and no deltas,
//! exact null counts, no validity buffer where there are no nulls. What is read: files of any writer, down to metadata
//! version 4; compressed bodies and delta dictionaries in host memory only.
//!
//! Bytes that are read come from anyone. `parse` checks every number before use and allocates in proportion to what
//! it has read; `HostTable` validates contents too. Contents in device memory are not validated.

mod array;
mod assemble;
mod compressed;
mod device_slice;
mod device_table;
mod dictionary;
mod dtype;
mod error;
mod host_array;
mod host_table;
mod ipc_file;
mod ipc_table;
mod message;
mod npy_header;
mod parse;
mod plan;
mod project;
mod run_end;
mod shape;
mod tensor;
mod write;

pub use array::{ArrayNode, Batch, BodySource, DeviceBuffer, Extent};
pub use device_table::{DeviceArray, DeviceBatch, DeviceTable};
pub use dtype::Dtype;
pub use error::LayoutError;
pub use host_table::HostTable;
pub use ipc_file::{is_ipc_file, plan_device, plan_host};
pub use ipc_table::{Compression, IpcBatch, IpcBlock, IpcDictionary, IpcNode, IpcTable};
pub use parse::parse;
pub use plan::{ALIGNMENT, FilePlan, Piece};
pub use tensor::{MAX_DIMS, TensorMeta, is_npy_file, parse_tensor, plan_tensor, tensor_header_len};
