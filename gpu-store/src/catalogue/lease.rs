//! Who holds what until its pipe hangs up.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use gpuvol_protocol::VolumeId;

/// How many answered requests of one lease are remembered, so that one sent again has one effect. A client has at most
/// a few dozen connections with one request under way on each.
const REMEMBERED: usize = 256;

/// A lease's id: random, so that it is also the capability to join the lease.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub [u8; 16]);

impl LeaseId {
    pub fn random() -> Self {
        Self(rand::random())
    }

    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The keeper's name for the lease's pipe.
    pub fn key(self) -> String {
        format!("lease/{:032x}", u128::from_be_bytes(self.0))
    }

    pub fn from_key(key: &str) -> Option<Self> {
        let hex = key.strip_prefix("lease/")?;
        u128::from_str_radix(hex, 16).ok().map(|n| Self(n.to_be_bytes()))
    }
}

// The id is a secret between one client and the store: logs show enough of it to tell leases apart.
impl std::fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:02x}{:02x}…", self.0[0], self.0[1])
    }
}

/// One client's hold on what it has open.
#[derive(Debug)]
pub struct Lease {
    pub publish: String,
    pub volume: VolumeId,
    pub client: String,
    /// Hold id to the version that it pins.
    pub holds: BTreeMap<u64, u64>,
    /// Reservation ids by the request that made them.
    pub reservations: BTreeMap<u64, u64>,
    /// It is a mount's: its holds are file handles, it has no pipe, and it ends with its publish.
    pub mount: bool,
    /// Handles that may write.
    pub writing: BTreeSet<u64>,
    /// Handles in passthrough mode, and the kernel's id of the file behind each.
    pub backings: BTreeMap<u64, u32>,
    answered: VecDeque<(u64, u64)>,
}

impl Lease {
    pub fn new(publish: String, volume: VolumeId, client: String) -> Self {
        Self {
            publish,
            volume,
            client,
            holds: BTreeMap::new(),
            reservations: BTreeMap::new(),
            mount: false,
            writing: BTreeSet::new(),
            backings: BTreeMap::new(),
            answered: VecDeque::new(),
        }
    }

    /// Remembers that a request was answered, with the version that it made (0 where it made none).
    pub fn remember(&mut self, request: u64, version: u64) {
        if self.answered.len() == REMEMBERED {
            self.answered.pop_front();
        }
        self.answered.push_back((request, version));
    }

    /// The version that an earlier sending of this request made.
    pub fn answer(&self, request: u64) -> Option<u64> {
        self.answered.iter().rev().find(|(id, _)| *id == request).map(|(_, version)| *version)
    }

    pub fn answered(&self) -> impl Iterator<Item = (u64, u64)> {
        self.answered.iter().copied()
    }
}
