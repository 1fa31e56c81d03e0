//! What the store and the mounter say to the keeper, which only holds descriptors.

use crate::fault::Fault;

/// Most names in one `Drop`, and most descriptors in one page of a `List`.
pub const PAGE: usize = crate::fdpass::MAX_FDS;
/// Longest name, in bytes.
pub const MAX_KEY: usize = 128;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeeperRequest {
    #[prost(oneof = "KeeperOp", tags = "1, 2, 3")]
    pub op: Option<KeeperOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum KeeperOp {
    #[prost(message, tag = "1")]
    Hold(Hold),
    #[prost(message, tag = "2")]
    Drop(Drop),
    #[prost(message, tag = "3")]
    List(List),
}

/// Keeps a descriptor under each name; what was under a name before is closed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hold {
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
}

/// Closes descriptors. Unknown names are fine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Drop {
    #[prost(string, repeated, tag = "1")]
    pub keys: Vec<String>,
}

/// Names with `prefix` in byte order from just after `after`, and a copy of each one's descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct List {
    #[prost(string, tag = "1")]
    pub after: String,
    #[prost(string, tag = "2")]
    pub prefix: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct KeeperReply {
    #[prost(message, optional, tag = "1")]
    pub fault: Option<Fault>,
    /// With `List`: one name for each descriptor in the message.
    #[prost(string, repeated, tag = "2")]
    pub keys: Vec<String>,
    #[prost(bool, tag = "3")]
    pub more: bool,
    /// How many descriptors the keeper holds.
    #[prost(uint64, tag = "4")]
    pub held: u64,
}
