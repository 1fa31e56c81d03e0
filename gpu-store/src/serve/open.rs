//! Opening: waiting for a path to be sealed, then handing out what it takes to read it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Answer, Open, Opened, Tier};
use gpuvol_protocol::{Code, Fault, ObjectPath};

use super::names::not_there;
use super::session::{Asker, Outcome};
use super::view::Source;
use crate::catalogue::object::{Content, Object};
use crate::catalogue::record::{Fact, Held, HoldsReleased, Slot};
use crate::catalogue::state::Catalogue;
use crate::catalogue::tree::{Child, PathError};
use crate::node::{Node, internal};

/// Longest that one request waits: a client asks again until its own deadline, so that a store that is replaced, or a
/// client that is gone, ends no wait but this one.
const LONGEST_WAIT: Duration = Duration::from_secs(2);
/// Most holds of one lease.
const MAX_HOLDS: usize = 65_536;

pub fn open(node: &Arc<Node>, asker: &Asker, request: u64, open: &Open) -> Outcome {
    let path = ObjectPath::new(open.path.as_slice())?;
    let until = Instant::now() + Duration::from_millis(open.wait_ms).min(LONGEST_WAIT);
    seal_what_is_written(node, &asker.volume, &path)?;
    let mut catalogue = node.catalogue();
    loop {
        match find(&catalogue, asker, &path, open.version)? {
            Some(object) if open.host_only && object.tier() == Tier::Gpu => {
                hold(node, &mut catalogue, asker, request, object.version)?;
                drop(catalogue);
                return hand_out_replica(node, asker, request, &path, &object);
            }
            Some(object) => return hand_out(node, &mut catalogue, asker, request, &path, &object),
            None if open.wait_ms == 0 => return Err(not_there(&asker.volume, &path, PathError::NotFound)),
            None => {}
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let message = format!(
                "{path} was not sealed in volume {} within {} ms; is its producer running?",
                asker.volume, open.wait_ms
            );
            return Err(Fault::new(Code::DeadlineExceeded, message));
        }
        catalogue = node.wait_change(catalogue, left);
    }
}

/// A file that its last writer has closed may not be sealed yet, in case an open that was told of it comes: a client is not
/// to see the version before.
pub fn seal_what_is_written(node: &Node, volume: &str, path: &ObjectPath) -> Result<(), Fault> {
    let written = {
        let catalogue = node.catalogue();
        let state = catalogue.volume(volume)?;
        let at_path = state.tree.lookup(path).ok().map(Child::id);
        at_path.filter(|id| state.draft(*id).is_some_and(|draft| draft.writers == 0))
    };
    written.map_or(Ok(()), |id| super::view::freeze(node, volume, id))
}

/// The object at the path, or the version asked for; `None` where it may still come.
fn find(catalogue: &Catalogue, asker: &Asker, path: &ObjectPath, version: u64) -> Result<Option<Object>, Fault> {
    catalogue.lease(asker.lease)?;
    let volume = catalogue.volume(&asker.volume)?;
    let at_path = match volume.tree.lookup(path) {
        Ok(Child::Object(version)) => version,
        Ok(Child::Directory(_)) => {
            let message = format!("{path} in volume {} is a directory", asker.volume);
            return Err(Fault::new(Code::IsADirectory, message));
        }
        Err(PathError::NotFound) => return Ok(None),
        Err(error) => return Err(not_there(&asker.volume, path, error)),
    };
    if version != 0 && version != at_path {
        let message = format!("{path} in volume {} is at version {at_path}, not {version}", asker.volume);
        return Err(Fault::new(Code::NotFound, message));
    }
    Ok(volume.sealed(at_path).cloned())
}

fn hand_out(
    node: &Arc<Node>,
    catalogue: &mut Catalogue,
    asker: &Asker,
    request: u64,
    path: &ObjectPath,
    object: &Object,
) -> Outcome {
    let mut opened =
        Opened { entry: Some(object.entry(path.split().map_or(&[][..], |(_, n)| n))), ..Opened::default() };
    let (allocations, segments) = match &object.content {
        Content::Slot(slot) => {
            opened.content = read_slot(catalogue, slot)?;
            return Ok((Answer::Opened(opened), vec![]));
        }
        Content::Segments { allocations, segments } => (allocations, segments),
        Content::Link(target) => {
            let message = format!(
                "{path} in volume {} is a symbolic link to {}; open what it leads to",
                asker.volume,
                String::from_utf8_lossy(target)
            );
            return Err(Fault::new(Code::InvalidArgument, message));
        }
        Content::Draft(_) => return Err(internal("a draft was handed out")),
    };
    let fds: Option<Vec<Arc<OwnedFd>>> = allocations.iter().map(|a| catalogue.fd(a.id)).collect();
    let fds = fds.ok_or_else(|| internal(format!("{path} has lost its memory")))?;
    hold(node, catalogue, asker, request, object.version)?;
    opened.hold = request;
    opened.allocations.clone_from(allocations);
    opened.segments.clone_from(segments);
    Ok((Answer::Opened(opened), fds))
}

/// The request's id pins a version for the client.
fn hold(node: &Node, catalogue: &mut Catalogue, asker: &Asker, request: u64, version: u64) -> Result<(), Fault> {
    if catalogue.lease(asker.lease)?.holds.len() >= MAX_HOLDS {
        let message = format!("this client has {MAX_HOLDS} objects open, the most it may; close some");
        return Err(Fault::new(Code::LimitExceeded, message));
    }
    let held = Held { origin: asker.origin(request), volume: asker.volume.clone(), version, write: false };
    node.reap(catalogue.commit(Fact::Held(held))?);
    Ok(())
}

/// A replica in host memory, made now where there is none. The object is held already.
fn hand_out_replica(node: &Node, asker: &Asker, request: u64, path: &ObjectPath, object: &Object) -> Outcome {
    match Source::of(node, &asker.volume, object.version) {
        Ok(Source::Segments { allocations, segments, fds, replica: Some(replica) }) => {
            node.hosting.keep(asker.lease, request, replica);
            let entry = Some(object.entry(path.split().map_or(&[][..], |(_, name)| name)));
            let opened = Opened { entry, hold: request, allocations, segments, replica: true, ..Opened::default() };
            Ok((Answer::Opened(opened), fds))
        }
        Ok(_) => Err(internal(format!("{path} is on no GPU after all"))),
        Err(fault) => {
            let released = HoldsReleased { lease: asker.lease.0.to_vec(), holds: vec![request] };
            node.reap(node.catalogue().commit(Fact::HoldsReleased(released))?);
            Err(fault)
        }
    }
}

/// A small object's bytes. Read under the lock, because a slot is used again as soon as its object is gone.
pub fn read_slot(catalogue: &Catalogue, slot: &Slot) -> Result<Vec<u8>, Fault> {
    let slab = catalogue.fd(slot.slab).ok_or_else(|| internal("a slab without memory"))?;
    read_fd(&slab, slot.offset, slot.len)
}

/// Bytes of memory that this process may not map.
pub fn read_fd(memory: &OwnedFd, offset: u64, len: u64) -> Result<Vec<u8>, Fault> {
    let mut content = vec![0; usize::try_from(len).map_err(internal)?];
    let mut done = 0;
    while done < content.len() {
        match rustix::io::pread(memory, &mut content[done..], offset + done as u64).map_err(internal)? {
            0 => return Err(internal("memory that is shorter than what is in it")),
            n => done += n,
        }
    }
    Ok(content)
}
