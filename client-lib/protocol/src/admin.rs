//! What the plugin and the command line say to the store over its admin socket, which only root of the node reaches.
//!
//! The plugin keeps nothing between calls: the store is the one place that knows volumes and publishes.

use crate::fault::Fault;
use crate::message::{Tier, Usage};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AdminRequest {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(oneof = "AdminOp", tags = "10, 11, 12, 13, 14, 15, 16, 17, 18, 19")]
    pub op: Option<AdminOp>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum AdminOp {
    #[prost(message, tag = "10")]
    CreateVolume(VolumeSpec),
    #[prost(message, tag = "11")]
    DeleteVolume(DeleteVolume),
    #[prost(message, tag = "12")]
    GetVolume(GetVolume),
    #[prost(message, tag = "13")]
    ListVolumes(ListVolumes),
    #[prost(message, tag = "14")]
    ExpandVolume(ExpandVolume),
    #[prost(message, tag = "15")]
    GetCapacity(GetCapacity),
    #[prost(message, tag = "16")]
    Publish(Publish),
    #[prost(message, tag = "17")]
    Unpublish(Unpublish),
    #[prost(message, tag = "18")]
    ListPublishes(ListPublishes),
    #[prost(message, tag = "19")]
    NodeStatus(NodeStatus),
}

/// A volume to provision. The same spec again answers the same volume; another spec under the same id is
/// `AlreadyExists`; no room for it is `OutOfMemory`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct VolumeSpec {
    #[prost(string, tag = "1")]
    pub id: String,
    /// The name that CSI asked for, for people.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Bytes.
    #[prost(uint64, tag = "3")]
    pub capacity: u64,
    #[prost(enumeration = "Tier", tag = "4")]
    pub tier: i32,
    /// A GPU's UUID, or empty for the one that the first device put comes from.
    #[prost(bytes = "vec", tag = "5")]
    pub device: Vec<u8>,
    #[prost(enumeration = "OnLoss", tag = "6")]
    pub on_loss: i32,
}

/// What a publish does after the volume's content was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum OnLoss {
    /// Refuse, naming when the content was lost: nobody reads an empty directory by mistake.
    Fail = 0,
    /// Publish it empty.
    Empty = 1,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DeleteVolume {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetVolume {
    #[prost(string, tag = "1")]
    pub id: String,
}

/// Volumes in byte order of ids, from just after `after`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListVolumes {
    #[prost(string, tag = "1")]
    pub after: String,
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ExpandVolume {
    #[prost(string, tag = "1")]
    pub id: String,
    /// The new capacity in bytes; smaller than today's is refused.
    #[prost(uint64, tag = "2")]
    pub capacity: u64,
}

/// How much could be provisioned now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct GetCapacity {
    #[prost(enumeration = "Tier", tag = "1")]
    pub tier: i32,
    /// One GPU; empty for any.
    #[prost(bytes = "vec", tag = "2")]
    pub device: Vec<u8>,
}

/// Serves a volume in one place. Without `mount`, one descriptor: the listener. The same publish again replaces the
/// listener and changes nothing else. With `mount`, one descriptor: the mount's `/dev/fuse`, whose INIT was answered; a
/// publish without `mount` that is otherwise the same then brings the listener.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Publish {
    /// Stable name of the publish on this node: derived from the target path.
    #[prost(string, tag = "1")]
    pub publish: String,
    #[prost(string, tag = "2")]
    pub volume: String,
    /// Where it is published, for people and for the plugin's own comparison.
    #[prost(string, tag = "3")]
    pub target: String,
    #[prost(bool, tag = "4")]
    pub read_only: bool,
    /// The pod that it is for, as `namespace/name`; objects name it as their producer.
    #[prost(string, tag = "5")]
    pub pod: String,
    /// More than one publish of the volume may exist at once.
    #[prost(bool, tag = "6")]
    pub shared: bool,
    /// Who may connect: mode bits and group of the socket were set by the binder; this is kept for comparison only.
    #[prost(string, tag = "7")]
    pub arguments: String,
    /// The volume's files are to be seen there.
    #[prost(message, optional, tag = "8")]
    pub mount: Option<Mount>,
}

/// A mounted view.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Mount {
    /// The minor device number of the mount.
    #[prost(uint32, tag = "1")]
    pub connection: u32,
    #[prost(message, optional, tag = "2")]
    pub agreed: Option<crate::view::Agreed>,
}

/// Ends a publish: its listener, its connections and its leases, and the session of its mount with every handle that is
/// open through it, each as if it had been released: the kernel sends no `release` for what an unmount cuts off. When this
/// is answered, neither store nor keeper has a descriptor of it any more. Unknown publishes are fine.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Unpublish {
    #[prost(string, tag = "1")]
    pub publish: String,
    /// Only what keeps the mount busy is closed, for the unmount that comes next: the listener, in the keeper too, and
    /// every connection that came through it, for each holds the mount as its listener does. Nobody connects any more;
    /// the publish, its mount's session and its leases stay. A publish without `mount` brings a listener again.
    #[prost(bool, tag = "2")]
    pub listener_only: bool,
}

/// Publishes of one volume, or of all where `volume` is empty.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ListPublishes {
    #[prost(string, tag = "1")]
    pub volume: String,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct NodeStatus {}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct AdminReply {
    #[prost(uint64, tag = "1")]
    pub id: u64,
    #[prost(oneof = "AdminAnswer", tags = "2, 10, 11, 12, 13, 14, 15")]
    pub answer: Option<AdminAnswer>,
}

#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum AdminAnswer {
    #[prost(message, tag = "2")]
    Fault(Fault),
    #[prost(message, tag = "10")]
    Volume(Volume),
    #[prost(message, tag = "11")]
    Volumes(Volumes),
    #[prost(message, tag = "12")]
    Capacity(Capacity),
    #[prost(message, tag = "13")]
    Publishes(Publishes),
    #[prost(message, tag = "14")]
    Node(Node),
    #[prost(message, tag = "15")]
    Done(crate::message::Done),
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Volume {
    #[prost(message, optional, tag = "1")]
    pub spec: Option<VolumeSpec>,
    #[prost(message, optional, tag = "2")]
    pub usage: Option<Usage>,
    /// When the content was lost, in milliseconds since the epoch; 0 where it was not.
    #[prost(uint64, tag = "3")]
    pub lost_ms: u64,
    /// What is wrong with it, for people; empty where nothing is.
    #[prost(string, tag = "4")]
    pub condition: String,
    /// How many publishes it has.
    #[prost(uint64, tag = "5")]
    pub publishes: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Volumes {
    #[prost(message, repeated, tag = "1")]
    pub volumes: Vec<Volume>,
    #[prost(bool, tag = "2")]
    pub more: bool,
}

/// Bytes that new volumes may take: together, and the largest single one.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Capacity {
    #[prost(uint64, tag = "1")]
    pub available: u64,
    #[prost(uint64, tag = "2")]
    pub maximum: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Publishes {
    #[prost(message, repeated, tag = "1")]
    pub publishes: Vec<Publish>,
    /// Ids of those that nobody serves at the moment: without a listener, or with a mount that no connected mounter has
    /// taken over. The plugin asks here, because it must not touch a mount to find out.
    #[prost(string, repeated, tag = "2")]
    pub unserved: Vec<String>,
}

/// The node as the store sees it.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Node {
    #[prost(message, repeated, tag = "1")]
    pub tiers: Vec<TierStatus>,
    #[prost(message, repeated, tag = "2")]
    pub devices: Vec<Device>,
    /// Why there is no GPU inventory; empty where there is.
    #[prost(string, tag = "3")]
    pub no_inventory: String,
    #[prost(bool, tag = "4")]
    pub keeper_connected: bool,
    /// Descriptors that the keeper holds for the store.
    #[prost(uint64, tag = "5")]
    pub held: u64,
    #[prost(uint64, tag = "6")]
    pub volumes: u64,
    #[prost(uint64, tag = "7")]
    pub publishes: u64,
    #[prost(uint64, tag = "8")]
    pub leases: u64,
    #[prost(uint64, tag = "9")]
    pub connections: u64,
    /// Bytes of the catalogue log.
    #[prost(uint64, tag = "10")]
    pub log_bytes: u64,
    #[prost(uint64, tag = "11")]
    pub uptime_ms: u64,
    #[prost(uint32, tag = "12")]
    pub pid: u32,
    #[prost(string, tag = "13")]
    pub build: String,
}

/// One budget: host memory, or one GPU.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct TierStatus {
    #[prost(enumeration = "Tier", tag = "1")]
    pub tier: i32,
    #[prost(bytes = "vec", tag = "2")]
    pub device: Vec<u8>,
    /// What the store may promise, in bytes.
    #[prost(uint64, tag = "3")]
    pub budget: u64,
    /// The sum of the capacities of volumes on it.
    #[prost(uint64, tag = "4")]
    pub promised: u64,
    /// What objects take.
    #[prost(uint64, tag = "5")]
    pub used: u64,
}

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Device {
    #[prost(bytes = "vec", tag = "1")]
    pub uuid: Vec<u8>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(uint64, tag = "3")]
    pub total: u64,
    #[prost(uint64, tag = "4")]
    pub free: u64,
    /// What is wrong with it; empty where it is healthy.
    #[prost(string, tag = "5")]
    pub condition: String,
}

impl VolumeSpec {
    pub fn tier_or_host(&self) -> Tier {
        Tier::try_from(self.tier).unwrap_or(Tier::Host)
    }
}
