//! Files: opening, creating, room for writing, flushing, closing.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpuvol_protocol::message::AllocationKind;
use gpuvol_protocol::view::{Backing, CreateFile, OpenFile, Opened, Release, Reserve, ViewAnswer};
use gpuvol_protocol::{Code, Fault};

use super::describe::{self, gone};
use super::drafts::{self, Room};
use super::freeze::{freeze, freeze_unless_expected};
use super::names::{check_name, directory, exists, new_meta};
use super::session::{Mounted, Outcome, done};
use super::source::Source;
use crate::catalogue::lease::Lease;
use crate::catalogue::object::{Content, Object};
use crate::catalogue::record::{BackingNoted, DraftMade, Fact, Held, HoldsReleased, NodeOf};
use crate::catalogue::state::Catalogue;
use crate::catalogue::tree::Child;
use crate::node::{Node, internal, now_ns};
use crate::serve::names::room_for_entry;

/// Most handles of one mount.
const MAX_HANDLES: usize = 65_536;

pub fn open(node: &Arc<Node>, mount: &Mounted, open: &OpenFile) -> Outcome {
    if open.write {
        mount.may_write()?;
    }
    let mut catalogue = drafts::idle(node, &mount.volume, open.node)?;
    let over = catalogue.volume(&mount.volume)?.objects.get(&open.node).map_or(0, |object| object.draft);
    if over != 0 {
        // Who is sent to a draft that is just being frozen would be sent away again there.
        drop(catalogue);
        catalogue = drafts::idle(node, &mount.volume, over)?;
    }
    if lease(&catalogue, mount)?.holds.contains_key(&mount.unique) {
        drop(catalogue);
        return describe_open(node, mount, mount.unique, open.passthrough);
    }
    let Some(object) = catalogue.volume(&mount.volume)?.objects.get(&open.node) else {
        return open_grave(&catalogue, mount, open);
    };
    let is_draft = match object.content {
        Content::Draft(_) => true,
        Content::Segments { .. } | Content::Slot(_) => false,
        Content::Link(_) => {
            let message = format!("node {} of volume {} is a symbolic link", open.node, mount.volume);
            return Err(Fault::new(Code::InvalidArgument, message));
        }
    };
    if open.write && !is_draft {
        let draft = drafts::over(node, &mut catalogue, mount, open.node)?.ok_or_else(|| gone(mount, open.node))?;
        drafts::expect(node, &mut catalogue, mount, draft)?;
        return Ok((ViewAnswer::Opened(Opened { stale: true, ..Opened::default() }), Vec::new()));
    }
    hold(node, &mut catalogue, mount, open.node, open.write)?;
    drop(catalogue);
    if open.write && open.truncate {
        drafts::resize(node, mount, open.node, 0)?;
    }
    describe_open(node, mount, mount.unique, open.passthrough)
}

/// Opens what stood at the name until a moment ago. The store does not know the handle: its bytes are all there is.
fn open_grave(catalogue: &Catalogue, mount: &Mounted, open: &OpenFile) -> Outcome {
    let grave = catalogue.graves.find(open.node).filter(|_| !open.write).ok_or_else(|| gone(mount, open.node))?;
    let mut opened = Opened {
        node: Some(describe::file(catalogue, catalogue.volume(&mount.volume)?, &grave.object)),
        content: grave.content.clone(),
        handle: mount.unique,
        ..Opened::default()
    };
    if let Content::Segments { allocations, segments } = &grave.object.content {
        (opened.allocations, opened.segments) = (allocations.clone(), segments.clone());
    }
    Ok((ViewAnswer::Opened(opened), grave.fds.clone()))
}

fn lease<'c>(catalogue: &'c Catalogue, mount: &Mounted) -> Result<&'c Lease, Fault> {
    catalogue.lease(mount.lease)
}

/// Makes the request's id a handle of a node.
fn hold(node: &Node, catalogue: &mut Catalogue, mount: &Mounted, id: u64, write: bool) -> Result<(), Fault> {
    if lease(catalogue, mount)?.holds.len() >= MAX_HANDLES {
        let message = format!("this pod has {MAX_HANDLES} files of volume {} open, the most it may", mount.volume);
        return Err(Fault::new(Code::LimitExceeded, message));
    }
    if write {
        drafts::join(node, catalogue, mount, id)?;
    }
    let held = Held { origin: mount.origin(), volume: mount.volume.clone(), version: id, write };
    node.reap(catalogue.commit(Fact::Held(held))?);
    Ok(())
}

pub fn create(node: &Arc<Node>, mount: &Mounted, create: &CreateFile) -> Outcome {
    mount.may_write()?;
    check_name(&create.name)?;
    let mut catalogue = node.catalogue();
    if lease(&catalogue, mount)?.holds.contains_key(&mount.unique) {
        drop(catalogue);
        return describe_open(node, mount, mount.unique, false);
    }
    let before = mount.answered(&catalogue);
    let volume = catalogue.volume(&mount.volume)?;
    let parent = directory(volume, mount, create.parent)?;
    let id = match (volume.tree.child(parent, &create.name), before) {
        // An earlier sending of this request made it.
        (Some(Child::Object(id)), Some(made)) if id == made => id,
        (Some(_), _) if create.exclusive || create.closed => return Err(exists(mount, &create.name)),
        (Some(Child::Directory(_)), _) => {
            let message = format!("{:?} in volume {} is a directory", create.name, mount.volume);
            return Err(Fault::new(Code::IsADirectory, message));
        }
        (Some(Child::Object(id)), _) => {
            drop(catalogue);
            catalogue = drafts::idle(node, &mount.volume, id)?;
            let object = catalogue.volume(&mount.volume)?.objects.get(&id).ok_or_else(|| gone(mount, id))?;
            match object.content {
                Content::Draft(_) => id,
                Content::Slot(_) | Content::Segments { .. } if !create.write => id,
                Content::Slot(_) | Content::Segments { .. } => {
                    drafts::over(node, &mut catalogue, mount, id)?.ok_or_else(|| gone(mount, id))?
                }
                Content::Link(_) => return Err(exists(mount, &create.name)),
            }
        }
        (None, _) => make(node, &mut catalogue, mount, create, parent)?,
    };
    if create.closed {
        drop(catalogue);
        freeze(node, &mount.volume, id)?;
        return Ok((ViewAnswer::Node(describe::node(&node.catalogue(), mount, id)?), Vec::new()));
    }
    hold(node, &mut catalogue, mount, id, create.write)?;
    drop(catalogue);
    if !create.write {
        freeze(node, &mount.volume, id)?;
    } else if create.truncate && before.is_none() {
        truncate_existing(node, mount, id)?;
    }
    describe_open(node, mount, mount.unique, false)
}

/// A new file's draft.
fn make(
    node: &Node,
    catalogue: &mut Catalogue,
    mount: &Mounted,
    create: &CreateFile,
    parent: u64,
) -> Result<u64, Fault> {
    let volume = catalogue.volume(&mount.volume)?;
    room_for_entry(volume, &String::from_utf8_lossy(&create.name))?;
    let time_ns = now_ns();
    let meta = new_meta(volume, parent, create.mode, (create.uid, create.gid), time_ns, false);
    let id = catalogue.new_id();
    let made = DraftMade {
        volume: mount.volume.clone(),
        node: id,
        parent,
        name: create.name.clone(),
        meta: Some(meta),
        owners: vec![mount.publish.clone()],
        producer: mount.producer.clone(),
        time_ns,
        origin: mount.origin(),
        ..DraftMade::default()
    };
    node.reap(catalogue.commit(Fact::DraftMade(made))?);
    Ok(id)
}

/// Empties a draft that has something to be emptied of.
fn truncate_existing(node: &Node, mount: &Mounted, id: u64) -> Result<(), Fault> {
    let empty = {
        let catalogue = node.catalogue();
        catalogue.volume(&mount.volume)?.draft(id).is_none_or(|draft| draft.memory == 0 && draft.base == 0)
    };
    if empty { Ok(()) } else { drafts::resize(node, mount, id, 0) }
}

pub fn describe(node: &Arc<Node>, mount: &Mounted, handle: u64) -> Outcome {
    describe_open(node, mount, handle, false)
}

/// What stands behind an open handle.
fn describe_open(node: &Node, mount: &Mounted, handle: u64, passthrough: bool) -> Outcome {
    let (mut opened, version) = {
        let catalogue = node.catalogue();
        let lease = lease(&catalogue, mount)?;
        let id = *lease.holds.get(&handle).ok_or_else(|| {
            Fault::new(Code::Stale, format!("handle {handle} of volume {} is not open here", mount.volume))
        })?;
        let volume = catalogue.volume(&mount.volume)?;
        let object = volume.objects.get(&id).ok_or_else(|| gone(mount, id))?;
        let mut opened = Opened {
            node: Some(describe::file(&catalogue, volume, object)),
            write: lease.writing.contains(&handle),
            handle,
            ..Opened::default()
        };
        if let Some(draft) = object.as_draft() {
            if draft.memory != 0 {
                let fd = catalogue.fd(draft.memory).ok_or_else(|| internal("a draft without its memory"))?;
                (opened.memory, opened.reserved) = (true, draft.charge);
                return Ok((ViewAnswer::Opened(opened), vec![fd]));
            }
            if draft.base == 0 || draft.truncated {
                return Ok((ViewAnswer::Opened(opened), Vec::new()));
            }
            (opened, draft.base)
        } else {
            let same = lease.holds.iter().filter(|(other, node)| **other != handle && **node == id);
            let mut modes = same.map(|(other, _)| lease.backings.get(other).copied());
            opened.backing = match modes.next() {
                Some(first) => first.unwrap_or(0),
                None => lease.backings.get(&handle).copied().unwrap_or(0),
            };
            let free = lease
                .holds
                .iter()
                .all(|(other, node)| *other == handle || *node != id || lease.backings.contains_key(other));
            opened.passthrough = passthrough && free;
            (opened, id)
        }
    };
    let size = opened.node.as_ref().map_or(0, |n| n.size);
    match Source::of(node, &mount.volume, version)? {
        Source::Bytes(content) => {
            opened.passthrough = false;
            opened.content = content;
            Ok((ViewAnswer::Opened(opened), Vec::new()))
        }
        Source::Segments { allocations, segments, fds, replica } => {
            if let Some(replica) = replica {
                node.hosting.keep(mount.lease, handle, replica);
            }
            opened.passthrough &= is_plain(&allocations, &segments, &fds, size);
            opened.allocations = allocations;
            opened.segments = segments;
            Ok((ViewAnswer::Opened(opened), fds))
        }
    }
}

/// Is the file byte for byte the one memfd? The kernel then reads it by itself.
fn is_plain(
    allocations: &[gpuvol_protocol::message::Allocation],
    segments: &[gpuvol_protocol::message::Segment],
    fds: &[Arc<OwnedFd>],
    size: u64,
) -> bool {
    let ([allocation], [segment], [fd]) = (allocations, segments, fds) else { return false };
    let whole = segment.inline.is_empty() && segment.offset == 0 && segment.len == size;
    let exact = rustix::fs::fstat(fd).is_ok_and(|stat| u64::try_from(stat.st_size) == Ok(size));
    allocation.kind() == AllocationKind::Memfd && whole && exact
}

pub fn note_backing(node: &Arc<Node>, mount: &Mounted, backing: &Backing) -> Outcome {
    let mut catalogue = node.catalogue();
    let mut origin = mount.origin();
    if let Some(origin) = &mut origin {
        origin.request = backing.handle;
    }
    node.reap(catalogue.commit(Fact::BackingNoted(BackingNoted { origin, backing: backing.backing }))?);
    done()
}

pub fn reserve(node: &Arc<Node>, mount: &Mounted, reserve: &Reserve) -> Outcome {
    mount.may_write()?;
    let room = Room { size: reserve.size, ahead: reserve.ahead, keep: u64::MAX };
    let (fd, reserved) = drafts::make_room(node, mount, reserve.node, room)?;
    let report = describe::node(&node.catalogue(), mount, reserve.node)?;
    let opened = Opened { node: Some(report), memory: true, reserved, write: true, ..Opened::default() };
    Ok((ViewAnswer::Opened(opened), vec![fd]))
}

pub fn flush(node: &Arc<Node>, mount: &Mounted, handle: u64) -> Outcome {
    let mut catalogue = node.catalogue();
    let lease = lease(&catalogue, mount)?;
    let Some(id) = lease.holds.get(&handle).copied().filter(|_| lease.writing.contains(&handle)) else { return done() };
    let volume = catalogue.volume(&mount.volume)?;
    let hidden = volume.draft(id).filter(|draft| !draft.shown && draft.memory != 0).map(|draft| draft.memory);
    // A shell flushes a file that it has just emptied: nobody else is to see that.
    let written = hidden
        .and_then(|memory| catalogue.fd(memory))
        .is_some_and(|fd| rustix::fs::fstat(&fd).is_ok_and(|stat| stat.st_size > 0));
    if written && volume.objects.get(&id).is_some_and(|object| object.visible) {
        node.reap(catalogue.commit(Fact::DraftShown(NodeOf { volume: mount.volume.clone(), node: id }))?);
    }
    done()
}

pub fn release(node: &Arc<Node>, mount: &Mounted, release: &Release) -> Outcome {
    let mut catalogue = node.catalogue();
    let lease = lease(&catalogue, mount)?;
    let wrote = lease.writing.contains(&release.handle);
    let Some(id) = lease.holds.get(&release.handle).copied() else { return done() };
    let released = HoldsReleased { lease: mount.lease.0.to_vec(), holds: vec![release.handle] };
    node.reap(catalogue.commit(Fact::HoldsReleased(released))?);
    if !wrote {
        return done();
    }
    let last = |object: &&Object| object.visible && object.as_draft().is_some_and(|draft| draft.writers == 0);
    let Some(object) = catalogue.volume(&mount.volume)?.objects.get(&id).filter(last) else { return done() };
    if release.failed && object.as_draft().is_some_and(|draft| draft.base != 0 && !draft.shown) {
        let path = catalogue.volume(&mount.volume)?.tree.path(id).unwrap_or_default();
        tracing::warn!(
            volume = mount.volume,
            path = %String::from_utf8_lossy(&path),
            "not replaced: its writer ran out of room, and the old version stays"
        );
        node.reap(catalogue.commit(Fact::DraftDropped(NodeOf { volume: mount.volume.clone(), node: id }))?);
        return done();
    }
    drop(catalogue);
    freeze_unless_expected(node, &mount.volume, id)?;
    done()
}

/// The files that a mount had open for writing: they are frozen once it is gone.
pub fn written_by(catalogue: &Catalogue, publish: &str) -> Vec<u64> {
    let lease = catalogue.mounts.get(publish).and_then(|id| catalogue.leases.get(id));
    let handles = lease.into_iter().flat_map(|lease| lease.writing.iter().filter_map(|h| lease.holds.get(h)));
    let mut nodes: Vec<u64> = handles.copied().collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}
