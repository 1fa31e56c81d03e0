//! What a request failed with, and the one number that its caller sees.

use std::io;
use std::time::Duration;

use fuser::Errno;
use gpuvol_protocol::{Code, Fault, FrameError};

pub type Result<T> = std::result::Result<T, Failure>;

/// Why a request has no result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A rule of this file system, which callers know how to take.
    #[error("{}", io::Error::from_raw_os_error(.0.code()))]
    Rule(Errno),
    /// The store refused. Its message names path, volume and sizes.
    #[error("{}", .0.message)]
    Refused(Fault),
    /// The store did not answer until the deadline, a restart of it included.
    #[error("the store did not answer within {waited:?}: {source}")]
    Unanswered { waited: Duration, source: FrameError },
    #[error("the store answered something else than asked for: {0}")]
    Confused(&'static str),
    #[error("{what}: {source}")]
    System { what: &'static str, source: io::Error },
    #[error("another request on the same file did not end within {0:?}")]
    Late(Duration),
}

impl Failure {
    /// For `map_err`: a system call failed while `what`.
    pub fn system(what: &'static str) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure::System { what, source }
    }

    pub fn errno(&self) -> Errno {
        match self {
            Failure::Rule(errno) => *errno,
            Failure::Refused(fault) => of_code(fault.code()),
            Failure::System { source, .. } => source.raw_os_error().map_or(Errno::EIO, Errno::from_i32),
            Failure::Unanswered { .. } | Failure::Confused(_) | Failure::Late(_) => Errno::EIO,
        }
    }

    /// Programs provoke these in their ordinary work; everything else is worth a line in the log.
    pub fn is_ordinary(&self) -> bool {
        match self {
            Failure::Rule(_) => true,
            Failure::Refused(fault) => matches!(
                fault.code(),
                Code::NotFound
                    | Code::AlreadyExists
                    | Code::NotADirectory
                    | Code::IsADirectory
                    | Code::NotEmpty
                    | Code::ReadOnly
                    | Code::QuotaExceeded
                    | Code::Stale
                    | Code::NoData
                    | Code::NotPermitted
                    | Code::InvalidArgument
            ),
            _ => false,
        }
    }

    /// There is no room for what was to be written.
    pub fn is_for_want_of_room(&self) -> bool {
        self.errno().code() == Errno::ENOSPC.code()
    }
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Self {
        Failure::Rule(errno)
    }
}

/// The store's reasons as callers of a file system know them.
fn of_code(code: Code) -> Errno {
    match code {
        Code::NotFound => Errno::ENOENT,
        Code::AlreadyExists => Errno::EEXIST,
        Code::NotADirectory => Errno::ENOTDIR,
        Code::IsADirectory => Errno::EISDIR,
        Code::NotEmpty => Errno::ENOTEMPTY,
        Code::ReadOnly => Errno::EROFS,
        Code::QuotaExceeded | Code::OutOfMemory | Code::LimitExceeded => Errno::ENOSPC,
        Code::Stale => Errno::ESTALE,
        Code::NoData => Errno::ENODATA,
        Code::NotPermitted => Errno::EPERM,
        Code::InvalidArgument => Errno::EINVAL,
        Code::Unsupported => Errno::EOPNOTSUPP,
        Code::InUse => Errno::EBUSY,
        Code::DeadlineExceeded => Errno::ETIMEDOUT,
        Code::Internal
        | Code::BadMemory
        | Code::DeviceUnknown
        | Code::DeviceMismatch
        | Code::Protocol
        | Code::ContentLost
        | Code::Unavailable
        | Code::LeaseEnded => Errno::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_volume_is_enospc_and_no_news() {
        let full = Failure::Refused(Fault::new(Code::QuotaExceeded, "volume v is full"));
        assert!(full.is_for_want_of_room() && full.is_ordinary());
        let lost = Failure::Refused(Fault::new(Code::ContentLost, "gone"));
        assert_eq!(lost.errno().code(), libc::EIO);
        assert!(!lost.is_ordinary());
    }

    #[test]
    fn a_system_error_keeps_its_number() {
        let failure = Failure::system("writing")(io::Error::from_raw_os_error(libc::EFBIG));
        assert_eq!(failure.errno().code(), libc::EFBIG);
        let odd = Failure::system("reading")(io::ErrorKind::UnexpectedEof.into());
        assert_eq!(odd.errno().code(), libc::EIO);
    }
}
