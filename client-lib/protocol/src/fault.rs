//! Errors as they travel: a stable code, a message for people, and the numbers behind it.

use crate::types::TypeError;

/// What went wrong, in a form that every boundary (errno, gRPC status, C code, Python exception) maps exhaustively.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Code {
    /// A bug or an unknown code of a newer peer.
    Internal = 0,
    /// The request contradicts itself or a rule; repeating it cannot help.
    InvalidArgument = 1,
    NotFound = 2,
    AlreadyExists = 3,
    NotADirectory = 4,
    IsADirectory = 5,
    NotEmpty = 6,
    /// The volume is published read-only here.
    ReadOnly = 7,
    /// The volume's capacity does not hold it.
    QuotaExceeded = 8,
    /// The node does not have the memory, whatever the volume's capacity.
    OutOfMemory = 9,
    /// A limit of this connection, lease or volume was reached.
    LimitExceeded = 10,
    /// The deadline passed before what was waited for happened.
    DeadlineExceeded = 11,
    /// A descriptor that came along is not the memory that it was said to be.
    BadMemory = 12,
    /// No such GPU on this node.
    DeviceUnknown = 13,
    /// The volume lives on another GPU, or the asker cannot reach the object's GPU.
    DeviceMismatch = 14,
    /// The peer broke the protocol; the connection ends.
    Protocol = 15,
    /// The volume or publish is still in use.
    InUse = 16,
    /// The volume's content was lost, by a reboot or by the loss of keeper and store together.
    ContentLost = 17,
    /// The store, the keeper or another part of the node cannot be reached.
    Unavailable = 18,
    /// Known, and not offered.
    Unsupported = 19,
    /// The connection's lease ended; a new connection gets a new one.
    LeaseEnded = 20,
    /// The node is another version's now: look the name up again.
    Stale = 21,
    /// No such attribute.
    NoData = 22,
    /// The volume does not do this, for anybody.
    NotPermitted = 23,
}

/// An error reply.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Fault {
    #[prost(enumeration = "Code", tag = "1")]
    pub code: i32,
    /// For people: names path, volume, sizes and the next step.
    #[prost(string, tag = "2")]
    pub message: String,
    /// Bytes asked for; with `QuotaExceeded` and `OutOfMemory`.
    #[prost(uint64, tag = "3")]
    pub need: u64,
    /// Bytes free when it failed.
    #[prost(uint64, tag = "4")]
    pub free: u64,
    /// The limit in bytes.
    #[prost(uint64, tag = "5")]
    pub limit: u64,
}

impl Fault {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), ..Self::default() }
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Fault {}

impl From<TypeError> for Fault {
    fn from(error: TypeError) -> Self {
        Fault::new(Code::InvalidArgument, error.to_string())
    }
}
