//! Attributes of nodes: permissions, owner, times, size, and extended attributes.

use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::view::{GetXattr, MAX_XATTR_VALUE, MAX_XATTRS, SetAttributes, SetXattr, Value, ViewAnswer};
use gpuvol_protocol::{Code, DeviceUuid, Fault};
use rustix::fs::{Timespec, Timestamps};

use super::describe::{self, gone, inner};
use super::drafts;
use super::freeze::freeze;
use super::session::{Mounted, Outcome, done};
use crate::catalogue::meta::{self, MODE_BITS};
use crate::catalogue::object::Object;
use crate::catalogue::record::{Fact, Meta, MetaChanged};
use crate::catalogue::state::Catalogue;
use crate::catalogue::volume::Volume;
use crate::node::{Node, internal, now_ns};

/// Attributes that the store makes up: read-only, and not listed, so that copying a file's attributes does not fail.
const OWN: &[u8] = b"user.gpuvol.";
/// Nothing but the namespace.
const NAMELESS: &[u8] = b"user.";

pub fn set(node: &Arc<Node>, mount: &Mounted, set: &SetAttributes) -> Outcome {
    mount.may_write()?;
    if let Some(size) = set.size {
        resize(node, mount, set.node, size)?;
    }
    let mut catalogue = drafts::idle(node, &mount.volume, set.node)?;
    let volume = catalogue.volume(&mount.volume)?;
    let id = inner(volume, set.node);
    let mut meta = meta_of(volume, id).ok_or_else(|| gone(mount, set.node))?.clone();
    let before = meta.clone();
    meta.mode = set.mode.unwrap_or(meta.mode) & MODE_BITS;
    meta.uid = set.uid.unwrap_or(meta.uid);
    meta.gid = set.gid.unwrap_or(meta.gid);
    meta.atime_ns = set.atime_ns.unwrap_or(meta.atime_ns);
    meta.mtime_ns = set.mtime_ns.unwrap_or(meta.mtime_ns);
    let memory = volume.draft(id).map(|draft| draft.memory).and_then(|memory| catalogue.fd(memory));
    if let (Some(mtime), Some(memory)) = (set.mtime_ns, memory) {
        // Where there is memory, its time is the file's.
        let times = Timestamps { last_access: timespec(meta.atime_ns), last_modification: timespec(mtime) };
        rustix::fs::futimens(memory.as_fd(), &times).map_err(internal)?;
    }
    if meta != before || set.mtime_ns.is_some() {
        meta.ctime_ns = now_ns();
        change(node, &mut catalogue, mount, id, meta)?;
    }
    let report = describe::node(&catalogue, mount, set.node)?;
    drop(catalogue);
    if set.size.is_some() {
        // Nobody may have it open: then this was all there is to write.
        freeze(node, &mount.volume, id)?;
    }
    Ok((ViewAnswer::Node(report), Vec::new()))
}

fn resize(node: &Arc<Node>, mount: &Mounted, id: u64, size: u64) -> Result<(), Fault> {
    let mut catalogue = drafts::idle(node, &mount.volume, id)?;
    let volume = catalogue.volume(&mount.volume)?;
    if volume.tree.is_directory(inner(volume, id)) {
        return Err(Fault::new(Code::IsADirectory, format!("node {id} of volume {} is a directory", mount.volume)));
    }
    let object = volume.objects.get(&id).ok_or_else(|| gone(mount, id))?;
    if object.as_draft().is_none() {
        if let Some(draft) = drafts::over(node, &mut catalogue, mount, id)? {
            drafts::expect(node, &mut catalogue, mount, draft)?;
        }
        return Err(Fault::new(
            Code::Stale,
            format!("node {id} of volume {} is sealed; its draft is written", mount.volume),
        ));
    }
    drop(catalogue);
    drafts::resize(node, mount, id, size)
}

fn timespec(ns: i64) -> Timespec {
    Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) }
}

fn meta_of(volume: &Volume, id: u64) -> Option<&Meta> {
    volume.objects.get(&id).map(|object| &object.meta).or_else(|| volume.tree.meta(id))
}

fn change(node: &Node, catalogue: &mut Catalogue, mount: &Mounted, id: u64, meta: Meta) -> Result<(), Fault> {
    let changed = MetaChanged { volume: mount.volume.clone(), node: id, meta: Some(meta) };
    node.reap(catalogue.commit(Fact::MetaChanged(changed))?);
    Ok(())
}

fn nameless() -> Fault {
    Fault::new(Code::InvalidArgument, "an attribute without a name")
}

fn no_attribute(name: &[u8]) -> Fault {
    Fault::new(Code::NoData, format!("no attribute {}", String::from_utf8_lossy(name)))
}

pub fn get_xattr(node: &Arc<Node>, mount: &Mounted, get: &GetXattr) -> Outcome {
    if get.name == NAMELESS {
        return Err(nameless());
    }
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&mount.volume)?;
    let id = inner(volume, get.node);
    let value = match get.name.strip_prefix(OWN) {
        Some(own) => own_attribute(volume, id, own),
        None => meta::xattr(meta_of(volume, id).ok_or_else(|| gone(mount, get.node))?, &get.name).map(<[u8]>::to_vec),
    };
    let value = value.ok_or_else(|| no_attribute(&get.name))?;
    Ok((ViewAnswer::Value(Value { value }), Vec::new()))
}

/// What the store knows of a node: its path from the volume's root, and of a sealed object kind, tier, GPU, version,
/// producer.
fn own_attribute(volume: &Volume, id: u64, name: &[u8]) -> Option<Vec<u8>> {
    if name == b"path" {
        return volume.tree.path(id);
    }
    let object: &Object = volume.objects.get(&id)?;
    let text = match name {
        b"kind" if object.as_draft().is_some() => "draft".to_owned(),
        b"kind" => object.kind.name().to_owned(),
        b"tier" => object.tier().name().to_owned(),
        b"device" => DeviceUuid::try_from(object.device()).ok()?.to_string(),
        b"version" => object.version.to_string(),
        b"producer" => object.producer.clone(),
        _ => return None,
    };
    Some(text.into_bytes())
}

pub fn list_xattrs(node: &Arc<Node>, mount: &Mounted, id: u64) -> Outcome {
    let catalogue = node.catalogue();
    let volume = catalogue.volume(&mount.volume)?;
    let meta = meta_of(volume, inner(volume, id)).ok_or_else(|| gone(mount, id))?;
    let mut value = Vec::new();
    for xattr in &meta.xattrs {
        value.extend_from_slice(&xattr.name);
        value.push(0);
    }
    Ok((ViewAnswer::Value(Value { value }), Vec::new()))
}

pub fn set_xattr(node: &Arc<Node>, mount: &Mounted, set: &SetXattr) -> Outcome {
    mount.may_write()?;
    let name = String::from_utf8_lossy(&set.name);
    if set.name.starts_with(OWN) {
        return Err(Fault::new(
            Code::NotPermitted,
            format!("{name} is the store's own attribute and cannot be changed"),
        ));
    }
    if set.name == NAMELESS {
        return Err(nameless());
    }
    let mut catalogue = node.catalogue();
    if mount.answered(&catalogue).is_some() {
        return done();
    }
    let volume = catalogue.volume(&mount.volume)?;
    let id = inner(volume, set.node);
    let mut meta = meta_of(volume, id).ok_or_else(|| gone(mount, set.node))?.clone();
    let there = meta::xattr(&meta, &set.name).is_some();
    if there && set.create {
        return Err(Fault::new(Code::AlreadyExists, format!("attribute {name} exists")));
    }
    if !there && (set.replace || set.value.is_none()) {
        return Err(no_attribute(&set.name));
    }
    meta::set_xattr(&mut meta, &set.name, set.value.as_deref());
    let total: usize = meta.xattrs.iter().map(|x| x.name.len() + x.value.len()).sum();
    let value = set.value.as_ref().map_or(0, Vec::len);
    if value > MAX_XATTR_VALUE || total > MAX_XATTRS {
        let message = format!(
            "attribute {name} of {value} bytes, {total} bytes together; {MAX_XATTR_VALUE} and {MAX_XATTRS} are allowed"
        );
        return Err(Fault::new(Code::LimitExceeded, message));
    }
    meta.ctime_ns = now_ns();
    change(node, &mut catalogue, mount, id, meta)?;
    done()
}
