//! Requests that make objects of their own memory: create, attach, seal, abort.
//!
//! The order that makes a crash at any point harmless: take quota, make the memory, give its descriptor to the keeper,
//! then commit the fact. Whatever the keeper holds without a fact is dropped at the next start.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpuvol_memory::{HostMemory, Memory};
use gpuvol_protocol::message::{
    Abort, Allocation, AllocationKind, Answer, Attach, Create, Created, Done, Kind, Seal, Sealed, Tier,
};
use gpuvol_protocol::types::{Bytes, size};
use gpuvol_protocol::{Code, DeviceUuid, Fault, ObjectPath};

use super::check::{
    check_attributes, check_charge, check_count, check_descriptors, check_segments, invalid, seal_memfd, unknown,
};
use super::names::{answered, make_parents, named, place, room_for_entry};
use super::pending::Pending;
use super::session::{Answered, Asker, Outcome};
use crate::catalogue::meta;
use crate::catalogue::object::Reservation;
use crate::catalogue::quota::charge;
use crate::catalogue::record::{self, DeviceBound, Fact, ReservationDropped, Reserved};
use crate::catalogue::state::{Catalogue, memory_key};
use crate::catalogue::tree::{Child, PathError};
use crate::node::{Node, internal, now_ms};

/// Most reservations of one lease at once.
const MAX_RESERVATIONS: usize = 1024;

pub fn create(node: &Arc<Node>, asker: &Asker, request: u64, create: &Create) -> Outcome {
    let path = ObjectPath::new(create.path.as_slice())?;
    asker.may_write(&path)?;
    named(&path)?;
    let tier = Tier::try_from(create.tier).map_err(|_| unknown(&path, "tier", create.tier))?;
    if size(create.size)? == 0 {
        return Err(invalid(format!("{path}: an object of 0 bytes takes no memory; put it inline")));
    }
    note_written(node, &asker.volume)?;
    let bytes = charge(tier, create.size);
    let device = match tier {
        Tier::Host => Vec::new(),
        Tier::Gpu => {
            DeviceUuid::try_from(create.device.as_slice()).map_err(|e| invalid(format!("{path}: {e}")))?.0.to_vec()
        }
    };
    if tier == Tier::Gpu {
        node.books().check_device(&device)?;
    }

    let (pending, reservation, memory) = {
        let mut catalogue = node.catalogue();
        if let Some(outcome) = created_before(&catalogue, asker, request)? {
            return Ok(outcome);
        }
        check_place(&catalogue, &asker.volume, &path, false)?;
        if tier == Tier::Gpu {
            catalogue.volume(&asker.volume)?.quota.check(&asker.volume, &path.to_string(), bytes)?;
            bind_device(node, &mut catalogue, &asker.volume, &path, &device)?;
        } else {
            node.books().check_host_object(&catalogue, &asker.volume, bytes)?;
        }
        if catalogue.memory_count() >= node.max_memory() {
            return Err(too_much_memory(node));
        }
        catalogue.volume(&asker.volume)?.quota.check(&asker.volume, &path.to_string(), bytes)?;
        let pending = Pending::take(node, &mut catalogue, &asker.volume, tier, bytes)?;
        (pending, catalogue.new_id(), catalogue.new_id())
    };

    let fd = match tier {
        Tier::Gpu => None,
        // Of exactly the object's size: then a mount lets the kernel read it by itself.
        Tier::Host => Some(host_memory(node, asker, &path, memory, create.size)?),
    };
    let allocation = fd.as_ref().map(|_| Allocation {
        id: memory,
        kind: AllocationKind::Memfd.into(),
        len: create.size,
        device: Vec::new(),
    });
    let reserved = Reserved {
        volume: asker.volume.clone(),
        origin: asker.origin(request),
        reservation,
        path: path.as_bytes().to_vec(),
        charge: bytes,
        tier: tier.into(),
        device,
        allocation,
    };
    let mut catalogue = node.catalogue();
    pending.settle(&mut catalogue);
    if let Some(fd) = &fd {
        catalogue.adopt_fd(memory, fd.clone());
    }
    // The client may have gone, or the volume with it, or the request may have come again, while its memory was made.
    let still = created_before(&catalogue, asker, request);
    if let Ok(Some(outcome)) = still {
        node.reap(catalogue.disown_fd(memory));
        return Ok(outcome);
    }
    let committed = still.and_then(|_| catalogue.commit(Fact::Reserved(reserved)));
    match committed {
        Ok(garbage) => node.reap(garbage),
        Err(fault) => {
            node.reap(catalogue.disown_fd(memory));
            return Err(fault);
        }
    }
    drop(catalogue);
    Ok((Answer::Created(Created { reservation, reserved: bytes }), fd.into_iter().collect()))
}

/// The reservation that an earlier sending of this request made.
fn created_before(catalogue: &Catalogue, asker: &Asker, request: u64) -> Result<Option<Answered>, Fault> {
    let lease = catalogue.lease(asker.lease)?;
    let Some(id) = lease.reservations.get(&request).copied() else {
        if lease.reservations.len() >= MAX_RESERVATIONS {
            let message =
                format!("this client has {MAX_RESERVATIONS} objects that it did not seal; seal or abort them");
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        return Ok(None);
    };
    let Some(reservation) = catalogue.volume(&asker.volume)?.reservations.get(&id) else { return Ok(None) };
    let fd = reservation.allocation.as_ref().and_then(|a| catalogue.fd(a.id));
    let created = Created { reservation: id, reserved: reservation.charge };
    Ok(Some((Answer::Created(created), fd.into_iter().collect())))
}

/// May an object appear at this path?
pub fn check_place(catalogue: &Catalogue, volume: &str, path: &ObjectPath, exclusive: bool) -> Result<(), Fault> {
    let volume_state = catalogue.volume(volume)?;
    match volume_state.tree.lookup(path) {
        Ok(Child::Directory(_)) => {
            let message = format!("{path} in volume {volume} is a directory; an object cannot replace it");
            Err(Fault::new(Code::IsADirectory, message))
        }
        Ok(Child::Object(_)) if exclusive => {
            Err(Fault::new(Code::AlreadyExists, format!("{path} exists in volume {volume}")))
        }
        Ok(Child::Object(_)) => Ok(()),
        Err(PathError::NotFound) => room_for_entry(volume_state, &path.to_string()),
        Err(error) => Err(super::names::not_there(volume, path, error)),
    }
}

/// A volume lives on one GPU: the one its class names, or the one of its first device put.
fn bind_device(
    node: &Node,
    catalogue: &mut Catalogue,
    id: &str,
    path: &ObjectPath,
    device: &[u8],
) -> Result<(), Fault> {
    let volume = catalogue.volume(id)?;
    if volume.tier() == Tier::Host {
        let message = format!(
            "{path}: volume {id} is of tier host and takes no GPU memory; copy the data to the host, or use a class with gpuvol.dev/tier: gpu"
        );
        return Err(Fault::new(Code::Unsupported, message));
    }
    if volume.device.is_empty() {
        let bound = DeviceBound { volume: id.to_owned(), device: device.to_vec() };
        node.reap(catalogue.commit(Fact::DeviceBound(bound))?);
        return Ok(());
    }
    if volume.device == device {
        return Ok(());
    }
    let name = |uuid: &[u8]| DeviceUuid::try_from(uuid).map_or_else(|e| e.to_string(), |u| u.to_string());
    let message = format!(
        "{path}: the data is on {}, volume {id} lives on {}; run the stage on that GPU, or use another volume",
        name(device),
        name(&volume.device)
    );
    Err(Fault::new(Code::DeviceMismatch, message))
}

/// A memfd with all its pages, which the keeper holds.
fn host_memory(node: &Node, asker: &Asker, path: &ObjectPath, id: u64, len: u64) -> Result<Arc<OwnedFd>, Fault> {
    let memory = HostMemory.create(len).map_err(|error| {
        let message = format!(
            "no host memory for {path} in volume {}: {} could not be made: {error}; the node is short of memory",
            asker.volume,
            Bytes(len)
        );
        Fault { need: len, ..Fault::new(Code::OutOfMemory, message) }
    })?;
    let fd = Arc::new(memory.into_fd());
    node.keeper.hold(&[(memory_key(id), fd.clone())])?;
    Ok(fd)
}

pub fn attach(node: &Arc<Node>, asker: &Asker, request: u64, attach: Attach, fds: Vec<OwnedFd>) -> Outcome {
    let reservation = {
        let catalogue = node.catalogue();
        if answered(&catalogue, asker, request).is_some() {
            return Ok((Answer::Done(Done {}), vec![]));
        }
        owned_reservation(&catalogue, asker, attach.reservation)?
    };
    let path = ObjectPath::new(reservation.path.as_slice())?;
    check_descriptors(node, &path, &reservation, &attach.allocations, &fds)?;
    let mut allocations: Vec<Allocation> = reservation.memory().cloned().collect();
    allocations.extend(attach.allocations.iter().cloned());
    check_charge(&path, &reservation, &allocations, &[])?;
    let (new, allocations) = hold_memory(node, attach.allocations, fds)?;
    let mut catalogue = node.catalogue();
    adopt(&mut catalogue, &new);
    let attached = record::Attached {
        volume: asker.volume.clone(),
        origin: asker.origin(request),
        reservation: attach.reservation,
        allocations,
    };
    // Another connection of the same client may have attached meanwhile.
    let committed = owned_reservation(&catalogue, asker, attach.reservation).and_then(|now| {
        let all: Vec<Allocation> = now.memory().chain(&attached.allocations).cloned().collect();
        check_count(&path, all.len())?;
        check_charge(&path, &now, &all, &[])?;
        catalogue.commit(Fact::Attached(attached))
    });
    match committed {
        Ok(garbage) => {
            node.reap(garbage);
            Ok((Answer::Done(Done {}), vec![]))
        }
        Err(fault) => {
            disown(node, &mut catalogue, &new);
            Err(fault)
        }
    }
}

pub fn too_much_memory(node: &Node) -> Fault {
    let message =
        format!("the node holds {} pieces of memory, the most it can; remove large objects", node.max_memory());
    Fault::new(Code::LimitExceeded, message)
}

/// Descriptors by the ids of what they stand for.
type NewMemory = Vec<(u64, Arc<OwnedFd>)>;

/// Gives ids to memory that a client made, and the memory to the keeper.
fn hold_memory(
    node: &Node,
    mut allocations: Vec<Allocation>,
    fds: Vec<OwnedFd>,
) -> Result<(NewMemory, Vec<Allocation>), Fault> {
    let new: NewMemory = {
        let mut catalogue = node.catalogue();
        if catalogue.memory_count() + fds.len() > node.max_memory() {
            return Err(too_much_memory(node));
        }
        fds.into_iter().map(|fd| (catalogue.new_id(), Arc::new(fd))).collect()
    };
    for (allocation, (id, _)) in allocations.iter_mut().zip(&new) {
        allocation.id = *id;
    }
    if !new.is_empty() {
        let held: Vec<_> = new.iter().map(|(id, fd)| (memory_key(*id), fd.clone())).collect();
        node.keeper.hold(&held)?;
    }
    Ok((new, allocations))
}

fn adopt(catalogue: &mut Catalogue, new: &NewMemory) {
    for (id, fd) in new {
        catalogue.adopt_fd(*id, fd.clone());
    }
}

fn disown(node: &Node, catalogue: &mut Catalogue, new: &NewMemory) {
    for (id, _) in new {
        node.reap(catalogue.disown_fd(*id));
    }
}

pub fn seal(node: &Arc<Node>, asker: &Asker, request: u64, seal: Seal, fds: Vec<OwnedFd>) -> Outcome {
    let (reservation, own) = {
        let catalogue = node.catalogue();
        if let Some(version) = answered(&catalogue, asker, request) {
            return Ok((Answer::Sealed(Sealed { version }), vec![]));
        }
        let reservation = owned_reservation(&catalogue, asker, seal.reservation)?;
        let own = reservation.allocation.as_ref().and_then(|a| catalogue.fd(a.id));
        (reservation, own)
    };
    let path = ObjectPath::new(reservation.path.as_slice())?;
    asker.may_write(&path)?;
    let kind = Kind::try_from(seal.kind).map_err(|_| unknown(&path, "kind", seal.kind))?;
    check_attributes(&path, &seal.attributes)?;
    check_descriptors(node, &path, &reservation, &seal.allocations, &fds)?;
    let mut allocations: Vec<Allocation> = reservation.memory().cloned().collect();
    allocations.extend(seal.allocations.iter().cloned());
    check_segments(&path, &allocations, &seal.segments)?;
    check_charge(&path, &reservation, &allocations, &seal.segments)?;
    if let (Some(fd), Some(allocation)) = (&own, &reservation.allocation) {
        seal_memfd(&path, fd, allocation)?;
    }
    let (new, with_ids) = hold_memory(node, seal.allocations, fds)?;
    allocations.truncate(allocations.len() - new.len());
    allocations.extend(with_ids);
    let mut catalogue = node.catalogue();
    adopt(&mut catalogue, &new);
    let sealed = record::Sealed {
        origin: asker.origin(request),
        reservation: seal.reservation,
        kind: kind.into(),
        allocations,
        segments: seal.segments,
        attributes: seal.attributes,
        ..record::Sealed::default()
    };
    let published = owned_reservation(&catalogue, asker, seal.reservation)
        .and_then(|_| publish(node, &mut catalogue, asker, &path, seal.exclusive, sealed));
    match published {
        Ok(version) => {
            drop(catalogue);
            node.announce();
            Ok((Answer::Sealed(Sealed { version }), vec![]))
        }
        Err(fault) => {
            disown(node, &mut catalogue, &new);
            Err(fault)
        }
    }
}

/// Commits an object at its path.
pub fn publish(
    node: &Node,
    catalogue: &mut Catalogue,
    asker: &Asker,
    path: &ObjectPath,
    exclusive: bool,
    mut sealed: record::Sealed,
) -> Result<u64, Fault> {
    check_place(catalogue, &asker.volume, path, exclusive)?;
    let (parent, _) = named(path)?;
    make_parents(node, catalogue, asker, &parent)?;
    let (parent, name, _) = place(catalogue, &asker.volume, path)?;
    let version = catalogue.new_id();
    sealed.volume.clone_from(&asker.volume);
    sealed.version = version;
    sealed.parent = parent;
    sealed.name = name;
    sealed.time_ms = now_ms();
    sealed.producer.clone_from(&asker.producer);
    sealed.meta = Some(meta::of_client(sealed.time_ms, asker.owner));
    node.reap(catalogue.commit(Fact::Sealed(sealed))?);
    Ok(version)
}

fn owned_reservation(catalogue: &Catalogue, asker: &Asker, id: u64) -> Result<Reservation, Fault> {
    let found = catalogue.volume(&asker.volume)?.reservations.get(&id);
    let own = found.filter(|r| r.origin.lease == asker.lease.0);
    own.cloned().ok_or_else(|| Fault::new(Code::NotFound, format!("this client has no reservation {id}")))
}

pub fn abort(node: &Arc<Node>, asker: &Asker, abort: &Abort) -> Outcome {
    let mut catalogue = node.catalogue();
    if owned_reservation(&catalogue, asker, abort.reservation).is_ok() {
        let dropped = ReservationDropped { volume: asker.volume.clone(), reservation: abort.reservation };
        node.reap(catalogue.commit(Fact::ReservationDropped(dropped))?);
    }
    // One that is gone already is what was asked for.
    Ok((Answer::Done(Done {}), vec![]))
}

/// Notes in the volume's file that it is no longer what a reboot may bring back empty: before anything is put into it, and
/// once.
pub fn note_written(node: &Node, volume: &str) -> Result<(), Fault> {
    if node.catalogue().volume(volume)?.written {
        return Ok(());
    }
    node.provisions.update(volume, |file| file.written = true).map_err(internal)?;
    node.catalogue().volume_mut(volume)?.written = true;
    Ok(())
}
