//! The catalogue's records: everything that a store started again must know about sealed data, leases and publishes.
//!
//! A record is a fact that has happened, with every id and time in it, so that replaying the log gives the same state
//! as living through it did. The tags are the log's format: never reuse one.

use gpuvol_protocol::admin::{Publish, VolumeSpec};
use gpuvol_protocol::message::{Allocation, Attribute, Segment};

#[derive(Clone, PartialEq, prost::Message)]
pub struct Record {
    #[prost(
        oneof = "Fact",
        tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28"
    )]
    pub fact: Option<Fact>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Fact {
    #[prost(message, tag = "1")]
    VolumeCreated(VolumeCreated),
    #[prost(string, tag = "2")]
    VolumeDeleted(String),
    #[prost(message, tag = "3")]
    VolumeExpanded(VolumeExpanded),
    #[prost(message, tag = "4")]
    DeviceBound(DeviceBound),
    #[prost(message, tag = "5")]
    Published(Publish),
    #[prost(string, tag = "6")]
    Unpublished(String),
    #[prost(message, tag = "7")]
    LeaseOpened(LeaseOpened),
    #[prost(bytes, tag = "8")]
    LeaseEnded(Vec<u8>),
    #[prost(message, tag = "9")]
    Reserved(Reserved),
    #[prost(message, tag = "10")]
    ReservationDropped(ReservationDropped),
    #[prost(message, tag = "11")]
    Sealed(Sealed),
    #[prost(message, tag = "12")]
    SlabCreated(SlabCreated),
    #[prost(message, tag = "13")]
    Held(Held),
    #[prost(message, tag = "14")]
    HoldsReleased(HoldsReleased),
    #[prost(message, tag = "15")]
    Renamed(Renamed),
    #[prost(message, tag = "16")]
    Unlinked(Unlinked),
    #[prost(message, tag = "17")]
    DirectoryMade(DirectoryMade),
    #[prost(message, tag = "18")]
    Answered(Answered),
    /// Ids up to this one were given out before the log was compacted.
    #[prost(uint64, tag = "19")]
    IdsUsed(u64),
    /// A volume whose content was lost goes on empty, as its class allows.
    #[prost(string, tag = "20")]
    LossAccepted(String),
    #[prost(message, tag = "21")]
    Attached(Attached),
    #[prost(message, tag = "22")]
    DraftMade(DraftMade),
    #[prost(message, tag = "23")]
    DraftGrown(DraftGrown),
    /// Other mounts see the draft from now on.
    #[prost(message, tag = "24")]
    DraftShown(NodeOf),
    /// A draft gives way to what it would have replaced.
    #[prost(message, tag = "25")]
    DraftDropped(NodeOf),
    #[prost(message, tag = "26")]
    BackingNoted(BackingNoted),
    #[prost(message, tag = "27")]
    MetaChanged(MetaChanged),
    #[prost(message, tag = "28")]
    DraftJoined(DraftJoined),
}

impl Fact {
    /// The volume in which somebody sees other names or attributes after it.
    pub fn shows(&self) -> Option<&str> {
        match self {
            Fact::Sealed(sealed) => Some(&sealed.volume),
            Fact::Renamed(renamed) => Some(&renamed.volume),
            Fact::Unlinked(unlinked) => Some(&unlinked.volume),
            Fact::DirectoryMade(made) => Some(&made.volume),
            Fact::DraftMade(made) => Some(&made.volume),
            Fact::DraftShown(node) | Fact::DraftDropped(node) => Some(&node.volume),
            Fact::MetaChanged(changed) => Some(&changed.volume),
            Fact::DraftJoined(joined) => Some(&joined.volume),
            Fact::IdsUsed(_)
            | Fact::VolumeCreated(_)
            | Fact::VolumeDeleted(_)
            | Fact::VolumeExpanded(_)
            | Fact::LossAccepted(_)
            | Fact::DeviceBound(_)
            | Fact::Published(_)
            | Fact::Unpublished(_)
            | Fact::LeaseOpened(_)
            | Fact::LeaseEnded(_)
            | Fact::Reserved(_)
            | Fact::Attached(_)
            | Fact::ReservationDropped(_)
            | Fact::SlabCreated(_)
            | Fact::Held(_)
            | Fact::HoldsReleased(_)
            | Fact::Answered(_)
            | Fact::DraftGrown(_)
            | Fact::BackingNoted(_) => None,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct VolumeCreated {
    #[prost(message, optional, tag = "1")]
    pub spec: Option<VolumeSpec>,
    /// When its content was lost, in milliseconds since the epoch; 0 where it was not.
    #[prost(uint64, tag = "2")]
    pub lost_ms: u64,
    /// Id of the root directory.
    #[prost(uint64, tag = "3")]
    pub root: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub bound_device: Vec<u8>,
    #[prost(message, optional, tag = "5")]
    pub root_meta: Option<Meta>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct VolumeExpanded {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub capacity: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DeviceBound {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(bytes = "vec", tag = "2")]
    pub device: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseOpened {
    #[prost(bytes = "vec", tag = "1")]
    pub lease: Vec<u8>,
    #[prost(string, tag = "2")]
    pub publish: String,
    #[prost(string, tag = "3")]
    pub client: String,
    /// It is a mount's: it has no pipe and ends with its publish.
    #[prost(bool, tag = "4")]
    pub mount: bool,
}

/// Which request of which lease a record answers, so that the request sent again gets the same answer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Origin {
    #[prost(bytes = "vec", tag = "1")]
    pub lease: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub request: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Reserved {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub reservation: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub path: Vec<u8>,
    /// Bytes of quota.
    #[prost(uint64, tag = "5")]
    pub charge: u64,
    #[prost(enumeration = "gpuvol_protocol::message::Tier", tag = "6")]
    pub tier: i32,
    #[prost(bytes = "vec", tag = "7")]
    pub device: Vec<u8>,
    /// The memfd that the store made for it; host tier.
    #[prost(message, optional, tag = "8")]
    pub allocation: Option<Allocation>,
}

/// Memory that a client made for its reservation.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Attached {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub reservation: u64,
    #[prost(message, repeated, tag = "4")]
    pub allocations: Vec<Allocation>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct ReservationDropped {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub reservation: u64,
}

/// An object appeared at a name, replacing what was there.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Sealed {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    /// The reservation that it came from; 0 for a small object.
    #[prost(uint64, tag = "3")]
    pub reservation: u64,
    #[prost(uint64, tag = "4")]
    pub version: u64,
    #[prost(uint64, tag = "5")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub name: Vec<u8>,
    #[prost(enumeration = "gpuvol_protocol::message::Kind", tag = "7")]
    pub kind: i32,
    #[prost(message, repeated, tag = "8")]
    pub allocations: Vec<Allocation>,
    #[prost(message, repeated, tag = "9")]
    pub segments: Vec<Segment>,
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
    #[prost(uint64, tag = "11")]
    pub time_ms: u64,
    #[prost(string, tag = "12")]
    pub producer: String,
    /// Where a small object's bytes lie in a slab.
    #[prost(message, optional, tag = "13")]
    pub slot: Option<Slot>,
    /// In a compacted log: the version has no name any more and only holds keep it.
    #[prost(bool, tag = "14")]
    pub hidden: bool,
    #[prost(message, optional, tag = "15")]
    pub meta: Option<Meta>,
    /// In a compacted log: the name's place in its directory; 0 for the next.
    #[prost(uint64, tag = "16")]
    pub cookie: u64,
    /// It is a symbolic link with this target.
    #[prost(bytes = "vec", tag = "17")]
    pub link: Vec<u8>,
    /// `version` is a draft's node, which this freezes, wherever its name is by now.
    #[prost(bool, tag = "18")]
    pub freezes: bool,
    /// It was written through a mount.
    #[prost(bool, tag = "19")]
    pub written: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Slot {
    #[prost(uint64, tag = "1")]
    pub slab: u64,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// Bytes of content; the slot itself is rounded up.
    #[prost(uint64, tag = "3")]
    pub len: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct SlabCreated {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub slab: u64,
}

/// A lease opened a version; the hold's id is the request's.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Held {
    #[prost(message, optional, tag = "1")]
    pub origin: Option<Origin>,
    #[prost(string, tag = "2")]
    pub volume: String,
    #[prost(uint64, tag = "3")]
    pub version: u64,
    /// It is a file handle that may write.
    #[prost(bool, tag = "4")]
    pub write: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct HoldsReleased {
    #[prost(bytes = "vec", tag = "1")]
    pub lease: Vec<u8>,
    #[prost(uint64, repeated, tag = "2")]
    pub holds: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Renamed {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub from_parent: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub from_name: Vec<u8>,
    #[prost(uint64, tag = "5")]
    pub to_parent: u64,
    #[prost(bytes = "vec", tag = "6")]
    pub to_name: Vec<u8>,
    /// Both names stay and change places.
    #[prost(bool, tag = "7")]
    pub exchange: bool,
    #[prost(int64, tag = "8")]
    pub time_ns: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct Unlinked {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub name: Vec<u8>,
    #[prost(int64, tag = "5")]
    pub time_ns: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct DirectoryMade {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(message, optional, tag = "2")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "3")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub name: Vec<u8>,
    #[prost(uint64, tag = "5")]
    pub directory: u64,
    #[prost(uint64, tag = "6")]
    pub time_ms: u64,
    #[prost(message, optional, tag = "7")]
    pub meta: Option<Meta>,
    /// In a compacted log: the name's place in its directory; 0 for the next.
    #[prost(uint64, tag = "8")]
    pub cookie: u64,
}

/// In a compacted log: a request that was answered before.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answered {
    #[prost(message, optional, tag = "1")]
    pub origin: Option<Origin>,
    #[prost(uint64, tag = "2")]
    pub version: u64,
}

/// What a node has beside its content.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Meta {
    /// Permission bits, with set-id and sticky bits.
    #[prost(uint32, tag = "1")]
    pub mode: u32,
    #[prost(uint32, tag = "2")]
    pub uid: u32,
    #[prost(uint32, tag = "3")]
    pub gid: u32,
    /// Nanoseconds since the epoch.
    #[prost(int64, tag = "4")]
    pub atime_ns: i64,
    #[prost(int64, tag = "5")]
    pub mtime_ns: i64,
    #[prost(int64, tag = "6")]
    pub ctime_ns: i64,
    #[prost(message, repeated, tag = "7")]
    pub xattrs: Vec<Xattr>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Xattr {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

/// A file is about to be written: a draft stands at its name, and what stood there is the draft's base.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DraftMade {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    #[prost(uint64, tag = "3")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub name: Vec<u8>,
    /// The version that it may replace; 0 for a new file.
    #[prost(uint64, tag = "5")]
    pub base: u64,
    #[prost(message, optional, tag = "6")]
    pub meta: Option<Meta>,
    /// Publishes that see it before it is shown.
    #[prost(string, repeated, tag = "7")]
    pub owners: Vec<String>,
    #[prost(string, tag = "8")]
    pub producer: String,
    #[prost(int64, tag = "9")]
    pub time_ns: i64,
    /// In a compacted log: it has no name any more.
    #[prost(bool, tag = "10")]
    pub hidden: bool,
    /// In a compacted log: what else has become of it.
    #[prost(bool, tag = "11")]
    pub shown: bool,
    #[prost(uint64, tag = "12")]
    pub cookie: u64,
    #[prost(message, optional, tag = "13")]
    pub origin: Option<Origin>,
}

/// A draft has memory, or more of it, or is known to begin empty.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DraftGrown {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    /// The memfd's id; 0 while there is none.
    #[prost(uint64, tag = "3")]
    pub memory: u64,
    /// Bytes of quota, all of them.
    #[prost(uint64, tag = "4")]
    pub charge: u64,
    /// It is no copy of what it replaces.
    #[prost(bool, tag = "5")]
    pub truncated: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeOf {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub node: u64,
}

/// A publish has the draft open too.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DraftJoined {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    #[prost(string, tag = "3")]
    pub publish: String,
}

/// The kernel's id of the file behind a handle in passthrough mode.
#[derive(Clone, PartialEq, prost::Message)]
pub struct BackingNoted {
    #[prost(message, optional, tag = "1")]
    pub origin: Option<Origin>,
    #[prost(uint32, tag = "2")]
    pub backing: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub struct MetaChanged {
    #[prost(string, tag = "1")]
    pub volume: String,
    #[prost(uint64, tag = "2")]
    pub node: u64,
    #[prost(message, optional, tag = "3")]
    pub meta: Option<Meta>,
}
