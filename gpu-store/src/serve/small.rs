//! Small objects: created and sealed in one request, in slabs.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpuvol_protocol::message::{Answer, INLINE_LIMIT, Kind, PutInline, Sealed};
use gpuvol_protocol::{Fault, ObjectPath};
use rustix::fs::MemfdFlags;

use super::check::{check_attributes, invalid, unknown};
use super::names::answered;
use super::put::{check_place, note_written, publish, too_much_memory};
use super::session::{Asker, Outcome};
use crate::catalogue::record::{self, Fact, SlabCreated};
use crate::catalogue::slab::{SLAB_SIZE, slot_size};
use crate::catalogue::state::memory_key;
use crate::node::{Node, internal};

pub fn put_inline(node: &Arc<Node>, asker: &Asker, request: u64, inline: PutInline) -> Outcome {
    let path = ObjectPath::new(inline.path.as_slice())?;
    asker.may_write(&path)?;
    let len = inline.content.len() as u64;
    if len > INLINE_LIMIT {
        return Err(invalid(format!("{path}: {len} bytes inline; {INLINE_LIMIT} are allowed")));
    }
    check_attributes(&path, &inline.attributes)?;
    Kind::try_from(inline.kind).map_err(|_| unknown(&path, "kind", inline.kind))?;
    note_written(node, &asker.volume)?;
    loop {
        let mut catalogue = node.catalogue();
        catalogue.lease(asker.lease)?;
        if let Some(version) = answered(&catalogue, asker, request) {
            return Ok((Answer::Sealed(Sealed { version }), vec![]));
        }
        check_place(&catalogue, &asker.volume, &path, inline.exclusive)?;
        node.books().check_host_object(&catalogue, &asker.volume, slot_size(len))?;
        let volume = catalogue.volume(&asker.volume)?;
        volume.quota.check(&asker.volume, &path.to_string(), slot_size(len))?;
        let Some(slot) = volume.slabs.find(len) else {
            drop(catalogue);
            new_slab(node, &asker.volume)?;
            continue;
        };
        let slab = catalogue.fd(slot.slab).ok_or_else(|| internal("a slab without memory"))?;
        write_slot(&slab, slot.offset, &inline.content)?;
        let sealed = record::Sealed {
            origin: asker.origin(request),
            kind: inline.kind,
            attributes: inline.attributes,
            slot: Some(slot),
            ..record::Sealed::default()
        };
        let version = publish(node, &mut catalogue, asker, &path, inline.exclusive, sealed)?;
        drop(catalogue);
        node.announce();
        return Ok((Answer::Sealed(Sealed { version }), vec![]));
    }
}

/// Copies an object's bytes into its slot. Memory to memory: short enough for the catalogue's lock.
pub fn write_slot(slab: &OwnedFd, offset: u64, content: &[u8]) -> Result<(), Fault> {
    let mut done = 0;
    while done < content.len() {
        done += rustix::io::pwrite(slab, &content[done..], offset + done as u64).map_err(internal)?;
    }
    Ok(())
}

pub fn new_slab(node: &Node, volume: &str) -> Result<(), Fault> {
    let fd = rustix::fs::memfd_create("gpuvol-slab", MemfdFlags::CLOEXEC).map_err(internal)?;
    // Its pages come as objects do, so a slab takes no more memory than they need.
    rustix::fs::ftruncate(&fd, SLAB_SIZE).map_err(internal)?;
    let fd = Arc::new(fd);
    let slab = {
        let mut catalogue = node.catalogue();
        if catalogue.memory_count() >= node.max_memory() {
            return Err(too_much_memory(node));
        }
        catalogue.new_id()
    };
    node.keeper.hold(&[(memory_key(slab), fd.clone())])?;
    let mut catalogue = node.catalogue();
    catalogue.adopt_fd(slab, fd);
    match catalogue.commit(Fact::SlabCreated(SlabCreated { volume: volume.to_owned(), slab })) {
        Ok(garbage) => {
            node.reap(garbage);
            Ok(())
        }
        Err(fault) => {
            node.reap(catalogue.disown_fd(slab));
            Err(fault)
        }
    }
}
