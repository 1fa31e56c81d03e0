//! Putting what Python objects hold.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use arrow::ffi_stream::RecordBatchStreamReader;
use arrow::record_batch::RecordBatchReader;
use gpuvol_client::layout::{Dtype, LayoutError, TensorMeta};
use gpuvol_client::{Error, Put, PutOptions, Result};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::device::upload;
use crate::error::raised;
use crate::foreign::{Borrowed, take_stream};

/// Version, bytes, way.
type Answer = (u64, u64, &'static str);

/// What all puts take.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub struct Wishes {
    device: Option<String>,
    exclusive: bool,
    attributes: BTreeMap<String, String>,
}

/// Runs a put without the interpreter's lock.
fn detached(
    py: Python<'_>,
    path: &Path,
    wishes: Wishes,
    put: impl FnOnce(&PutOptions) -> Result<Put> + Send,
) -> PyResult<Answer> {
    let done = py.detach(|| {
        let upload = upload(path, wishes.device.as_deref())?;
        let attributes = wishes.attributes.into_iter().collect();
        put(&PutOptions { exclusive: wishes.exclusive, upload, attributes, ..PutOptions::default() })
    });
    done.map(|put| (put.version, put.size, put.way.name())).map_err(|error| raised(py, path, &error))
}

/// Puts `size` bytes at `address`, whose owner the caller keeps.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn put_bytes(py: Python<'_>, path: PathBuf, address: usize, size: usize, wishes: Wishes) -> PyResult<Answer> {
    let bytes = Borrowed::new(address, size)?;
    detached(py, &path, wishes, |options| gpuvol_client::put_bytes(&path, bytes.as_slice(), options))
}

/// Puts a contiguous tensor at `address`, whose owner the caller keeps.
#[pyfunction]
#[pyo3(signature = (path, dtype, shape, fortran_order, address, wishes))]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn put_tensor(
    py: Python<'_>,
    path: PathBuf,
    dtype: &str,
    shape: Vec<u64>,
    fortran_order: bool,
    address: usize,
    wishes: Wishes,
) -> PyResult<Answer> {
    let dtype = Dtype::from_name(dtype).ok_or_else(|| PyTypeError::new_err(format!("no tensor has type {dtype}")))?;
    let meta = TensorMeta { dtype, shape, fortran_order };
    let layout = |source| Error::Layout { path: path.display().to_string(), source };
    let len = meta.data_bytes().map_err(|source| raised(py, &path, &layout(source)))?;
    let data = Borrowed::new(address, usize::try_from(len)?)?;
    detached(py, &path, wishes, |options| gpuvol_client::put_tensor(&path, &meta, data.as_slice(), options))
}

/// Puts the table that an `arrow_array_stream` capsule yields. The capsule is used up.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn put_arrow(py: Python<'_>, path: PathBuf, stream: Bound<'_, PyCapsule>, wishes: Wishes) -> PyResult<Answer> {
    let stream = take_stream(&stream)?;
    detached(py, &path, wishes, |options| {
        let refused = |source| {
            let source = LayoutError::Arrow { what: "the stream of record batches".to_owned(), source };
            Error::Layout { path: path.display().to_string(), source }
        };
        let reader = RecordBatchStreamReader::try_new(stream).map_err(refused)?;
        let schema = reader.schema();
        let batches = reader.collect::<std::result::Result<Vec<_>, _>>().map_err(refused)?;
        gpuvol_client::put_batches(&path, &schema, &batches, options)
    })
}

/// Names of the element types that tensors have.
#[pyfunction]
pub fn tensor_types() -> Vec<&'static str> {
    Dtype::all().map(Dtype::name).collect()
}
