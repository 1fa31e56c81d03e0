//! What the mounter asks the store: the files of a published volume, by node.
//!
//! A node is a directory, a symbolic link, or one version of a file; its id never comes back for another. A file that
//! is being written is a *draft*: a node of its own, which the store freezes into a sealed object when its last writer
//! closes it. Whoever opens a sealed file for writing is told [`Opened::stale`] and finds the draft's node at the
//! file's name.
//!
//! Every request carries the kernel's id of the FUSE request that it is for. What a request made is remembered under
//! that id, so that the same request, sent again by a mounter that was replaced, has the effect of one. The id of the
//! request that opened a file is the file's handle.

use crate::fault::Fault;
use crate::message::{Allocation, Done, Segment, Usage};

/// The root directory's node in every volume, as FUSE wants it; the store knows it by another id.
pub const ROOT: u64 = 1;
/// Bytes of the memfd in which a mounter notes what its successor must know of an append that was not answered.
pub const JOURNAL_BYTES: u64 = 4096;
/// Where in the journal's memfd, behind the mounter's part, the volume's clock is: 8 bytes, little-endian, which the store
/// changes with every change of the volume's names and attributes. What a mounter was told of a node that is no draft
/// stays true for as long as the clock shows what it showed before the mounter asked.
pub const CLOCK_OFFSET: u64 = JOURNAL_BYTES;
pub const CLOCK_BYTES: u64 = 8;
/// Longest target of a symbolic link, `PATH_MAX` of Linux with its end.
pub const MAX_LINK: usize = 4095;
/// Most bytes of one extended attribute's value, and of all of one node's names and values.
pub const MAX_XATTR_VALUE: usize = 64 * 1024;
pub const MAX_XATTRS: usize = 128 * 1024;

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ViewRequest {
    /// The published mount that it is for; empty with [`Sessions`].
    #[prost(string, tag = "1")]
    pub publish: String,
    /// The kernel's request id without the bit that marks a resent one; 0 for what is safe to repeat.
    #[prost(uint64, tag = "2")]
    pub unique: u64,
    #[prost(
        oneof = "ViewOp",
        tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30"
    )]
    pub op: Option<ViewOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ViewOp {
    #[prost(message, tag = "10")]
    Sessions(Sessions),
    #[prost(message, tag = "11")]
    Lookup(Lookup),
    #[prost(message, tag = "12")]
    GetNode(GetNode),
    #[prost(message, tag = "13")]
    ReadDirectory(ReadDirectory),
    #[prost(message, tag = "14")]
    OpenFile(OpenFile),
    #[prost(message, tag = "15")]
    CreateFile(CreateFile),
    #[prost(message, tag = "16")]
    Describe(Describe),
    #[prost(message, tag = "17")]
    Backing(Backing),
    #[prost(message, tag = "18")]
    Reserve(Reserve),
    #[prost(message, tag = "19")]
    Flush(Flush),
    #[prost(message, tag = "20")]
    Release(Release),
    #[prost(message, tag = "21")]
    SetAttributes(SetAttributes),
    #[prost(message, tag = "22")]
    MakeDirectory(MakeDirectory),
    #[prost(message, tag = "23")]
    MakeLink(MakeLink),
    #[prost(message, tag = "24")]
    ReadLink(ReadLink),
    #[prost(message, tag = "25")]
    Remove(Remove),
    #[prost(message, tag = "26")]
    RenameNode(RenameNode),
    #[prost(message, tag = "27")]
    GetXattr(GetXattr),
    #[prost(message, tag = "28")]
    ListXattrs(ListXattrs),
    #[prost(message, tag = "29")]
    SetXattr(SetXattr),
    #[prost(message, tag = "30")]
    StatVolume(StatVolume),
}

/// Which mounts to serve. Answered as soon as they differ from `known`, or after `wait_ms`. Descriptors: for each
/// answered session that is not in `known`, its `/dev/fuse` and then its journal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sessions {
    #[prost(string, repeated, tag = "1")]
    pub known: Vec<String>,
    #[prost(uint64, tag = "2")]
    pub wait_ms: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Lookup {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetNode {
    #[prost(uint64, tag = "1")]
    pub node: u64,
}

/// A directory's names in the order of their cookies, from just after `after`. A name keeps its cookie for as long as it
/// is in the directory, and later names have greater ones. `.` and `..` are the mounter's.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadDirectory {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    /// 0 for the beginning.
    #[prost(uint64, tag = "2")]
    pub after: u64,
    #[prost(uint32, tag = "3")]
    pub limit: u32,
}

/// Opens a file; the request's `unique` becomes the handle.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenFile {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(bool, tag = "2")]
    pub write: bool,
    /// Only with `write`: the draft begins empty.
    #[prost(bool, tag = "3")]
    pub truncate: bool,
    /// The mount can read from a file of the kernel's own (FUSE passthrough).
    #[prost(bool, tag = "4")]
    pub passthrough: bool,
}

/// Makes a file and opens it, or opens the one that is there unless `exclusive`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CreateFile {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// Permission bits, the caller's umask applied.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    #[prost(bool, tag = "6")]
    pub exclusive: bool,
    #[prost(bool, tag = "7")]
    pub write: bool,
    #[prost(bool, tag = "8")]
    pub truncate: bool,
    /// Make it and do not open it (`mknod`): an empty file.
    #[prost(bool, tag = "9")]
    pub closed: bool,
}

/// What an open handle is, for a mounter that did not open it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Describe {
    #[prost(uint64, tag = "1")]
    pub handle: u64,
}

/// Notes the kernel's id of the file behind a node that is open in passthrough mode, before that mode is first used.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Backing {
    #[prost(uint64, tag = "1")]
    pub handle: u64,
    #[prost(uint32, tag = "2")]
    pub backing: u32,
}

/// Makes room for a draft's first `size` bytes, and the draft's memory where it has none yet (a copy of what it
/// replaces, unless it was opened with `truncate`). Answers [`Opened`] with the memory's descriptor.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Reserve {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(uint64, tag = "2")]
    pub size: u64,
    /// More than `size`, where there is room, for what will come next.
    #[prost(uint64, tag = "3")]
    pub ahead: u64,
}

/// A descriptor of the file was closed, or synchronised: what was written becomes visible to other mounts' opens.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Flush {
    #[prost(uint64, tag = "1")]
    pub handle: u64,
}

/// A handle is closed for good. The last writer's freezes the draft.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Release {
    #[prost(uint64, tag = "1")]
    pub handle: u64,
    /// The last write through it failed for want of room: a draft that nobody else has seen gives way to what it would
    /// have replaced.
    #[prost(bool, tag = "2")]
    pub failed: bool,
}

/// Changes what is given. A new size for a sealed file is answered `Stale`, and the draft is at the file's name.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetAttributes {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(uint32, optional, tag = "2")]
    pub mode: Option<u32>,
    #[prost(uint32, optional, tag = "3")]
    pub uid: Option<u32>,
    #[prost(uint32, optional, tag = "4")]
    pub gid: Option<u32>,
    #[prost(uint64, optional, tag = "5")]
    pub size: Option<u64>,
    /// Nanoseconds since the epoch.
    #[prost(int64, optional, tag = "6")]
    pub atime_ns: Option<i64>,
    #[prost(int64, optional, tag = "7")]
    pub mtime_ns: Option<i64>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MakeDirectory {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct MakeLink {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    pub target: Vec<u8>,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ReadLink {
    #[prost(uint64, tag = "1")]
    pub node: u64,
}

/// Takes a name away: an empty directory's, or a file's or link's.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Remove {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub directory: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct RenameNode {
    #[prost(uint64, tag = "1")]
    pub parent: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    #[prost(uint64, tag = "3")]
    pub new_parent: u64,
    #[prost(bytes = "vec", tag = "4")]
    pub new_name: Vec<u8>,
    #[prost(bool, tag = "5")]
    pub no_replace: bool,
    #[prost(bool, tag = "6")]
    pub exchange: bool,
}

/// An extended attribute's value. `user.gpuvol.*` are the store's own: `path`, `kind`, `tier`, `device`, `version`,
/// `producer`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetXattr {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListXattrs {
    #[prost(uint64, tag = "1")]
    pub node: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SetXattr {
    #[prost(uint64, tag = "1")]
    pub node: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub name: Vec<u8>,
    /// None takes the attribute away.
    #[prost(bytes = "vec", optional, tag = "3")]
    pub value: Option<Vec<u8>>,
    /// It must not be there yet.
    #[prost(bool, tag = "4")]
    pub create: bool,
    /// It must be there.
    #[prost(bool, tag = "5")]
    pub replace: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct StatVolume {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ViewReply {
    #[prost(oneof = "ViewAnswer", tags = "2, 10, 11, 12, 13, 14, 15, 16")]
    pub answer: Option<ViewAnswer>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ViewAnswer {
    #[prost(message, tag = "2")]
    Fault(Fault),
    #[prost(message, tag = "10")]
    Done(Done),
    /// To lookups, `GetNode`, `SetAttributes`, `MakeDirectory`, `MakeLink`.
    #[prost(message, tag = "11")]
    Node(Node),
    #[prost(message, tag = "12")]
    Names(Names),
    /// To `OpenFile`, `CreateFile`, `Describe`, `Reserve`.
    #[prost(message, tag = "13")]
    Opened(Opened),
    #[prost(message, tag = "14")]
    Sessions(SessionList),
    /// To `ReadLink`, `GetXattr`, and `ListXattrs` (names, each followed by NUL).
    #[prost(message, tag = "15")]
    Value(Value),
    #[prost(message, tag = "16")]
    Usage(Usage),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum NodeKind {
    File = 0,
    Directory = 1,
    Link = 2,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Node {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(enumeration = "NodeKind", tag = "2")]
    pub kind: i32,
    /// Permission bits, with set-id and sticky bits.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    /// Bytes of content.
    #[prost(uint64, tag = "6")]
    pub size: u64,
    /// Bytes of memory that it takes.
    #[prost(uint64, tag = "7")]
    pub allocated: u64,
    /// Nanoseconds since the epoch.
    #[prost(int64, tag = "8")]
    pub atime_ns: i64,
    #[prost(int64, tag = "9")]
    pub mtime_ns: i64,
    #[prost(int64, tag = "10")]
    pub ctime_ns: i64,
    /// 0 for what has no name any more.
    #[prost(uint32, tag = "11")]
    pub links: u32,
    /// It is being written: size and times change.
    #[prost(bool, tag = "12")]
    pub draft: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Name {
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub cookie: u64,
    #[prost(message, optional, tag = "3")]
    pub node: Option<Node>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Names {
    #[prost(message, repeated, tag = "1")]
    pub names: Vec<Name>,
    #[prost(bool, tag = "2")]
    pub more: bool,
    /// The node of the directory that this one is in.
    #[prost(uint64, tag = "3")]
    pub parent: u64,
}

/// An open file. A sealed small file comes whole in `content`. Any other sealed file comes as segments over host memory
/// with a descriptor for each allocation. A draft comes with its memory's descriptor once it has memory, and until then
/// with what it will be a copy of (`content`, or `segments` and descriptors).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Opened {
    #[prost(message, optional, tag = "1")]
    pub node: Option<Node>,
    /// Nothing was opened: look the name up again, and open the node that is there.
    #[prost(bool, tag = "2")]
    pub stale: bool,
    #[prost(bytes = "vec", tag = "3")]
    pub content: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub allocations: Vec<Allocation>,
    #[prost(message, repeated, tag = "5")]
    pub segments: Vec<Segment>,
    /// This handle may write.
    #[prost(bool, tag = "6")]
    pub write: bool,
    /// The draft has memory of its own: the only descriptor. Its size is the file's size.
    #[prost(bool, tag = "7")]
    pub memory: bool,
    /// With `memory`: how many bytes it may grow to.
    #[prost(uint64, tag = "8")]
    pub reserved: u64,
    /// Open it in passthrough mode, over the only descriptor; all handles of a node in one mount are in the same mode.
    #[prost(bool, tag = "9")]
    pub passthrough: bool,
    /// The kernel's id for that descriptor, where an open before this one has made it.
    #[prost(uint32, tag = "10")]
    pub backing: u32,
    /// The handle, as in the request that opened it.
    #[prost(uint64, tag = "11")]
    pub handle: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SessionList {
    #[prost(message, repeated, tag = "1")]
    pub sessions: Vec<Session>,
}

/// One published mount.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Session {
    #[prost(string, tag = "1")]
    pub publish: String,
    #[prost(string, tag = "2")]
    pub volume: String,
    #[prost(bool, tag = "3")]
    pub read_only: bool,
    /// The minor device number of its mount: its name below `/sys/fs/fuse/connections`.
    #[prost(uint32, tag = "4")]
    pub connection: u32,
    /// What was agreed with the kernel.
    #[prost(message, optional, tag = "5")]
    pub agreed: Option<Agreed>,
    /// Backing ids in use, as `Backing` noted them.
    #[prost(uint32, repeated, tag = "6")]
    pub backings: Vec<u32>,
}

/// What a FUSE connection's INIT settled, once and for all of its mounters.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Agreed {
    #[prost(uint32, tag = "1")]
    pub minor: u32,
    /// Both words of INIT's flags.
    #[prost(uint64, tag = "2")]
    pub flags: u64,
    #[prost(uint32, tag = "3")]
    pub max_readahead: u32,
    #[prost(uint32, tag = "4")]
    pub max_write: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Value {
    #[prost(bytes = "vec", tag = "1")]
    pub value: Vec<u8>,
}
