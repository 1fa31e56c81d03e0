//! Requests about names: stat, list, rename, unlink, mkdir, statfs.

use std::sync::Arc;

use gpuvol_protocol::message::{Answer, Done, Entries, Entry, List, Mkdir, Rename, Stat, Unlink};
use gpuvol_protocol::{Code, Fault, ObjectPath};

use super::open::seal_what_is_written;
use super::session::{Asker, Outcome};
use crate::catalogue::meta;
use crate::catalogue::record::{DirectoryMade, Fact, Renamed, Unlinked};
use crate::catalogue::state::Catalogue;
use crate::catalogue::tree::{Child, PathError};
use crate::catalogue::volume::Volume;
use crate::node::{Node, now_ms, now_ns};

/// Most entries of one page; with names and producers of the greatest length it fits a frame.
const PAGE: usize = 1000;

/// The error for a path that leads nowhere.
pub fn not_there(volume: &str, path: &ObjectPath, error: PathError) -> Fault {
    match error {
        PathError::NotFound => Fault::new(Code::NotFound, format!("{path} does not exist in volume {volume}")),
        PathError::NotADirectory => {
            let message = format!("{path} cannot exist in volume {volume}: a part of it is an object, not a directory");
            Fault::new(Code::NotADirectory, message)
        }
    }
}

fn is_a_directory(volume: &str, path: &ObjectPath) -> Fault {
    Fault::new(Code::IsADirectory, format!("{path} in volume {volume} is a directory"))
}

/// A path that must name something: not the root.
pub fn named(path: &ObjectPath) -> Result<(ObjectPath, &[u8]), Fault> {
    path.split()
        .ok_or_else(|| Fault::new(Code::InvalidArgument, "the root of a volume cannot be put, moved or removed"))
}

/// What is at a path that may be written: its parent's id, and what has the name now.
pub fn place(catalogue: &Catalogue, volume: &str, path: &ObjectPath) -> Result<(u64, Vec<u8>, Option<Child>), Fault> {
    let (parent, name) = named(path)?;
    let tree = &catalogue.volume(volume)?.tree;
    match tree.lookup(&parent).map_err(|e| not_there(volume, &parent, e))? {
        Child::Directory(id) => Ok((id, name.to_vec(), tree.child(id, name))),
        Child::Object(_) => Err(not_there(volume, path, PathError::NotADirectory)),
    }
}

/// Makes the missing parents of a path: putting `a/b/c` does not need `a/b` first.
pub fn make_parents(node: &Node, catalogue: &mut Catalogue, asker: &Asker, parent: &ObjectPath) -> Result<u64, Fault> {
    let volume = asker.volume.as_str();
    let found = catalogue.volume(volume)?;
    let (mut at, missing) = found.tree.descend(parent).map_err(|e| not_there(volume, parent, e))?;
    let missing: Vec<Vec<u8>> = missing.into_iter().map(<[u8]>::to_vec).collect();
    for name in missing {
        room_for_entry(catalogue.volume(volume)?, &parent.to_string())?;
        let directory = catalogue.new_id();
        let made = DirectoryMade { volume: volume.to_owned(), parent: at, name, directory, ..new_directory(asker) };
        node.reap(catalogue.commit(Fact::DirectoryMade(made))?);
        at = directory;
    }
    Ok(at)
}

fn new_directory(asker: &Asker) -> DirectoryMade {
    let time_ms = now_ms();
    DirectoryMade { time_ms, meta: Some(meta::of_directory(time_ms, asker.owner)), ..DirectoryMade::default() }
}

/// One entry more, or the error that names how many there may be.
pub fn room_for_entry(volume: &Volume, path: &str) -> Result<(), Fault> {
    let (entries, most) = (volume.tree.entries(), volume.max_entries());
    if entries < most {
        return Ok(());
    }
    let message = format!(
        "no room for the name {path} in volume {}: it has {entries} objects and directories, the most for its capacity; remove some, or give it a larger capacity",
        volume.spec.id
    );
    Err(Fault::new(Code::LimitExceeded, message))
}

/// What a client sees at a name; `None` for a file that its first writer has not closed yet.
fn entry_of(volume: &Volume, name: &[u8], child: Child) -> Option<Entry> {
    match child {
        Child::Directory(id) => Some(Entry {
            name: name.to_vec(),
            directory: true,
            version: id,
            time_ms: volume.tree.time_ms(id),
            ..Entry::default()
        }),
        Child::Object(version) => volume.sealed(version).map(|o| o.entry(name)),
    }
}

pub fn stat(node: &Arc<Node>, asker: &Asker, stat: &Stat) -> Outcome {
    let path = ObjectPath::new(stat.path.as_slice())?;
    seal_what_is_written(node, &asker.volume, &path)?;
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&asker.volume)?;
    let child = volume.tree.lookup(&path).map_err(|e| not_there(&asker.volume, &path, e))?;
    let name = path.split().map_or(&[][..], |(_, name)| name);
    let entry = entry_of(volume, name, child).ok_or_else(|| not_there(&asker.volume, &path, PathError::NotFound))?;
    Ok((Answer::Entry(entry), vec![]))
}

pub fn list(node: &Arc<Node>, asker: &Asker, list: &List) -> Outcome {
    let path = ObjectPath::new(list.path.as_slice())?;
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&asker.volume)?;
    let directory = match volume.tree.lookup(&path).map_err(|e| not_there(&asker.volume, &path, e))? {
        Child::Directory(id) => id,
        Child::Object(_) => {
            let message = format!("{path} in volume {} is an object, not a directory", asker.volume);
            return Err(Fault::new(Code::NotADirectory, message));
        }
    };
    let limit = match usize::try_from(list.limit) {
        Ok(0) | Err(_) => PAGE,
        Ok(limit) => limit.min(PAGE),
    };
    let mut names = volume.tree.after(directory, &list.after);
    let mut entries = Vec::new();
    let more = loop {
        let Some((name, child)) = names.next() else { break false };
        if entries.len() == limit {
            break true;
        }
        // Attributes are for stat and open: a page of them could outgrow a frame.
        entries.extend(entry_of(volume, name, child).map(|entry| Entry { attributes: Vec::new(), ..entry }));
    };
    Ok((Answer::Entries(Entries { entries, more }), vec![]))
}

/// Has an earlier sending of this request been answered?
pub fn answered(catalogue: &Catalogue, asker: &Asker, request: u64) -> Option<u64> {
    catalogue.leases.get(&asker.lease).and_then(|lease| lease.answer(request))
}

fn done() -> Outcome {
    Ok((Answer::Done(Done {}), vec![]))
}

pub fn rename(node: &Arc<Node>, asker: &Asker, request: u64, rename: &Rename) -> Outcome {
    let (from, to) = (ObjectPath::new(rename.from.as_slice())?, ObjectPath::new(rename.to.as_slice())?);
    asker.may_write(&from)?;
    let mut catalogue = node.catalogue();
    if answered(&catalogue, asker, request).is_some() {
        return done();
    }
    let volume = asker.volume.as_str();
    let (from_parent, from_name, source) = place(&catalogue, volume, &from)?;
    let (to_parent, to_name, target) = place(&catalogue, volume, &to)?;
    let source = source.ok_or_else(|| not_there(volume, &from, PathError::NotFound))?;
    let tree = &catalogue.volume(volume)?.tree;
    if let Child::Directory(id) = source
        && tree.is_within(to_parent, id)
    {
        let message = format!("{from} cannot be moved into itself, to {to}");
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    match (source, target) {
        (_, Some(_)) if rename.no_replace => {
            return Err(Fault::new(Code::AlreadyExists, format!("{to} exists in volume {volume}")));
        }
        (source, Some(target)) if source == target => return done(),
        (Child::Object(_), Some(Child::Directory(_))) => return Err(is_a_directory(volume, &to)),
        (Child::Directory(_), Some(Child::Object(_))) => {
            let message = format!("directory {from} cannot replace object {to} in volume {volume}");
            return Err(Fault::new(Code::NotADirectory, message));
        }
        (Child::Directory(_), Some(Child::Directory(id))) if !tree.is_empty(id) => {
            return Err(Fault::new(Code::NotEmpty, format!("directory {to} in volume {volume} is not empty")));
        }
        _ => {}
    }
    let renamed = Renamed {
        volume: volume.to_owned(),
        origin: asker.origin(request),
        from_parent,
        from_name,
        to_parent,
        to_name,
        exchange: false,
        time_ns: now_ns(),
    };
    node.reap(catalogue.commit(Fact::Renamed(renamed))?);
    drop(catalogue);
    node.announce();
    done()
}

pub fn unlink(node: &Arc<Node>, asker: &Asker, request: u64, unlink: &Unlink) -> Outcome {
    let path = ObjectPath::new(unlink.path.as_slice())?;
    asker.may_write(&path)?;
    let mut catalogue = node.catalogue();
    if answered(&catalogue, asker, request).is_some() {
        return done();
    }
    let volume = asker.volume.as_str();
    let (parent, name, child) = place(&catalogue, volume, &path)?;
    match child.ok_or_else(|| not_there(volume, &path, PathError::NotFound))? {
        Child::Directory(_) if !unlink.directory => return Err(is_a_directory(volume, &path)),
        Child::Object(_) if unlink.directory => {
            let message = format!("{path} in volume {volume} is an object, not a directory");
            return Err(Fault::new(Code::NotADirectory, message));
        }
        Child::Directory(id) if !catalogue.volume(volume)?.tree.is_empty(id) => {
            return Err(Fault::new(Code::NotEmpty, format!("directory {path} in volume {volume} is not empty")));
        }
        _ => {}
    }
    let unlinked =
        Unlinked { volume: volume.to_owned(), origin: asker.origin(request), parent, name, time_ns: now_ns() };
    node.reap(catalogue.commit(Fact::Unlinked(unlinked))?);
    done()
}

pub fn mkdir(node: &Arc<Node>, asker: &Asker, request: u64, mkdir: &Mkdir) -> Outcome {
    let path = ObjectPath::new(mkdir.path.as_slice())?;
    asker.may_write(&path)?;
    let mut catalogue = node.catalogue();
    if answered(&catalogue, asker, request).is_some() {
        return done();
    }
    let volume = asker.volume.as_str();
    if mkdir.parents {
        make_parents(node, &mut catalogue, asker, &path)?;
        return done();
    }
    let (parent, name, child) = place(&catalogue, volume, &path)?;
    if child.is_some() {
        return Err(Fault::new(Code::AlreadyExists, format!("{path} exists in volume {volume}")));
    }
    room_for_entry(catalogue.volume(volume)?, &path.to_string())?;
    let directory = catalogue.new_id();
    let made = DirectoryMade {
        volume: volume.to_owned(),
        origin: asker.origin(request),
        parent,
        name,
        directory,
        ..new_directory(asker)
    };
    node.reap(catalogue.commit(Fact::DirectoryMade(made))?);
    done()
}

pub fn statfs(node: &Arc<Node>, asker: &Asker) -> Outcome {
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&asker.volume)?;
    let leases = catalogue.leases.values().filter(|l| l.volume.as_str() == asker.volume && !l.mount).count();
    Ok((Answer::Usage(volume.usage(leases as u64)), vec![]))
}
