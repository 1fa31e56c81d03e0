//! Objects: immutable, versioned content; the drafts and reservations that become objects; symbolic links.

use gpuvol_protocol::message::{Allocation, AllocationKind, Attribute, Entry, Kind, Segment, Tier};

use super::draft::Draft;
use super::meta;
use super::quota::HOST_GRANULE;
use super::record::{Meta, Origin, Sealed, Slot};
use super::slab::slot_size;

/// Where an object's bytes are.
#[derive(Debug, Clone)]
pub enum Content {
    /// Segments over allocations.
    Segments { allocations: Vec<Allocation>, segments: Vec<Segment> },
    /// A slot of a slab.
    Slot(Slot),
    /// Still being written through a mount.
    Draft(Draft),
    /// A symbolic link's target.
    Link(Vec<u8>),
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
    /// It is at a path, or it is what others still see at a draft's path.
    pub visible: bool,
    /// It was written through a mount.
    pub written: bool,
    /// The draft that may replace it; 0 for none.
    pub draft: u64,
    pub meta: Meta,
}

impl Object {
    pub fn from_record(record: &Sealed) -> Self {
        let content = match record.slot {
            Some(slot) => Content::Slot(slot),
            None if !record.link.is_empty() => Content::Link(record.link.clone()),
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
            written: record.written,
            draft: 0,
            meta: record.meta.clone().unwrap_or_else(|| meta::of_client(record.time_ms, (0, 0))),
        }
    }

    /// The record that makes this object again, at a name or hidden; `None` for a draft, which has its own.
    pub fn to_record(&self, volume: &str, parent: u64, name: &[u8], cookie: u64) -> Option<Sealed> {
        let mut link = Vec::new();
        let (allocations, segments, slot) = match &self.content {
            Content::Segments { allocations, segments } => (allocations.clone(), segments.clone(), None),
            Content::Slot(slot) => (Vec::new(), Vec::new(), Some(*slot)),
            Content::Link(target) => {
                link.clone_from(target);
                (Vec::new(), Vec::new(), None)
            }
            Content::Draft(_) => return None,
        };
        Some(Sealed {
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
            meta: Some(self.meta.clone()),
            cookie,
            link,
            freezes: false,
            written: self.written,
        })
    }

    pub fn as_draft(&self) -> Option<&Draft> {
        match &self.content {
            Content::Draft(draft) => Some(draft),
            Content::Segments { .. } | Content::Slot(_) | Content::Link(_) => None,
        }
    }

    /// Every allocation of its own.
    pub fn memory(&self) -> impl Iterator<Item = u64> {
        let (allocations, draft) = match &self.content {
            Content::Segments { allocations, .. } => (allocations.as_slice(), 0),
            Content::Draft(draft) => (&[][..], draft.memory),
            Content::Slot(_) | Content::Link(_) => (&[][..], 0),
        };
        allocations.iter().map(|a| a.id).chain(std::iter::once(draft).filter(|id| *id != 0))
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        match &self.content {
            Content::Segments { segments, .. } => segments.iter().map(|s| s.len).sum(),
            Content::Slot(slot) => slot.len,
            Content::Link(target) => target.len() as u64,
            // Its memory's size, which is the kernel's to know.
            Content::Draft(_) => 0,
        }
    }

    /// Bytes of quota.
    pub fn charge(&self) -> u64 {
        match &self.content {
            Content::Segments { allocations, segments } => charge_of(allocations, segments),
            Content::Slot(slot) => slot_size(slot.len),
            Content::Draft(draft) => draft.charge,
            Content::Link(_) => 0,
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
            link: if let Content::Link(target) = &self.content { target.clone() } else { Vec::new() },
            written: self.written,
        }
    }
}

/// Bytes of quota that allocations and inline segments take together.
pub fn charge_of(allocations: &[Allocation], segments: &[Segment]) -> u64 {
    // Device memory comes in granules anyway; a memfd may end within a page.
    let memory: u64 = allocations.iter().map(|a| a.len.next_multiple_of(HOST_GRANULE)).sum();
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
