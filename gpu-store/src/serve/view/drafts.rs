//! A draft's memory: made at the first write as a copy of what it may replace, and grown as bytes arrive.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use gpuvol_protocol::message::Tier;
use gpuvol_protocol::types::size;
use gpuvol_protocol::{Code, Fault};

use super::describe::gone;
use super::session::Mounted;
use super::source::Source;
use crate::catalogue::draft::Draft;
use crate::catalogue::quota::HOST_GRANULE;
use crate::catalogue::record::{DraftGrown, DraftJoined, DraftMade, Fact};
use crate::catalogue::state::{Catalogue, memory_key};
use crate::node::{Node, internal, now_ns};
use crate::serve::pending::Pending;
use crate::serve::put::{note_written, too_much_memory};

/// How long a request waits for another one that makes a draft's memory or freezes it.
const PATIENCE: Duration = Duration::from_secs(25);

/// The draft over a sealed file, for this mount to write: the one that is there, or a new one. `None` where the file has
/// no name any more.
pub fn over(node: &Node, catalogue: &mut Catalogue, mount: &Mounted, version: u64) -> Result<Option<u64>, Fault> {
    let volume = catalogue.volume(&mount.volume)?;
    let object = volume.objects.get(&version).ok_or_else(|| gone(mount, version))?;
    if object.draft != 0 {
        let draft = object.draft;
        join(node, catalogue, mount, draft)?;
        return Ok(Some(draft));
    }
    let Some((parent, name)) = volume.tree.place(version) else { return Ok(None) };
    let (name, meta) = (name.to_vec(), object.meta.clone());
    let made = DraftMade {
        volume: mount.volume.clone(),
        node: catalogue.new_id(),
        parent,
        name,
        base: version,
        meta: Some(meta),
        owners: vec![mount.publish.clone()],
        producer: mount.producer.clone(),
        time_ns: now_ns(),
        ..DraftMade::default()
    };
    let draft = made.node;
    node.reap(catalogue.commit(Fact::DraftMade(made))?);
    Ok(Some(draft))
}

/// An open of this mount will come back for the draft.
pub fn expect(node: &Node, catalogue: &mut Catalogue, mount: &Mounted, draft: u64) -> Result<(), Fault> {
    if let Some(state) = catalogue.volume_mut(&mount.volume)?.draft_mut(draft) {
        state.expect();
        node.freeze_soon(&mount.volume, draft);
    }
    Ok(())
}

/// This mount sees the draft from now on.
pub fn join(node: &Node, catalogue: &mut Catalogue, mount: &Mounted, draft: u64) -> Result<(), Fault> {
    let known = catalogue.volume(&mount.volume)?.draft(draft).is_none_or(|d| d.is_seen_by(&mount.publish));
    if !known {
        let joined = DraftJoined { volume: mount.volume.clone(), node: draft, publish: mount.publish.clone() };
        node.reap(catalogue.commit(Fact::DraftJoined(joined))?);
    }
    Ok(())
}

/// A draft that nobody else is busy with.
pub fn idle<'n>(node: &'n Node, volume: &str, id: u64) -> Result<MutexGuard<'n, Catalogue>, Fault> {
    let start = Instant::now();
    let mut catalogue = node.catalogue();
    while catalogue.volume(volume)?.draft(id).is_some_and(|draft| draft.busy) {
        let left = PATIENCE.saturating_sub(start.elapsed());
        if left.is_zero() {
            let message = format!("node {id} of volume {volume} is being copied or frozen for {PATIENCE:?} already");
            return Err(Fault::new(Code::DeadlineExceeded, message));
        }
        catalogue = node.wait_change(catalogue, left);
    }
    Ok(catalogue)
}

/// Keeps others away from a draft while its memory is made or it is frozen.
pub struct Busy<'n> {
    node: &'n Node,
    volume: &'n str,
    id: u64,
}

impl<'n> Busy<'n> {
    pub fn mark(node: &'n Node, catalogue: &mut Catalogue, volume: &'n str, id: u64) -> Result<Self, Fault> {
        if let Some(draft) = catalogue.volume_mut(volume)?.draft_mut(id) {
            draft.busy = true;
        }
        Ok(Self { node, volume, id })
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        if let Ok(volume) = self.node.catalogue().volume_mut(self.volume)
            && let Some(draft) = volume.draft_mut(self.id)
        {
            draft.busy = false;
        }
        self.node.announce();
    }
}

/// What a draft's memory is to be.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// It may grow to this many bytes.
    pub size: u64,
    /// And to this many more, where there is room.
    pub ahead: u64,
    /// Where it has no memory yet: how much of what it may replace is kept.
    pub keep: u64,
}

/// Sees to it that a draft has memory, and room. Answers the memory and how many bytes it may grow to.
pub fn make_room(node: &Node, mount: &Mounted, id: u64, room: Room) -> Result<(Arc<OwnedFd>, u64), Fault> {
    size(room.size.saturating_add(HOST_GRANULE))?;
    note_written(node, &mount.volume)?;
    let mut catalogue = idle(node, &mount.volume, id)?;
    let volume = catalogue.volume(&mount.volume)?;
    let draft = volume.draft(id).ok_or_else(|| gone(mount, id))?;
    let what = volume.tree.path(id).map_or_else(|| format!("node {id}"), |p| String::from_utf8_lossy(&p).into_owned());
    let keep = kept(volume, draft, room.keep);
    let need = room.size.max(keep).next_multiple_of(HOST_GRANULE);
    if draft.memory != 0 && need <= draft.charge {
        let fd = catalogue.fd(draft.memory).ok_or_else(|| internal("a draft without its memory"))?;
        return Ok((fd, draft.charge));
    }
    let more = need.saturating_sub(draft.charge);
    volume.quota.check(&mount.volume, &what, more)?;
    node.books().check_host_object(&catalogue, &mount.volume, more)?;
    // Others want room too: what comes later gets a part of what is left.
    let spare = (volume.quota.free() - more) / 8;
    let ahead = room.ahead.min(spare) / HOST_GRANULE * HOST_GRANULE;
    let ahead = if node.books().check_host_object(&catalogue, &mount.volume, more + ahead).is_ok() { ahead } else { 0 };
    let charge = draft.charge.max(need) + ahead;
    let mut grown =
        DraftGrown { volume: mount.volume.clone(), node: id, memory: draft.memory, charge, truncated: false };
    if draft.memory != 0 {
        let fd = catalogue.fd(draft.memory).ok_or_else(|| internal("a draft without its memory"))?;
        node.reap(catalogue.commit(Fact::DraftGrown(grown))?);
        return Ok((fd, charge));
    }
    if catalogue.memory_count() >= node.max_memory() {
        return Err(too_much_memory(node));
    }
    let base = draft.base;
    let pending = Pending::take(node, &mut catalogue, &mount.volume, Tier::Host, charge)?;
    let busy = Busy::mark(node, &mut catalogue, &mount.volume, id)?;
    let memory = catalogue.new_id();
    drop(catalogue);

    let fd = Arc::new(gpuvol_memory::memfd::growable().map_err(internal)?);
    if keep > 0 {
        Source::of(node, &mount.volume, base)?.copy_to(fd.as_fd(), keep)?;
    }
    node.keeper.hold(&[(memory_key(memory), fd.clone())])?;

    let mut catalogue = node.catalogue();
    pending.settle(&mut catalogue);
    catalogue.adopt_fd(memory, fd.clone());
    (grown.memory, grown.truncated) = (memory, room.keep == 0);
    let committed = catalogue.commit(Fact::DraftGrown(grown));
    let result = match committed {
        Ok(garbage) => {
            node.reap(garbage);
            Ok((fd, charge))
        }
        Err(fault) => {
            node.reap(catalogue.disown_fd(memory));
            Err(fault)
        }
    };
    drop(catalogue);
    drop(busy);
    result
}

/// How many bytes of its base a draft without memory keeps.
fn kept(volume: &crate::catalogue::volume::Volume, draft: &Draft, most: u64) -> u64 {
    if draft.memory != 0 || draft.truncated {
        return 0;
    }
    volume.objects.get(&draft.base).map_or(0, crate::catalogue::object::Object::size).min(most)
}

/// Gives a draft a size: cuts it off, or fills it up with zeros.
pub fn resize(node: &Node, mount: &Mounted, id: u64, size: u64) -> Result<(), Fault> {
    let (fd, _) = make_room(node, mount, id, Room { size, ahead: 0, keep: size })?;
    rustix::fs::ftruncate(&fd, size).map_err(internal)
}
