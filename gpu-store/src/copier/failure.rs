//! What a copy failed at, in words that name the memory, and whether the GPU itself is to blame.

use gpuvol_memory::MemoryError;
use gpuvol_protocol::message::Allocation;
use gpuvol_protocol::types::Bytes;
use gpuvol_protocol::{Code, DeviceUuid, Fault};

use super::wire::{Copy, Ended};

/// An allocation, for people.
pub(super) fn name(allocation: &Allocation) -> String {
    let place = match DeviceUuid::try_from(allocation.device.as_slice()) {
        Ok(uuid) => uuid.to_string(),
        Err(_) => "the host".to_owned(),
    };
    format!("allocation {} ({} on {place})", allocation.id, Bytes(allocation.len))
}

/// Why a copy failed.
#[derive(Debug)]
pub(super) struct Failure {
    code: Code,
    message: String,
    broken: bool,
}

impl Failure {
    /// One that the GPU has nothing to do with.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), broken: false }
    }

    /// Before any byte was copied.
    pub(super) fn of(what: &str, error: &MemoryError) -> Self {
        // These are the driver's word on what it was asked; every other failure may be the GPU's or the context's.
        let asked = matches!(error, MemoryError::Cuda(failure) if ARGUMENT_FAILURES.contains(&failure.code));
        let broken = matches!(error, MemoryError::Cuda(_)) && !asked;
        Self { code: code_of(error), message: format!("{what} cannot be used: {error}"), broken }
    }

    /// While bytes were copied: what CUDA says then is about the GPU, or about host memory that it could not get.
    pub(super) fn in_copy(copy: &Copy, segment: Option<usize>, error: &MemoryError) -> Self {
        let broken = matches!(error, MemoryError::Cuda(_)) && !error.is_out_of_memory();
        let code = if broken { Code::Unavailable } else { code_of(error) };
        let place = segment.map(|index| match copy.segments.get(index) {
            Some(segment) if segment.inline.is_empty() => match copy.allocations.get(segment.allocation as usize) {
                Some(allocation) => format!(" at segment {index}, from {}", name(allocation)),
                None => format!(" at segment {index}"),
            },
            _ => format!(" at segment {index}"),
        });
        Self { code, message: format!("the copy failed{}: {error}", place.unwrap_or_default()), broken }
    }

    /// As the store hears it, which knows the object by this name.
    pub(super) fn ended(self, object: &str) -> Ended {
        let fault = Fault::new(self.code, format!("{object}: {}", self.message));
        Ended { fault: Some(fault), broken: self.broken, ..Ended::default() }
    }
}

/// Codes of `CUDA_ERROR_INVALID_VALUE`, `OUT_OF_MEMORY`, `INVALID_DEVICE`, `INVALID_HANDLE`, `NOT_PERMITTED`, `NOT_SUPPORTED`.
const ARGUMENT_FAILURES: [u32; 6] = [1, 2, 101, 400, 800, 801];

fn code_of(error: &MemoryError) -> Code {
    use MemoryError as E;

    match error {
        _ if error.is_out_of_memory() => Code::OutOfMemory,
        E::Cuda(failure) if ARGUMENT_FAILURES.contains(&failure.code) => Code::BadMemory,
        E::Cuda(_) => Code::Unavailable,
        E::CudaLibrary { .. }
        | E::CudaSymbol { .. }
        | E::NoDevice
        | E::DeviceNotVisible { .. }
        | E::NotShareable { .. } => Code::DeviceUnknown,
        E::WrongDevice { .. } => Code::DeviceMismatch,
        E::OutOfBounds { .. } | E::ZeroLength | E::TooLarge { .. } => Code::InvalidArgument,
        E::NotMemfd | E::HugePages | E::MissingSeals { .. } | E::SizeMismatch { .. } | E::SealedAgainstWriting => {
            Code::BadMemory
        }
        _ => Code::Internal,
    }
}
