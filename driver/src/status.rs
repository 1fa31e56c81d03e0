//! Errors as gRPC statuses: one exhaustive map for each error type.
//!
//! A status has a code and a message; its details stay empty, as the specification wants. The message holds the whole
//! chain of causes, because it is all that a pod's events show.

use std::error::Error;

use gpuvol_protocol::{Code, TypeError};
use tonic::Status;

use crate::capabilities::AccessError;
use crate::capacity::RangeError;
use crate::op_guard::Pending;
use crate::parameters::ParameterError;
use crate::publish::PublishError;
use crate::store_client::StoreError;
use crate::target::TargetError;

/// A fault's code, as CSI wants it from Create, Delete, Publish and Expand alike.
pub fn grpc_code(code: Code) -> tonic::Code {
    match code {
        Code::Internal | Code::BadMemory | Code::Protocol => tonic::Code::Internal,
        Code::InvalidArgument | Code::Unsupported => tonic::Code::InvalidArgument,
        Code::NotFound | Code::Stale | Code::NoData => tonic::Code::NotFound,
        Code::AlreadyExists => tonic::Code::AlreadyExists,
        Code::NotADirectory
        | Code::IsADirectory
        | Code::NotEmpty
        | Code::ReadOnly
        | Code::DeviceMismatch
        | Code::InUse
        | Code::ContentLost
        | Code::NotPermitted => tonic::Code::FailedPrecondition,
        // No room here. The provisioner then looks for another node, which is right for an unknown GPU too.
        Code::QuotaExceeded | Code::OutOfMemory | Code::LimitExceeded | Code::DeviceUnknown => {
            tonic::Code::ResourceExhausted
        }
        Code::DeadlineExceeded => tonic::Code::DeadlineExceeded,
        Code::Unavailable | Code::LeaseEnded => tonic::Code::Unavailable,
    }
}

/// A status with the error and all its causes.
pub fn status(code: tonic::Code, error: &dyn Error) -> Status {
    let mut message = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Some errors of other crates repeat their cause.
        if !message.ends_with(&text) {
            message.push_str(": ");
            message.push_str(&text);
        }
        cause = error.source();
    }
    Status::new(code, message)
}

fn store_code(error: &StoreError) -> tonic::Code {
    match error {
        StoreError::Fault(fault) => grpc_code(Code::try_from(fault.code).unwrap_or(Code::Internal)),
        StoreError::Unreachable { .. } | StoreError::Broken { .. } => tonic::Code::Unavailable,
        StoreError::Late { .. } => tonic::Code::DeadlineExceeded,
        StoreError::Unexpected { .. } => tonic::Code::Internal,
    }
}

fn target_code(error: &TargetError) -> tonic::Code {
    match error {
        TargetError::Form { .. } | TargetError::Outside { .. } | TargetError::Link { .. } => {
            tonic::Code::InvalidArgument
        }
        TargetError::NoParent { .. } => tonic::Code::FailedPrecondition,
        TargetError::Open { .. } => tonic::Code::Internal,
    }
}

impl From<StoreError> for Status {
    fn from(error: StoreError) -> Self {
        status(store_code(&error), &error)
    }
}

impl From<TargetError> for Status {
    fn from(error: TargetError) -> Self {
        status(target_code(&error), &error)
    }
}

impl From<PublishError> for Status {
    fn from(error: PublishError) -> Self {
        let code = match &error {
            PublishError::Target(error) => target_code(error),
            PublishError::Store(error) => store_code(error),
            PublishError::OtherArguments { .. } => tonic::Code::AlreadyExists,
            PublishError::Elsewhere { .. }
            | PublishError::Occupied { .. }
            | PublishError::NotEmpty { .. }
            | PublishError::Unreachable(_) => tonic::Code::FailedPrecondition,
            PublishError::Unserved { .. } => tonic::Code::Unavailable,
            PublishError::System { source, .. } if source.kind() == std::io::ErrorKind::TimedOut => {
                tonic::Code::DeadlineExceeded
            }
            PublishError::System { .. } => tonic::Code::Internal,
        };
        status(code, &error)
    }
}

impl From<RangeError> for Status {
    fn from(error: RangeError) -> Self {
        status(tonic::Code::OutOfRange, &error)
    }
}

impl From<ParameterError> for Status {
    fn from(error: ParameterError) -> Self {
        status(tonic::Code::InvalidArgument, &error)
    }
}

impl From<AccessError> for Status {
    fn from(error: AccessError) -> Self {
        status(tonic::Code::InvalidArgument, &error)
    }
}

impl From<Pending> for Status {
    fn from(error: Pending) -> Self {
        status(tonic::Code::Aborted, &error)
    }
}

/// An id that no volume can have is the id of a volume that does not exist.
pub fn unknown_volume(error: &TypeError) -> Status {
    status(tonic::Code::NotFound, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvol_protocol::Fault;

    #[test]
    fn faults_become_the_codes_that_sidecars_act_on() {
        for (code, want) in [
            (Code::InUse, tonic::Code::FailedPrecondition),
            (Code::OutOfMemory, tonic::Code::ResourceExhausted),
            (Code::AlreadyExists, tonic::Code::AlreadyExists),
            (Code::NotFound, tonic::Code::NotFound),
            (Code::Unavailable, tonic::Code::Unavailable),
            (Code::ContentLost, tonic::Code::FailedPrecondition),
        ] {
            let status = Status::from(StoreError::Fault(Fault::new(code, "text")));
            assert_eq!((status.code(), status.message()), (want, "text"));
            assert!(status.details().is_empty());
        }
        let newer = Fault { code: 9999, ..Fault::default() };
        assert_eq!(Status::from(StoreError::Fault(newer)).code(), tonic::Code::Internal);
    }

    #[test]
    fn the_message_holds_the_causes() {
        let source = std::io::Error::from_raw_os_error(libc::ECONNREFUSED);
        let status = Status::from(StoreError::Unreachable { path: "/s/admin.sock".into(), source });
        assert_eq!(status.code(), tonic::Code::Unavailable);
        assert!(status.message().contains("/s/admin.sock"), "{}", status.message());
        assert!(status.message().contains("refused"), "{}", status.message());
    }
}
