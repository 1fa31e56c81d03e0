//! All unsafe code of this crate: memory and streams whose owner is a Python object.

use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

/// Bytes that a Python object owns, named by their address.
#[derive(Debug, Clone, Copy)]
pub struct Borrowed {
    address: usize,
    len: usize,
}

impl Borrowed {
    /// `address` and `len` come from a buffer that the caller in `gpuvol._put` has exported and releases only after
    /// the call that this is an argument of.
    pub fn new(address: usize, len: usize) -> PyResult<Self> {
        if len > 0 && (address == 0 || address.checked_add(len).is_none() || isize::try_from(len).is_err()) {
            return Err(PyValueError::new_err(format!("no memory of {len} bytes at address {address:#x}")));
        }
        Ok(Self { address, len })
    }

    pub fn as_slice(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: the Python caller keeps the exported buffer (a `Py_buffer` or a numpy array that owns or pins its
        // memory) until the native call returns, and `self` does not outlive that call. The bytes are only copied
        // out: a thread that writes to the buffer meanwhile gets a mixture, as with `file.write`.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}

/// Takes the stream out of an `arrow_array_stream` capsule; the capsule is left empty, as the protocol asks.
pub fn take_stream(capsule: &Bound<'_, PyCapsule>) -> PyResult<FFI_ArrowArrayStream> {
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: the capsule's name says, by the Arrow PyCapsule interface, that it points to an `ArrowArrayStream`,
    // which the capsule owns while we hold a reference to it. `from_raw` leaves a released stream in its place, so the
    // capsule's destructor does not release what we now own.
    Ok(unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) })
}
