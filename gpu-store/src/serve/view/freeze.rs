//! Freezing: a draft that nobody writes any more becomes a sealed object, with the same node and at the same name.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use gpuvol_protocol::Fault;
use gpuvol_protocol::message::{Allocation, AllocationKind, INLINE_LIMIT, Kind, Segment};

use super::describe::times;
use super::drafts::Busy;
use crate::catalogue::draft::Draft;
use crate::catalogue::record::{Fact, Meta, MetaChanged, NodeOf, Sealed};
use crate::catalogue::state::Catalogue;
use crate::node::{Node, internal, now_ms};
use crate::serve::open::read_fd;
use crate::serve::small::{new_slab, write_slot};

/// Freezes a draft, unless somebody writes it. One that was never written gives way to its base.
pub fn freeze(node: &Node, volume: &str, id: u64) -> Result<(), Fault> {
    freeze_if(node, volume, id, |_| true).map(|_| ())
}

/// As [`freeze`], unless an open is on its way to the draft: then when it has come or not.
pub fn freeze_unless_expected(node: &Node, volume: &str, id: u64) -> Result<(), Fault> {
    if freeze_if(node, volume, id, |draft| !draft.is_expected())? == Frozen::NotYet {
        node.freeze_soon(volume, id);
    }
    Ok(())
}

#[derive(PartialEq, Eq)]
enum Frozen {
    Done,
    NotYet,
}

fn freeze_if(node: &Node, volume: &str, id: u64, may: impl Fn(&Draft) -> bool) -> Result<Frozen, Fault> {
    let (draft, busy, memory) = {
        let mut catalogue = node.catalogue();
        let state = catalogue.volume(volume)?;
        let Some(object) = state.objects.get(&id).filter(|object| object.visible) else { return Ok(Frozen::Done) };
        let Some(draft) = object.as_draft().filter(|draft| draft.writers == 0 && !draft.busy) else {
            return Ok(Frozen::Done);
        };
        if !may(draft) {
            return Ok(Frozen::NotYet);
        }
        let (draft, meta, producer) = (draft.clone(), object.meta.clone(), object.producer.clone());
        if draft.memory == 0 && draft.base != 0 && !draft.truncated {
            // Nothing was written, but its attributes may have been changed.
            let changed = MetaChanged { volume: volume.to_owned(), node: draft.base, meta: Some(meta) };
            node.reap(catalogue.commit(Fact::MetaChanged(changed))?);
            node.reap(catalogue.commit(Fact::DraftDropped(NodeOf { volume: volume.to_owned(), node: id }))?);
            return Ok(Frozen::Done);
        }
        let memory = match draft.memory {
            0 => None,
            memory => Some(catalogue.fd(memory).ok_or_else(|| internal("a draft without its memory"))?),
        };
        let busy = Busy::mark(node, &mut catalogue, volume, id)?;
        (Whole { volume, id, draft, meta, producer }, busy, memory)
    };
    let frozen = match memory {
        None => draft.into_slot(node, &[]),
        Some(memory) => draft.with_memory(node, &memory),
    };
    drop(busy);
    frozen?;
    node.announce();
    Ok(Frozen::Done)
}

/// A draft with all that its object is made of.
struct Whole<'a> {
    volume: &'a str,
    id: u64,
    draft: Draft,
    meta: Meta,
    producer: String,
}

impl Whole<'_> {
    fn with_memory(mut self, node: &Node, memory: &Arc<OwnedFd>) -> Result<(), Fault> {
        let stat = rustix::fs::fstat(memory).map_err(internal)?;
        let len = u64::try_from(stat.st_size).unwrap_or(0);
        let (mtime, ctime) = times(&stat);
        self.meta.mtime_ns = mtime;
        self.meta.ctime_ns = self.meta.ctime_ns.max(ctime);
        if len <= INLINE_LIMIT {
            let content = read_fd(memory, 0, len)?;
            return self.into_slot(node, &content);
        }
        // Readers must not be charged for the pages of holes.
        if u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512) < len {
            rustix::fs::fallocate(memory, rustix::fs::FallocateFlags::empty(), 0, len).map_err(internal)?;
        }
        gpuvol_memory::memfd::seal(memory.as_fd()).map_err(internal)?;
        let allocation =
            Allocation { id: self.draft.memory, kind: AllocationKind::Memfd.into(), len, device: Vec::new() };
        let mut sealed = self.sealed();
        sealed.allocations = vec![allocation];
        sealed.segments = vec![Segment { len, ..Segment::default() }];
        let mut catalogue = node.catalogue();
        if self.is_named(&catalogue)? {
            node.reap(catalogue.commit(Fact::Sealed(sealed))?);
        }
        Ok(())
    }

    /// It may have lost its name while it was being sealed: then it is gone, or read by those who have it open.
    fn is_named(&self, catalogue: &Catalogue) -> Result<bool, Fault> {
        let object = catalogue.volume(self.volume)?.objects.get(&self.id);
        Ok(object.is_some_and(|object| object.visible && object.as_draft().is_some()))
    }

    fn into_slot(self, node: &Node, content: &[u8]) -> Result<(), Fault> {
        let len = content.len() as u64;
        loop {
            let mut catalogue = node.catalogue();
            if !self.is_named(&catalogue)? {
                return Ok(());
            }
            let Some(slot) = catalogue.volume(self.volume)?.slabs.find(len) else {
                drop(catalogue);
                new_slab(node, self.volume)?;
                continue;
            };
            let slab = catalogue.fd(slot.slab).ok_or_else(|| internal("a slab without memory"))?;
            write_slot(&slab, slot.offset, content)?;
            let sealed = Sealed { slot: Some(slot), ..self.sealed() };
            node.reap(catalogue.commit(Fact::Sealed(sealed))?);
            return Ok(());
        }
    }

    fn sealed(&self) -> Sealed {
        Sealed {
            volume: self.volume.to_owned(),
            version: self.id,
            freezes: true,
            written: true,
            kind: Kind::Bytes.into(),
            time_ms: now_ms(),
            producer: self.producer.clone(),
            meta: Some(self.meta.clone()),
            ..Sealed::default()
        }
    }
}

/// Freezes what a store left that ended between a file's last close and its freezing.
pub fn freeze_what_nobody_writes(node: &Node) {
    let left: Vec<(String, u64)> = {
        let catalogue = node.catalogue();
        let drafts = catalogue.volumes.iter().flat_map(|(id, volume)| volume.drafts().map(move |d| (id, d)));
        let idle = drafts.filter(|(_, (object, draft))| draft.writers == 0 && !draft.busy && object.visible);
        idle.map(|(id, (object, _))| (id.as_str().to_owned(), object.version)).collect()
    };
    for (volume, id) in left {
        if let Err(fault) = freeze(node, &volume, id) {
            tracing::error!(volume, node = id, %fault, "a file that nobody writes any more could not be sealed");
        }
    }
}
