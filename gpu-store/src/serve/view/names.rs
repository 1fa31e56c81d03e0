//! Names by directory node: lookups, listings, directories, links, removing, renaming.

use std::sync::Arc;

use gpuvol_protocol::types::{MAX_NAME, SOCKET_NAME};
use gpuvol_protocol::view::{
    Lookup, MAX_LINK, MakeDirectory, MakeLink, Name, Names, ROOT, ReadDirectory, Remove, RenameNode, Value, ViewAnswer,
};
use gpuvol_protocol::{Code, Fault};

use super::describe::{self, gone, inner, outer};
use super::session::{Mounted, Outcome, done};
use crate::catalogue::meta;
use crate::catalogue::object::Content;
use crate::catalogue::record::{DirectoryMade, Fact, Meta, Renamed, Sealed, Unlinked};
use crate::catalogue::tree::Child;
use crate::catalogue::volume::Volume;
use crate::node::{Node, now_ms, now_ns};
use crate::serve::names::room_for_entry;

/// Most names of one answer; with the longest names it fits a frame.
const PAGE: usize = 1000;
/// Deepest nesting of directories. Clients reach as deep as their paths may be.
const MAX_LEVELS: usize = 1024;
const SET_GROUP: u32 = 0o2000;

fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// A directory to make or find names in.
pub fn directory(volume: &Volume, mount: &Mounted, node: u64) -> Result<u64, Fault> {
    let id = inner(volume, node);
    if volume.tree.is_directory(id) {
        return Ok(id);
    }
    if volume.objects.contains_key(&id) {
        let message = format!("node {node} of volume {} is no directory", mount.volume);
        return Err(Fault::new(Code::NotADirectory, message));
    }
    Err(gone(mount, node))
}

/// A name that may be given to something.
pub fn check_name(name: &[u8]) -> Result<(), Fault> {
    let why = match name {
        b"" | b"." | b".." => "no name",
        _ if name.len() > MAX_NAME => "longer than 255 bytes",
        _ if name.contains(&b'/') || name.contains(&0) => "no name",
        _ if name == SOCKET_NAME.as_bytes() => "reserved",
        _ => return Ok(()),
    };
    Err(Fault::new(Code::InvalidArgument, format!("{:?} is {why}", shown(name))))
}

fn not_found(mount: &Mounted, name: &[u8]) -> Fault {
    Fault::new(Code::NotFound, format!("{} does not exist in volume {}", shown(name), mount.volume))
}

pub fn exists(mount: &Mounted, name: &[u8]) -> Fault {
    Fault::new(Code::AlreadyExists, format!("{} exists in volume {}", shown(name), mount.volume))
}

/// What a mount sees at a name.
fn seen(volume: &Volume, mount: &Mounted, parent: u64, name: &[u8]) -> Option<Child> {
    match volume.tree.child(parent, name)? {
        Child::Object(id) => volume.seen(id, &mount.publish).map(|object| Child::Object(object.version)),
        directory @ Child::Directory(_) => Some(directory),
    }
}

pub fn lookup(node: &Arc<Node>, mount: &Mounted, lookup: &Lookup) -> Outcome {
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&mount.volume)?;
    let parent = directory(volume, mount, lookup.parent)?;
    let child = seen(volume, mount, parent, &lookup.name).ok_or_else(|| not_found(mount, &lookup.name))?;
    Ok((ViewAnswer::Node(describe::node(&catalogue, mount, child.id())?), Vec::new()))
}

pub fn get_node(node: &Arc<Node>, mount: &Mounted, id: u64) -> Outcome {
    Ok((ViewAnswer::Node(describe::node(&node.catalogue(), mount, id)?), Vec::new()))
}

pub fn read_directory(node: &Arc<Node>, mount: &Mounted, read: &ReadDirectory) -> Outcome {
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&mount.volume)?;
    let asked = inner(volume, read.node);
    if !volume.tree.is_directory(asked) && catalogue.graves.directory(asked).is_some() {
        return Ok((ViewAnswer::Names(Names { parent: ROOT, ..Names::default() }), Vec::new()));
    }
    let id = directory(volume, mount, read.node)?;
    let limit = match usize::try_from(read.limit) {
        Ok(0) | Err(_) => PAGE,
        Ok(limit) => limit.min(PAGE),
    };
    let mut answer = Names { parent: outer(volume, volume.tree.parent(id)), ..Names::default() };
    for (name, child, cookie) in volume.tree.listed(id, read.after) {
        if answer.names.len() == limit {
            answer.more = true;
            break;
        }
        let report = match child {
            Child::Directory(id) => volume.tree.meta(id).map(|meta| describe::directory(volume, id, meta)),
            Child::Object(id) => {
                volume.seen(id, &mount.publish).map(|object| describe::file(&catalogue, volume, object))
            }
        };
        if report.is_some() {
            answer.names.push(Name { name: name.to_vec(), cookie, node: report });
        }
    }
    Ok((ViewAnswer::Names(answer), Vec::new()))
}

/// A new node's meta; in a set-group-id directory it is of the directory's group.
pub fn new_meta(volume: &Volume, parent: u64, mode: u32, owner: (u32, u32), time_ns: i64, directory: bool) -> Meta {
    let above = volume.tree.meta(parent);
    match above.filter(|above| above.mode & SET_GROUP != 0) {
        Some(above) => {
            let mode = if directory { mode | SET_GROUP } else { mode };
            meta::new(mode, owner.0, above.gid, time_ns)
        }
        None => meta::new(mode, owner.0, owner.1, time_ns),
    }
}

pub fn make_directory(node: &Arc<Node>, mount: &Mounted, make: &MakeDirectory) -> Outcome {
    mount.may_write()?;
    check_name(&make.name)?;
    let mut catalogue = node.catalogue();
    if let Some(id) = mount.answered(&catalogue) {
        return Ok((ViewAnswer::Node(describe::node(&catalogue, mount, id)?), Vec::new()));
    }
    let volume = catalogue.volume(&mount.volume)?;
    let parent = directory(volume, mount, make.parent)?;
    if volume.tree.child(parent, &make.name).is_some() {
        return Err(exists(mount, &make.name));
    }
    check_depth(volume, mount, parent, &make.name)?;
    room_for_entry(volume, &shown(&make.name))?;
    let time_ns = now_ns();
    let meta = new_meta(volume, parent, make.mode, (make.uid, make.gid), time_ns, true);
    let id = catalogue.new_id();
    let made = DirectoryMade {
        volume: mount.volume.clone(),
        origin: mount.origin(),
        parent,
        name: make.name.clone(),
        directory: id,
        time_ms: now_ms(),
        meta: Some(meta),
        cookie: 0,
    };
    node.reap(catalogue.commit(Fact::DirectoryMade(made))?);
    Ok((ViewAnswer::Node(describe::node(&catalogue, mount, id)?), Vec::new()))
}

/// Walks up a tree of directories must end soon.
fn check_depth(volume: &Volume, mount: &Mounted, parent: u64, name: &[u8]) -> Result<(), Fault> {
    let (mut at, mut depth) = (parent, 1);
    while at != volume.tree.root() && depth < MAX_LEVELS {
        at = volume.tree.parent(at);
        depth += 1;
    }
    if depth < MAX_LEVELS {
        return Ok(());
    }
    let message =
        format!("{} in volume {} would be nested deeper than {MAX_LEVELS} directories", shown(name), mount.volume);
    Err(Fault::new(Code::InvalidArgument, message))
}

pub fn make_link(node: &Arc<Node>, mount: &Mounted, make: &MakeLink) -> Outcome {
    mount.may_write()?;
    check_name(&make.name)?;
    if make.target.is_empty() || make.target.len() > MAX_LINK {
        let message = format!("a link's target of {} bytes; 1 to {MAX_LINK} are allowed", make.target.len());
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    let mut catalogue = node.catalogue();
    if let Some(id) = mount.answered(&catalogue) {
        return Ok((ViewAnswer::Node(describe::node(&catalogue, mount, id)?), Vec::new()));
    }
    let volume = catalogue.volume(&mount.volume)?;
    let parent = directory(volume, mount, make.parent)?;
    if volume.tree.child(parent, &make.name).is_some() {
        return Err(exists(mount, &make.name));
    }
    room_for_entry(volume, &shown(&make.name))?;
    let time_ns = now_ns();
    let meta = new_meta(volume, parent, 0o777, (make.uid, make.gid), time_ns, false);
    let version = catalogue.new_id();
    let sealed = Sealed {
        volume: mount.volume.clone(),
        origin: mount.origin(),
        version,
        parent,
        name: make.name.clone(),
        link: make.target.clone(),
        meta: Some(meta),
        time_ms: now_ms(),
        producer: mount.producer.clone(),
        ..Sealed::default()
    };
    node.reap(catalogue.commit(Fact::Sealed(sealed))?);
    Ok((ViewAnswer::Node(describe::node(&catalogue, mount, version)?), Vec::new()))
}

pub fn read_link(node: &Arc<Node>, mount: &Mounted, id: u64) -> Outcome {
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&mount.volume)?;
    match volume.objects.get(&id).map(|object| &object.content) {
        Some(Content::Link(target)) => Ok((ViewAnswer::Value(Value { value: target.clone() }), Vec::new())),
        Some(_) => Err(Fault::new(Code::InvalidArgument, format!("node {id} of {} is no link", mount.volume))),
        None => Err(gone(mount, id)),
    }
}

pub fn remove(node: &Arc<Node>, mount: &Mounted, remove: &Remove) -> Outcome {
    mount.may_write()?;
    let mut catalogue = node.catalogue();
    if mount.answered(&catalogue).is_some() {
        return done();
    }
    let volume = catalogue.volume(&mount.volume)?;
    let parent = directory(volume, mount, remove.parent)?;
    let name = remove.name.as_slice();
    match seen(volume, mount, parent, name).ok_or_else(|| not_found(mount, name))? {
        Child::Directory(_) if !remove.directory => {
            let message = format!("{} in volume {} is a directory", shown(name), mount.volume);
            return Err(Fault::new(Code::IsADirectory, message));
        }
        Child::Object(_) if remove.directory => {
            let message = format!("{} in volume {} is no directory", shown(name), mount.volume);
            return Err(Fault::new(Code::NotADirectory, message));
        }
        Child::Directory(id) if !volume.tree.is_empty(id) => {
            let message = format!("directory {} in volume {} is not empty", shown(name), mount.volume);
            return Err(Fault::new(Code::NotEmpty, message));
        }
        Child::Directory(_) | Child::Object(_) => {}
    }
    let unlinked = Unlinked {
        volume: mount.volume.clone(),
        origin: mount.origin(),
        parent,
        name: name.to_vec(),
        time_ns: now_ns(),
    };
    node.reap(catalogue.commit(Fact::Unlinked(unlinked))?);
    done()
}

pub fn rename(node: &Arc<Node>, mount: &Mounted, rename: &RenameNode) -> Outcome {
    mount.may_write()?;
    check_name(&rename.name)?;
    check_name(&rename.new_name)?;
    let mut catalogue = node.catalogue();
    if mount.answered(&catalogue).is_some() {
        return done();
    }
    let volume = catalogue.volume(&mount.volume)?;
    let (from, to) = (directory(volume, mount, rename.parent)?, directory(volume, mount, rename.new_parent)?);
    seen(volume, mount, from, &rename.name).ok_or_else(|| not_found(mount, &rename.name))?;
    let source = volume.tree.child(from, &rename.name).ok_or_else(|| not_found(mount, &rename.name))?;
    let target = volume.tree.child(to, &rename.new_name);
    match check_rename(volume, mount, rename, (source, to), (target, from))? {
        Change::Nothing => return done(),
        Change::Names => {}
    }
    let renamed = Renamed {
        volume: mount.volume.clone(),
        origin: mount.origin(),
        from_parent: from,
        from_name: rename.name.clone(),
        to_parent: to,
        to_name: rename.new_name.clone(),
        exchange: rename.exchange,
        time_ns: now_ns(),
    };
    node.reap(catalogue.commit(Fact::Renamed(renamed))?);
    drop(catalogue);
    node.announce();
    done()
}

enum Change {
    Nothing,
    Names,
}

/// May the source go to the directory beside it, and the target (where they change places) to its own?
fn check_rename(
    volume: &Volume,
    mount: &Mounted,
    rename: &RenameNode,
    (source, to): (Child, u64),
    (target, from): (Option<Child>, u64),
) -> Result<Change, Fault> {
    let into_itself =
        |child: Child, directory| matches!(child, Child::Directory(id) if volume.tree.is_within(directory, id));
    if into_itself(source, to) || (rename.exchange && target.is_some_and(|target| into_itself(target, from))) {
        let message = format!("{} cannot be moved into itself", shown(&rename.name));
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    let new_name = shown(&rename.new_name);
    match (source, target) {
        (_, None) if rename.exchange => Err(not_found(mount, &rename.new_name)),
        (_, Some(_)) if rename.no_replace => Err(exists(mount, &rename.new_name)),
        (source, Some(target)) if source == target => Ok(Change::Nothing),
        _ if rename.exchange => Ok(Change::Names),
        (Child::Object(_), Some(Child::Directory(_))) => {
            let message = format!("{new_name} in volume {} is a directory", mount.volume);
            Err(Fault::new(Code::IsADirectory, message))
        }
        (Child::Directory(_), Some(Child::Object(_))) => {
            let message = format!("{new_name} in volume {} is no directory", mount.volume);
            Err(Fault::new(Code::NotADirectory, message))
        }
        (Child::Directory(_), Some(Child::Directory(id))) if !volume.tree.is_empty(id) => {
            let message = format!("directory {new_name} in volume {} is not empty", mount.volume);
            Err(Fault::new(Code::NotEmpty, message))
        }
        _ => Ok(Change::Names),
    }
}

pub fn stat_volume(node: &Arc<Node>, mount: &Mounted) -> Outcome {
    let catalogue = node.catalogue();
    let leases = catalogue.leases.values().filter(|l| l.volume.as_str() == mount.volume && !l.mount).count();
    let usage = catalogue.volume(&mount.volume)?.usage(leases as u64);
    Ok((ViewAnswer::Usage(usage), Vec::new()))
}
