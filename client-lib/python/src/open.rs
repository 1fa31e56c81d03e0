//! Opening: an object that owns its memory while Python refers to it.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gpuvol_client::layout::{is_ipc_file, is_npy_file, parse_tensor};
use gpuvol_client::{Code, Error, Kind, OpenOptions};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::{raised, raised_as};
use crate::volume::Facts;

/// How long a wait goes on before it looks whether Ctrl-C was pressed.
const STEP: Duration = Duration::from_millis(200);

/// An open object. Everything that refers to its memory holds a reference to this.
#[derive(Debug)]
#[pyclass(frozen, weakref, module = "gpuvol._native")]
pub struct Object {
    path: PathBuf,
    kind: Kind,
    /// `None` only while it is dropped.
    object: Option<gpuvol_client::Object>,
    /// The bytes on the host, once somebody asked: a download where the object is on a GPU.
    bytes: OnceLock<Bytes>,
}

/// Opens what is at a path, waiting up to `wait` seconds for it to be sealed.
#[pyfunction]
pub fn open(py: Python<'_>, path: PathBuf, wait: f64) -> PyResult<Object> {
    let wait = Duration::try_from_secs_f64(wait)
        .or(if wait == f64::INFINITY { Ok(Duration::MAX) } else { Err(()) })
        .map_err(|()| PyValueError::new_err(format!("wait={wait} is not a number of seconds")))?;
    let start = Instant::now();
    loop {
        let left = wait.saturating_sub(start.elapsed());
        let options = OpenOptions { wait: left.min(STEP), ..OpenOptions::default() };
        let opened = py.detach(|| {
            let object = gpuvol_client::open(&path, &options)?;
            let kind = recognised(&object)?;
            Ok::<_, Error>((object, kind))
        });
        let error = match opened {
            Ok((object, kind)) => return Ok(Object { path, kind, object: Some(object), bytes: OnceLock::new() }),
            Err(error) => error,
        };
        let absent = matches!(error.code(), Code::DeadlineExceeded | Code::NotFound) && !wait.is_zero();
        if !absent {
            return Err(raised(py, &path, &error));
        }
        py.check_signals()?;
        if start.elapsed() >= wait {
            let message =
                format!("{} was not sealed within {} s; is its producer running?", path.display(), wait.as_secs_f64());
            return Err(raised_as(py, &path, Code::DeadlineExceeded, &message));
        }
    }
}

/// The kind of an object; Arrow files and `.npy` files that other programs wrote as bytes are recognised.
fn recognised(object: &gpuvol_client::Object) -> gpuvol_client::Result<Kind> {
    /// Both formats begin, and an Arrow file also ends, within this many bytes.
    const ENDS: u64 = 16;
    if object.kind() != Kind::Bytes || object.size() < ENDS {
        return Ok(object.kind());
    }
    let first = object.read(0..ENDS)?;
    let last = object.read(object.size() - ENDS..object.size())?;
    Ok(if is_ipc_file(&first, &last) {
        Kind::Arrow
    } else if is_npy_file(&first) {
        Kind::Tensor
    } else {
        Kind::Bytes
    })
}

impl Object {
    fn object(&self) -> PyResult<&gpuvol_client::Object> {
        self.object.as_ref().ok_or_else(|| PyValueError::new_err("the object is closed"))
    }

    fn host(&self, py: Python<'_>) -> PyResult<&Bytes> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes);
        }
        let object = self.object()?;
        let bytes = py.detach(|| object.bytes()).map_err(|error| raised(py, &self.path, &error))?;
        Ok(self.bytes.get_or_init(|| bytes))
    }
}

/// Element type, typestr, shape, strides in bytes, and where in the object's bytes the elements begin.
type Tensor = (&'static str, &'static str, Vec<u64>, Vec<u64>, u64);

impl Drop for Object {
    fn drop(&mut self) {
        // The last holder of a version tells the store, which may take a moment.
        let parts = (self.object.take(), self.bytes.take());
        let mut parts = Some(parts);
        let detached = Python::try_attach(|py| py.detach(|| drop(parts.take())));
        if detached.is_none() {
            drop(parts);
        }
    }
}

#[pymethods]
impl Object {
    /// Where the object's bytes are in host memory. On a GPU they are downloaded by the first call.
    fn address(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.host(py)?.as_ptr() as usize)
    }

    /// Element type, typestr, shape, strides in bytes, and where in the object's bytes the elements begin.
    fn tensor(&self, py: Python<'_>) -> PyResult<Tensor> {
        let object = self.object()?;
        // One that another program wrote as bytes is all that there is to know about it.
        let file = if object.kind() == Kind::Tensor { None } else { Some(self.host(py)?) };
        let described = py.detach(|| {
            let layout = |source| Error::Layout { path: self.path.display().to_string(), source };
            let (meta, offset) = match file {
                None => object.tensor_meta()?,
                Some(bytes) => parse_tensor(bytes, bytes.len() as u64, "").map_err(layout)?,
            };
            let strides = meta.strides().map_err(layout)?;
            Ok((meta, strides, offset))
        });
        let (meta, strides, offset) = described.map_err(|error: Error| raised(py, &self.path, &error))?;
        Ok((meta.dtype.name(), meta.dtype.typestr(), meta.shape, strides, offset))
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// `bytes`, `arrow` or `tensor`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind.name()
    }

    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.object()?.size())
    }

    /// How its bytes come into this process: `inline`, `mapped`, `file`, or `download` from a GPU.
    #[getter]
    fn way(&self) -> PyResult<&'static str> {
        let object = self.object()?;
        Ok(if object.on_host() { object.way().name() } else { "download" })
    }

    /// What the store knows of it.
    fn facts(&self) -> PyResult<Facts> {
        Ok(Facts::of(self.object()?.entry()))
    }
}
