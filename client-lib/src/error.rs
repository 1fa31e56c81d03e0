//! What can go wrong in a client, and the way to tell the kinds apart.

use std::path::PathBuf;
use std::time::Duration;

use gpuvol_memory::MemoryError;
use gpuvol_protocol::{Code, Fault, FrameError, TypeError};

use crate::layout::LayoutError;

pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The store refused. Its message names path, volume and sizes.
    #[error("{}", .0.message)]
    Refused(Fault),
    #[error("{path}: {source}")]
    Path { path: String, source: TypeError },
    /// The store did not answer until the deadline, a restart of it included.
    #[error("the store of volume {volume} did not answer within {waited:?}: {source}")]
    Unavailable { volume: String, waited: Duration, source: FrameError },
    #[error("no gpuvol store answers at {path}: {source}{}", not_published(.source))]
    Connect { path: PathBuf, source: std::io::Error },
    /// The store's answer is not one to the question.
    #[error("the store of volume {volume} answered something else than asked for: {what}")]
    Confused { volume: String, what: &'static str },
    #[error("{path}: {source}")]
    Memory { path: String, source: MemoryError },
    /// The GPU is out of memory, whatever the volume's capacity.
    #[error(
        "{path}: the GPU {device} has no {need} bytes left (driver: {free} of {total} bytes free), though volume {volume} has room; other processes hold its memory"
    )]
    DeviceFull { path: String, volume: String, device: String, need: u64, free: u64, total: u64 },
    /// The object is on a GPU that this process does not see.
    #[error(
        "{path} is in the memory of {object}; this process sees {visible}. Give the pod that GPU, or open the object where it is visible"
    )]
    DeviceNotVisible { path: String, object: String, visible: String },
    #[error("{path}: {source}")]
    Layout { path: String, source: LayoutError },
    /// The object is of another kind than what was asked for.
    #[error("{path} is of kind {actual}, not {wanted}")]
    Kind { path: String, actual: &'static str, wanted: &'static str },
    #[error("{path}: {source}")]
    File { path: PathBuf, source: std::io::Error },
    #[error("{path}: {what}")]
    Unsupported { path: String, what: &'static str },
}

/// A store that is being replaced leaves its listener with the keeper, so nobody is refused then.
pub(crate) fn is_gone(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound)
}

fn not_published(error: &std::io::Error) -> &'static str {
    if is_gone(error) {
        "; the volume is not published here any more, or keeper and store ended together and its content is lost: publish it anew (restart the pod, or `gpuvol dev down` and `up`)"
    } else {
        ""
    }
}

impl Error {
    /// The kind of error as the store names kinds, also for errors that the client found itself.
    pub fn code(&self) -> Code {
        match self {
            Error::Refused(fault) => Code::try_from(fault.code).unwrap_or(Code::Internal),
            Error::Path { .. } => Code::InvalidArgument,
            Error::Unavailable { .. } | Error::Connect { .. } => Code::Unavailable,
            Error::Confused { .. } => Code::Protocol,
            Error::DeviceFull { .. } => Code::OutOfMemory,
            Error::DeviceNotVisible { .. } => Code::DeviceMismatch,
            Error::Layout { .. } | Error::Kind { .. } => Code::InvalidArgument,
            Error::Unsupported { .. } => Code::Unsupported,
            Error::Memory { source, .. } if source.is_out_of_memory() => Code::OutOfMemory,
            Error::Memory { .. } => Code::BadMemory,
            Error::File { source, .. } => match source.kind() {
                std::io::ErrorKind::NotFound => Code::NotFound,
                std::io::ErrorKind::AlreadyExists => Code::AlreadyExists,
                std::io::ErrorKind::IsADirectory => Code::IsADirectory,
                std::io::ErrorKind::NotADirectory => Code::NotADirectory,
                std::io::ErrorKind::ReadOnlyFilesystem => Code::ReadOnly,
                std::io::ErrorKind::StorageFull => Code::QuotaExceeded,
                std::io::ErrorKind::DirectoryNotEmpty => Code::NotEmpty,
                _ => Code::Internal,
            },
        }
    }

    pub(crate) fn memory(path: impl std::fmt::Display) -> impl FnOnce(MemoryError) -> Error {
        move |source| Error::Memory { path: path.to_string(), source }
    }

    pub(crate) fn layout(path: impl std::fmt::Display) -> impl FnOnce(LayoutError) -> Error {
        move |source| Error::Layout { path: path.to_string(), source }
    }
}
