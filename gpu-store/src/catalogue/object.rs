//! Objects: immutable, versioned content, and the reservations that become objects.

use gpuvol_protocol::message::{Allocation, AllocationKind, Attribute, Entry, Kind, Segment, Tier};

use super::record::{Origin, Sealed, Slot};
use super::slab::slot_size;

/// Where an object's bytes are.
#[derive(Debug, Clone)]
pub enum Content {
    /// Segments over allocations.
    Segments { allocations: Vec<Allocation>, segments: Vec<Segment> },
    /// A slot of a slab.
    Slot(Slot),
}

/// One version.
#[derive(Debug, Clone)]
pub struct Object {
    pub version: u64,
    pub kind: Kind,
    pub content: Content,
    pub attributes: Vec<Attribute>,
    /// Milliseconds since the epoch.
    pub time_ms: u64,
    pub producer: String,
    /// How many leases' holds pin it.
    pub holds: u64,
    /// It is at a path.
    pub visible: bool,
}

impl Object {
    pub fn from_record(record: &Sealed) -> Self {
        let content = match record.slot {
            Some(slot) => Content::Slot(slot),
            None => Content::Segments { allocations: record.allocations.clone(), segments: record.segments.clone() },
        };
        Self {
            version: record.version,
            kind: record.kind(),
            content,
            attributes: record.attributes.clone(),
            time_ms: record.time_ms,
            producer: record.producer.clone(),
            holds: 0,
            visible: !record.hidden,
        }
    }

    /// The record that makes this object again, at a name or hidden.
    pub fn to_record(&self, volume: &str, parent: u64, name: &[u8]) -> Sealed {
        let (allocations, segments, slot) = match &self.content {
            Content::Segments { allocations, segments } => (allocations.clone(), segments.clone(), None),
            Content::Slot(slot) => (Vec::new(), Vec::new(), Some(*slot)),
        };
        Sealed {
            volume: volume.to_owned(),
            origin: None,
            reservation: 0,
            version: self.version,
            parent,
            name: name.to_vec(),
            kind: self.kind.into(),
            allocations,
            segments,
            attributes: self.attributes.clone(),
            time_ms: self.time_ms,
            producer: self.producer.clone(),
            slot,
            hidden: !self.visible,
        }
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Segments { segments, .. } => segments.iter().map(|s| s.len).sum(),
            Content::Slot(slot) => slot.len,
        }
    }

    /// Bytes of quota.
    pub fn charge(&self) -> u64 {
        match &self.content {
            Content::Segments { allocations, segments } => charge_of(allocations, segments),
            Content::Slot(slot) => slot_size(slot.len),
        }
    }

    pub fn tier(&self) -> Tier {
        if self.device().is_empty() { Tier::Host } else { Tier::Gpu }
    }

    /// The GPU whose memory holds it; empty where none does.
    pub fn device(&self) -> &[u8] {
        let Content::Segments { allocations, .. } = &self.content else { return &[] };
        allocations.iter().find(|a| a.kind() == AllocationKind::CudaVmm).map_or(&[], |a| &a.device)
    }

    pub fn entry(&self, name: &[u8]) -> Entry {
        Entry {
            name: name.to_vec(),
            directory: false,
            kind: self.kind.into(),
            size: self.size(),
            version: self.version,
            tier: self.tier().into(),
            device: self.device().to_vec(),
            time_ms: self.time_ms,
            producer: self.producer.clone(),
            attributes: self.attributes.clone(),
        }
    }
}

/// Bytes of quota that allocations and inline segments take together.
pub fn charge_of(allocations: &[Allocation], segments: &[Segment]) -> u64 {
    let memory: u64 = allocations.iter().map(|a| a.len).sum();
    let inline: u64 = segments.iter().map(|s| s.inline.len() as u64).sum();
    memory.saturating_add(inline)
}

/// Room for an object that its client has not sealed yet.
#[derive(Debug, Clone)]
pub struct Reservation {
    pub origin: Origin,
    pub path: Vec<u8>,
    pub charge: u64,
    pub tier: Tier,
    pub device: Vec<u8>,
    /// The memfd that the store made for it; host tier.
    pub allocation: Option<Allocation>,
    /// Memory that the client made for it.
    pub attached: Vec<Allocation>,
}

impl Reservation {
    /// All its memory, in the order that segments number it.
    pub fn memory(&self) -> impl Iterator<Item = &Allocation> {
        self.allocation.iter().chain(&self.attached)
    }
}
