//! What a client and the store say to each other over a volume's socket.
//!
//! One request, one reply, in order. A request carries an id that is unique within its lease; a request that is sent
//! again with the same id after a lost connection has the effect of one.

use crate::fault::Fault;

/// First field of a client's first message; tells a gpuvol peer from anything else that connects.
pub const MAGIC: u32 = 0x4c56_5047; // "GPVL", little-endian

/// Largest object content that travels inline, in bytes.
pub const INLINE_LIMIT: u64 = 64 * 1024;
/// Most inline segment bytes that one object may have; larger metadata goes into an allocation.
pub const INLINE_SEGMENTS_LIMIT: u64 = 512 * 1024;
/// Most allocations of one object, so that one frame carries them all.
pub const MAX_ALLOCATIONS: usize = crate::fdpass::MAX_FDS;
/// Most segments of one object.
pub const MAX_SEGMENTS: usize = 8192;
/// Most attributes of one object, and the most bytes of one attribute's name and value.
pub const MAX_ATTRIBUTES: usize = 64;
pub const MAX_ATTRIBUTE_BYTES: usize = 16 * 1024;

/// What an object's bytes mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Kind {
    /// Uninterpreted bytes.
    Bytes = 0,
    /// An Arrow IPC file.
    Arrow = 1,
    /// A `.npy` file.
    Tensor = 2,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes",
            Kind::Arrow => "arrow",
            Kind::Tensor => "tensor",
        }
    }
}

/// Where an object's body bytes live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Tier {
    Host = 0,
    Gpu = 1,
}

impl Tier {
    pub fn name(self) -> &'static str {
        match self {
            Tier::Host => "host",
            Tier::Gpu => "gpu",
        }
    }
}

/// What stands behind an allocation's descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum AllocationKind {
    Memfd = 0,
    CudaVmm = 1,
}

/// One piece of memory; its descriptor travels in the same message, in the same order.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Allocation {
    /// Unique on the node while its data lives; 0 in a `Seal` by the client that made it.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(enumeration = "AllocationKind", tag = "2")]
    pub kind: i32,
    /// Bytes that a mapping of it covers; for `CudaVmm` a multiple of the device's granularity.
    #[prost(uint64, tag = "3")]
    pub len: u64,
    /// The owning GPU; empty for host memory.
    #[prost(bytes = "vec", tag = "4")]
    pub device: Vec<u8>,
}

/// A byte range of an allocation, or inline bytes. An object's bytes are its segments laid end to end.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Segment {
    /// Index into the message's allocations; meaningless where `inline` is not empty.
    #[prost(uint32, tag = "1")]
    pub allocation: u32,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    #[prost(uint64, tag = "3")]
    pub len: u64,
    /// The bytes themselves; `len` is their number.
    #[prost(bytes = "vec", tag = "4")]
    pub inline: Vec<u8>,
}

/// A name and a value that travel with an object, for its readers.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attribute {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

/// The first message on a connection, by the client.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Hello {
    #[prost(fixed32, tag = "1")]
    pub magic: u32,
    #[prost(uint32, tag = "2")]
    pub min_version: u32,
    #[prost(uint32, tag = "3")]
    pub max_version: u32,
    /// Joins a lease that this client already has; empty asks for a new one.
    #[prost(bytes = "vec", tag = "4")]
    pub lease: Vec<u8>,
    /// Who is asking, for people: program name and pid.
    #[prost(string, tag = "5")]
    pub client: String,
}

/// The store's answer to [`Hello`]. With a new lease it carries one descriptor, the lease pipe's write end: the lease
/// ends when the last copy of it is closed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Welcome {
    #[prost(uint32, tag = "1")]
    pub version: u32,
    #[prost(bytes = "vec", tag = "2")]
    pub lease: Vec<u8>,
    #[prost(string, tag = "3")]
    pub volume: String,
    #[prost(bool, tag = "4")]
    pub read_only: bool,
    /// Largest frame that the store reads, in bytes.
    #[prost(uint32, tag = "5")]
    pub max_frame: u32,
    /// Largest object content that may travel inline, in bytes.
    #[prost(uint64, tag = "6")]
    pub inline_limit: u64,
    #[prost(enumeration = "Tier", tag = "7")]
    pub tier: i32,
    /// The volume's GPU; empty on a host volume, and on an `auto` volume before its first device put.
    #[prost(bytes = "vec", tag = "8")]
    pub device: Vec<u8>,
    #[prost(message, optional, tag = "9")]
    pub fault: Option<Fault>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Request {
    /// Unique within the lease, never 0.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Holds that the client has let go of since its last request.
    #[prost(uint64, repeated, tag = "2")]
    pub released: Vec<u64>,
    #[prost(oneof = "Op", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22")]
    pub op: Option<Op>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Op {
    #[prost(message, tag = "10")]
    Create(Create),
    #[prost(message, tag = "11")]
    Seal(Seal),
    #[prost(message, tag = "12")]
    Abort(Abort),
    #[prost(message, tag = "13")]
    PutInline(PutInline),
    #[prost(message, tag = "14")]
    Open(Open),
    #[prost(message, tag = "15")]
    Stat(Stat),
    #[prost(message, tag = "16")]
    List(List),
    #[prost(message, tag = "17")]
    Rename(Rename),
    #[prost(message, tag = "18")]
    Unlink(Unlink),
    #[prost(message, tag = "19")]
    Mkdir(Mkdir),
    #[prost(message, tag = "20")]
    Statfs(Statfs),
    /// Nothing but the `released` list and a round trip.
    #[prost(message, tag = "21")]
    Ping(Ping),
    #[prost(message, tag = "22")]
    Attach(Attach),
}

/// Reserves quota for an object. Host tier: the store answers with a memfd of that size, its pages already there.
/// GPU tier: the client allocates device memory itself and brings it with [`Seal`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Create {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Bytes: of content on the host tier; on the GPU tier what allocations, in whole granules, and inline segments will
    /// take together.
    #[prost(uint64, tag = "2")]
    pub size: u64,
    #[prost(enumeration = "Tier", tag = "3")]
    pub tier: i32,
    /// The GPU of a GPU-tier object.
    #[prost(bytes = "vec", tag = "4")]
    pub device: Vec<u8>,
}

/// Gives memory that the client made to its reservation, before it is filled: the store checks it and hands it to the
/// keeper while the client still copies. Descriptors: one for each entry of `allocations`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Attach {
    #[prost(uint64, tag = "1")]
    pub reservation: u64,
    #[prost(message, repeated, tag = "2")]
    pub allocations: Vec<Allocation>,
}

/// Publishes a reservation's object at its path, atomically. Descriptors: one for each entry of `allocations`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Seal {
    #[prost(uint64, tag = "1")]
    pub reservation: u64,
    #[prost(enumeration = "Kind", tag = "2")]
    pub kind: i32,
    /// Memory that the client made and did not attach before. In the segments' numbering the reservation's own memfd
    /// comes first, then what was attached, then these.
    #[prost(message, repeated, tag = "3")]
    pub allocations: Vec<Allocation>,
    #[prost(message, repeated, tag = "4")]
    pub segments: Vec<Segment>,
    #[prost(message, repeated, tag = "5")]
    pub attributes: Vec<Attribute>,
    /// Fail with `AlreadyExists` instead of replacing what is at the path.
    #[prost(bool, tag = "6")]
    pub exclusive: bool,
}

/// Gives a reservation back unsealed.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Abort {
    #[prost(uint64, tag = "1")]
    pub reservation: u64,
}

/// Creates and seals a small object in one round trip.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PutInline {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    #[prost(enumeration = "Kind", tag = "2")]
    pub kind: i32,
    #[prost(bytes = "vec", tag = "3")]
    pub content: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub attributes: Vec<Attribute>,
    #[prost(bool, tag = "5")]
    pub exclusive: bool,
}

/// Opens an object: its metadata, and descriptors for its allocations, held by the lease until released.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Open {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// 0 for whatever is at the path.
    #[prost(uint64, tag = "2")]
    pub version: u64,
    /// How long the store waits for the path to be sealed; it may answer `DeadlineExceeded` earlier than asked.
    #[prost(uint64, tag = "3")]
    pub wait_ms: u64,
    /// Only host memory will do: what is in GPU memory is copied to the host.
    #[prost(bool, tag = "4")]
    pub host_only: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Stat {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
}

/// Lists a directory in byte order of names, from just after `after`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct List {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub after: Vec<u8>,
    /// Most entries wanted; the store has a limit of its own.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
}

/// Moves an object or a directory; an object at the destination is replaced atomically.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Rename {
    #[prost(bytes = "vec", tag = "1")]
    pub from: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub to: Vec<u8>,
    #[prost(bool, tag = "3")]
    pub no_replace: bool,
}

/// Hides an object; its memory is freed when the last lease on it ends. Or removes an empty directory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unlink {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// The path is an empty directory.
    #[prost(bool, tag = "2")]
    pub directory: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Mkdir {
    #[prost(bytes = "vec", tag = "1")]
    pub path: Vec<u8>,
    /// Also make missing parents, and be content where the directory exists.
    #[prost(bool, tag = "2")]
    pub parents: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Statfs {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Ping {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Reply {
    /// The request's id.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(oneof = "Answer", tags = "2, 10, 11, 12, 13, 14, 15, 16")]
    pub answer: Option<Answer>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum Answer {
    #[prost(message, tag = "2")]
    Fault(Fault),
    #[prost(message, tag = "10")]
    Created(Created),
    #[prost(message, tag = "11")]
    Sealed(Sealed),
    #[prost(message, tag = "12")]
    Opened(Opened),
    #[prost(message, tag = "13")]
    Entry(Entry),
    #[prost(message, tag = "14")]
    Entries(Entries),
    #[prost(message, tag = "15")]
    Usage(Usage),
    #[prost(message, tag = "16")]
    Done(Done),
}

/// A reservation; with a descriptor for its memfd on the host tier.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Created {
    #[prost(uint64, tag = "1")]
    pub reservation: u64,
    /// Bytes of quota taken; on the host tier rounded up to pages.
    #[prost(uint64, tag = "2")]
    pub reserved: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Sealed {
    #[prost(uint64, tag = "1")]
    pub version: u64,
}

/// An open object. Either `content` holds all its bytes (small objects), or `segments` and `allocations` describe them,
/// with one descriptor for each allocation and a hold that pins them.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Opened {
    #[prost(message, optional, tag = "1")]
    pub entry: Option<Entry>,
    /// Pins the version until the client releases it; 0 with inline content.
    #[prost(uint64, tag = "2")]
    pub hold: u64,
    #[prost(bytes = "vec", tag = "3")]
    pub content: Vec<u8>,
    #[prost(message, repeated, tag = "4")]
    pub allocations: Vec<Allocation>,
    #[prost(message, repeated, tag = "5")]
    pub segments: Vec<Segment>,
    /// The memory is a replica: the object itself is in GPU memory.
    #[prost(bool, tag = "6")]
    pub replica: bool,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entry {
    /// The last component of its path; empty for the root.
    #[prost(bytes = "vec", tag = "1")]
    pub name: Vec<u8>,
    #[prost(bool, tag = "2")]
    pub directory: bool,
    #[prost(enumeration = "Kind", tag = "3")]
    pub kind: i32,
    /// Bytes of content.
    #[prost(uint64, tag = "4")]
    pub size: u64,
    #[prost(uint64, tag = "5")]
    pub version: u64,
    #[prost(enumeration = "Tier", tag = "6")]
    pub tier: i32,
    /// The GPU of a GPU-tier object.
    #[prost(bytes = "vec", tag = "7")]
    pub device: Vec<u8>,
    /// When it was sealed or made, in milliseconds since the epoch.
    #[prost(uint64, tag = "8")]
    pub time_ms: u64,
    /// Who sealed it, for people.
    #[prost(string, tag = "9")]
    pub producer: String,
    #[prost(message, repeated, tag = "10")]
    pub attributes: Vec<Attribute>,
    /// A symbolic link's target; empty for everything else.
    #[prost(bytes = "vec", tag = "11")]
    pub link: Vec<u8>,
    /// It was written as a file: what its bytes are is its reader's to find out.
    #[prost(bool, tag = "12")]
    pub written: bool,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Entries {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// There are more after the last one.
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// A volume's capacity and what takes it, in bytes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Usage {
    #[prost(uint64, tag = "1")]
    pub capacity: u64,
    /// Taken by sealed objects, reservations and versions that a lease still pins.
    #[prost(uint64, tag = "2")]
    pub used: u64,
    /// The part of `used` in GPU memory.
    #[prost(uint64, tag = "3")]
    pub gpu: u64,
    /// The part of `used` that only leases keep: unlinked or replaced, still open somewhere.
    #[prost(uint64, tag = "4")]
    pub pinned: u64,
    /// The part of `used` that is reserved and not sealed yet.
    #[prost(uint64, tag = "5")]
    pub reserved: u64,
    /// Objects and directories, and the most that the volume takes.
    #[prost(uint64, tag = "6")]
    pub entries: u64,
    #[prost(uint64, tag = "7")]
    pub max_entries: u64,
    #[prost(uint64, tag = "8")]
    pub leases: u64,
    #[prost(enumeration = "Tier", tag = "9")]
    pub tier: i32,
    /// The volume's GPU, where it is bound to one.
    #[prost(bytes = "vec", tag = "10")]
    pub device: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Done {}
