//! Errors as Python exceptions: one class of `gpuvol._errors` and one errno for each code.

use std::path::Path;

use gpuvol_client::{Code, Error};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use rustix::io::Errno;

/// The class in `gpuvol._errors`, and the errno that a file system would answer.
fn exception(code: Code) -> (&'static str, Errno) {
    match code {
        Code::Internal => ("InternalError", Errno::IO),
        Code::InvalidArgument => ("InvalidArgument", Errno::INVAL),
        Code::NotFound => ("NotFound", Errno::NOENT),
        Code::AlreadyExists => ("AlreadyExists", Errno::EXIST),
        Code::NotADirectory => ("NotADirectory", Errno::NOTDIR),
        Code::IsADirectory => ("IsADirectory", Errno::ISDIR),
        Code::NotEmpty => ("NotEmpty", Errno::NOTEMPTY),
        Code::ReadOnly => ("ReadOnly", Errno::ROFS),
        Code::QuotaExceeded => ("QuotaExceeded", Errno::NOSPC),
        Code::OutOfMemory => ("OutOfMemory", Errno::NOMEM),
        Code::LimitExceeded => ("LimitExceeded", Errno::USERS),
        Code::DeadlineExceeded => ("DeadlineExceeded", Errno::TIMEDOUT),
        Code::BadMemory => ("BadMemory", Errno::BADFD),
        Code::DeviceUnknown => ("DeviceUnknown", Errno::NODEV),
        Code::DeviceMismatch => ("DeviceMismatch", Errno::XDEV),
        Code::Protocol => ("ProtocolError", Errno::PROTO),
        Code::InUse => ("InUse", Errno::BUSY),
        Code::ContentLost => ("ContentLost", Errno::NODATA),
        Code::Unavailable => ("Unavailable", Errno::CONNREFUSED),
        Code::Unsupported => ("Unsupported", Errno::OPNOTSUPP),
        Code::LeaseEnded => ("LeaseEnded", Errno::STALE),
        Code::Stale => ("Stale", Errno::STALE),
        Code::NoData => ("NoData", Errno::NODATA),
        Code::NotPermitted => ("NotPermitted", Errno::PERM),
    }
}

/// What an exception says beyond its class.
struct Raised<'e> {
    class: &'static str,
    errno: i32,
    message: &'e str,
    path: &'e Path,
    /// Bytes asked for, bytes free, the limit in bytes; 0 where unknown.
    numbers: (u64, u64, u64),
}

impl Raised<'_> {
    fn raise(&self, py: Python<'_>) -> PyErr {
        static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let made = CLASSES.get_or_try_init(py, || PyModule::import(py, "gpuvol._errors").map(Bound::unbind)).and_then(
            |classes| {
                let class = classes.bind(py).getattr(self.class)?;
                let path = self.path.as_os_str();
                let error = class.call1((self.errno, self.message, path))?;
                let (need, free, limit) = self.numbers;
                error.setattr(intern!(py, "need"), need)?;
                error.setattr(intern!(py, "free"), free)?;
                error.setattr(intern!(py, "limit"), limit)?;
                Ok(error)
            },
        );
        made.map_or_else(|error| error, PyErr::from_value)
    }
}

/// The client's error as an exception. `path` is what the caller asked for.
pub fn raised(py: Python<'_>, path: &Path, error: &Error) -> PyErr {
    let (mut class, errno) = exception(error.code());
    let mut errno = errno.raw_os_error();
    if let Error::File { source, .. } = error {
        errno = source.raw_os_error().unwrap_or(errno);
        if source.kind() == std::io::ErrorKind::PermissionDenied {
            class = "PermissionDenied";
        }
    }
    let numbers = match error {
        Error::Refused(fault) => (fault.need, fault.free, fault.limit),
        Error::DeviceFull { need, free, total, .. } => (*need, *free, *total),
        _ => (0, 0, 0),
    };
    Raised { class, errno, message: &error.to_string(), path, numbers }.raise(py)
}

/// An error that this module found itself.
pub fn raised_as(py: Python<'_>, path: &Path, code: Code, message: &str) -> PyErr {
    let (class, errno) = exception(code);
    Raised { class, errno: errno.raw_os_error(), message, path, numbers: (0, 0, 0) }.raise(py)
}

/// Each code's class name and errno, for the test that the two sides agree.
#[pyfunction]
pub fn error_codes() -> Vec<(&'static str, i32)> {
    (0..)
        .map_while(|number| Code::try_from(number).ok())
        .map(exception)
        .map(|(class, errno)| (class, errno.raw_os_error()))
        .collect()
}
