//! The admin socket: what the plugin asks for, and what tells people about the node.

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gpuvol_protocol::admin::{
    AdminAnswer, AdminOp, AdminReply, AdminRequest, DeleteVolume, ExpandVolume, GetCapacity, ListPublishes,
    ListVolumes, Node as NodeReport, OnLoss, Publish, Publishes, Unpublish, Volume as VolumeReport, VolumeSpec,
    Volumes,
};
use gpuvol_protocol::message::{Done, Tier};
use gpuvol_protocol::types::{Bytes, size};
use gpuvol_protocol::view::{CLOCK_BYTES, CLOCK_OFFSET};
use gpuvol_protocol::{Channel, Code, DeviceUuid, Fault, FrameError, Limits, TypeError, VolumeId};

use super::view;
use crate::catalogue::lease::LeaseId;
use crate::catalogue::meta;
use crate::catalogue::record::{Fact, LeaseOpened, VolumeCreated, VolumeExpanded};
use crate::catalogue::state::{Catalogue, Garbage};
use crate::node::{MountFds, Node, fuse_key, internal, journal_key, listener_key, now_ms};
use crate::provision::Provisioned;
use rustix::fs::FileType;

/// Most admin connections at once.
const MAX_CONNECTIONS: usize = 64;
/// Most volumes on one page.
const PAGE: usize = 200;
/// Longest publish name, target, pod and arguments, in bytes.
const MAX_TEXT: usize = 8192;

/// A place among the admin connections; left when dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves the admin socket until the process ends. No shortage of anything ends it.
pub fn serve(node: &Arc<Node>, listener: &UnixListener) -> ! {
    const PAUSE: Duration = Duration::from_millis(50);
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, "no admin connection can be accepted");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        let before = open.fetch_add(1, Ordering::Relaxed);
        let (place, node) = (Place(open.clone()), node.clone());
        if before >= MAX_CONNECTIONS {
            tracing::warn!("refused an admin connection: {MAX_CONNECTIONS} are open");
            continue;
        }
        let spawned = std::thread::Builder::new().name("admin".into()).spawn(move || {
            let _place = place;
            if let Err(error) = converse(&node, stream) {
                tracing::info!(%error, "an admin connection ended");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for an admin connection");
            std::thread::sleep(PAUSE);
        }
    }
}

fn converse(node: &Arc<Node>, stream: UnixStream) -> Result<(), FrameError> {
    // Lists of publishes have no pages.
    let mut channel = Channel::new(stream, Limits { max_frame: 16 * 1024 * 1024, ..Limits::default() });
    while let Some((request, fds)) = channel.receive::<AdminRequest>(None)? {
        let id = request.id;
        let answer = match request.op {
            Some(op) => handle(node, op, fds),
            None => Err(Fault::new(Code::Unsupported, "an admin request that this store does not know")),
        };
        let answer = answer.unwrap_or_else(AdminAnswer::Fault);
        channel.send(&AdminReply { id, answer: Some(answer) }, &[])?;
    }
    Ok(())
}

type Answered = Result<AdminAnswer, Fault>;

fn handle(node: &Arc<Node>, op: AdminOp, fds: Vec<OwnedFd>) -> Answered {
    match op {
        AdminOp::CreateVolume(spec) => create_volume(node, spec),
        AdminOp::DeleteVolume(delete) => delete_volume(node, &delete),
        AdminOp::GetVolume(get) => Ok(AdminAnswer::Volume(report(&node.catalogue(), &get.id)?)),
        AdminOp::ListVolumes(list) => list_volumes(node, &list),
        AdminOp::ExpandVolume(expand) => expand_volume(node, &expand),
        AdminOp::GetCapacity(get) => capacity(node, &get),
        AdminOp::Publish(publish) => self::publish(node, publish, fds),
        AdminOp::Unpublish(unpublish) => self::unpublish(node, &unpublish),
        AdminOp::ListPublishes(list) => Ok(list_publishes(node, &list)),
        AdminOp::NodeStatus(_) => Ok(AdminAnswer::Node(status(node))),
    }
}

fn done() -> Answered {
    Ok(AdminAnswer::Done(Done {}))
}

fn tier_of(value: i32) -> Result<Tier, Fault> {
    Ok(Tier::try_from(value).map_err(|_| TypeError::Enum { what: "tier", value })?)
}

fn create_volume(node: &Arc<Node>, spec: VolumeSpec) -> Answered {
    VolumeId::new(spec.id.clone())?;
    let tier = tier_of(spec.tier)?;
    OnLoss::try_from(spec.on_loss).map_err(|_| TypeError::Enum { what: "on-loss rule", value: spec.on_loss })?;
    if !spec.device.is_empty() {
        DeviceUuid::try_from(spec.device.as_slice())?;
        if tier == Tier::Host {
            let message = format!("volume {}: tier host has no device", spec.id);
            return Err(Fault::new(Code::InvalidArgument, message));
        }
    }
    if size(spec.capacity)? == 0 || spec.name.len() > MAX_TEXT {
        let message = format!("volume {}: a capacity of 0 bytes, or too long a name", spec.id);
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    let books = node.books_now();
    let mut catalogue = node.catalogue();
    if let Ok(volume) = catalogue.volume(&spec.id) {
        // A volume that was expanded since is still the one that was asked for.
        let same = VolumeSpec { capacity: volume.spec.capacity, ..spec.clone() } == volume.spec;
        if same && spec.capacity <= volume.spec.capacity {
            return Ok(AdminAnswer::Volume(report(&catalogue, &spec.id)?));
        }
        let message = format!(
            "volume {} ({}) exists with {} and other properties than asked for ({})",
            spec.id,
            volume.spec.name,
            Bytes(volume.spec.capacity),
            Bytes(spec.capacity)
        );
        return Err(Fault::new(Code::AlreadyExists, message));
    }
    // Checked and promised under one lock: two claims never get the same bytes.
    books.check_volume(&catalogue, &spec, 0)?;
    // The file comes first: a volume exists because its file does. It is small, and volumes are made rarely.
    node.provisions.write(&Provisioned::new(&spec)).map_err(internal)?;
    let root = catalogue.new_id();
    let id = spec.id.clone();
    let root_meta = Some(meta::of_directory(now_ms(), (0, 0)));
    let created = VolumeCreated { spec: Some(spec), lost_ms: 0, root, bound_device: Vec::new(), root_meta };
    match catalogue.commit(Fact::VolumeCreated(created)) {
        Ok(garbage) => node.reap(garbage),
        Err(fault) => {
            // Without its file it does not exist.
            node.provisions.remove(&id).map_err(internal)?;
            return Err(fault);
        }
    }
    tracing::info!(volume = %id, "created");
    Ok(AdminAnswer::Volume(report(&catalogue, &id)?))
}

fn delete_volume(node: &Arc<Node>, delete: &DeleteVolume) -> Answered {
    let mut catalogue = node.catalogue();
    if catalogue.volume(&delete.id).is_err() {
        return done();
    }
    let used: Vec<&str> =
        catalogue.publishes.values().filter(|p| p.volume == delete.id).map(|p| p.target.as_str()).collect();
    if !used.is_empty() {
        let message = format!("volume {} is in use: published at {}", delete.id, used.join(", "));
        return Err(Fault::new(Code::InUse, message));
    }
    node.provisions.remove(&delete.id).map_err(internal)?;
    node.reap(catalogue.commit(Fact::VolumeDeleted(delete.id.clone()))?);
    tracing::info!(volume = %delete.id, "deleted");
    done()
}

fn expand_volume(node: &Arc<Node>, expand: &ExpandVolume) -> Answered {
    let capacity = size(expand.capacity)?;
    let books = node.books_now();
    let mut catalogue = node.catalogue();
    let volume = catalogue.volume(&expand.id)?;
    let today = volume.spec.capacity;
    if capacity < today {
        let message = format!("volume {} has {}; it cannot shrink to {}", expand.id, Bytes(today), Bytes(capacity));
        return Err(Fault::new(Code::InvalidArgument, message));
    }
    if capacity > today {
        let spec = VolumeSpec { capacity, ..volume.spec.clone() };
        books.check_volume(&catalogue, &spec, today)?;
        node.provisions.update(&expand.id, |file| file.capacity = capacity).map_err(internal)?;
        let expanded = VolumeExpanded { volume: expand.id.clone(), capacity };
        node.reap(catalogue.commit(Fact::VolumeExpanded(expanded))?);
    }
    Ok(AdminAnswer::Volume(report(&catalogue, &expand.id)?))
}

fn list_volumes(node: &Arc<Node>, list: &ListVolumes) -> Answered {
    let catalogue = node.catalogue();
    let limit = usize::try_from(list.limit).ok().filter(|n| *n > 0).unwrap_or(PAGE).min(PAGE);
    let mut ids = catalogue.volumes.keys().filter(|id| id.as_str() > list.after.as_str());
    let page: Vec<_> = ids.by_ref().take(limit).map(|id| report(&catalogue, id.as_str())).collect::<Result<_, _>>()?;
    Ok(AdminAnswer::Volumes(Volumes { volumes: page, more: ids.next().is_some() }))
}

fn report(catalogue: &Catalogue, id: &str) -> Result<VolumeReport, Fault> {
    let volume = catalogue.volume(id)?;
    let leases = catalogue.leases.values().filter(|l| l.volume.as_str() == id && !l.mount).count();
    let publishes = catalogue.publishes.values().filter(|p| p.volume == id).count();
    let condition = if volume.lost_ms == 0 {
        String::new()
    } else {
        "its content was lost: the node was rebooted, or keeper and store were gone together; delete the claim and make it again".to_owned()
    };
    Ok(VolumeReport {
        spec: Some(volume.spec.clone()),
        usage: Some(volume.usage(leases as u64)),
        lost_ms: volume.lost_ms,
        condition,
        publishes: publishes as u64,
    })
}

fn capacity(node: &Arc<Node>, get: &GetCapacity) -> Answered {
    let tier = tier_of(get.tier)?;
    if !get.device.is_empty() {
        DeviceUuid::try_from(get.device.as_slice())?;
    }
    let books = node.books_now();
    Ok(AdminAnswer::Capacity(books.capacity(&node.catalogue(), tier, &get.device)))
}

/// The first half of a publish that is a mount: its `/dev/fuse`. The mounter serves it from now on.
fn publish_mount(node: &Arc<Node>, publish: Publish, fuse: OwnedFd) -> Answered {
    let name = publish.publish.clone();
    let journal = gpuvol_memory::memfd::growable().map_err(internal)?;
    rustix::fs::ftruncate(&journal, CLOCK_OFFSET + CLOCK_BYTES).map_err(internal)?;
    let fds = MountFds::new(&publish.volume, Arc::new(fuse), Arc::new(journal));
    let lease = LeaseId::random();
    let known = {
        let catalogue = node.catalogue();
        check_publish(&catalogue, &publish)?;
        catalogue.publishes.contains_key(&name)
    };
    if known {
        let message = format!("{} is published already; unpublish it before it is mounted again", publish.target);
        return Err(Fault::new(Code::AlreadyExists, message));
    }
    node.keeper.hold(&[(fuse_key(&name), fds.fuse.clone()), (journal_key(&name), fds.journal.clone())])?;
    let mut catalogue = node.catalogue();
    let opened = LeaseOpened { lease: lease.0.to_vec(), publish: name.clone(), client: "mount".into(), mount: true };
    let committed = check_publish(&catalogue, &publish)
        .and_then(|()| accept_loss(node, &mut catalogue, &publish.volume))
        .and_then(|()| catalogue.commit(Fact::Published(publish)))
        .and_then(|_| catalogue.commit(Fact::LeaseOpened(opened)));
    match committed {
        Ok(garbage) => node.reap(garbage),
        Err(fault) => {
            node.reap(Garbage { keys: vec![fuse_key(&name), journal_key(&name)], ..Garbage::default() });
            return Err(fault);
        }
    }
    node.mounts().insert(name, fds);
    drop(catalogue);
    node.announce();
    done()
}

fn publish(node: &Arc<Node>, publish: Publish, fds: Vec<OwnedFd>) -> Answered {
    let invalid = |why: &str| Fault::new(Code::InvalidArgument, format!("publish of volume {}: {why}", publish.volume));
    let [listener] =
        <[OwnedFd; 1]>::try_from(fds).map_err(|fds| invalid(&format!("{} descriptors, one is wanted", fds.len())))?;
    let texts = [&publish.publish, &publish.target, &publish.pod, &publish.arguments];
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if publish.publish.is_empty()
        || publish.publish.len() > 64
        || !publish.publish.chars().all(plain)
        || texts.iter().any(|t| t.len() > MAX_TEXT)
    {
        return Err(invalid("a name, target or pod that is empty or too long"));
    }
    if publish.mount.is_some() {
        if rustix::fs::fstat(&listener)
            .map_or(true, |stat| FileType::from_raw_mode(stat.st_mode) != FileType::CharacterDevice)
        {
            return Err(invalid("the descriptor is no /dev/fuse"));
        }
        return publish_mount(node, publish, listener);
    }
    if !rustix::net::sockopt::socket_acceptconn(&listener).unwrap_or(false) {
        return Err(invalid("the descriptor is not a listening socket"));
    }
    check_publish(&node.catalogue(), &publish)?;
    let listener = Arc::new(listener);
    let (key, name) = (listener_key(&publish.publish), publish.publish.clone());
    node.keeper.hold(&[(key.clone(), listener.clone())])?;
    {
        let mut catalogue = node.catalogue();
        let again = catalogue.publishes.contains_key(&name);
        // Somebody may have published or deleted it while the keeper was asked.
        let checked = check_publish(&catalogue, &publish);
        let committed = checked
            .and_then(|()| accept_loss(node, &mut catalogue, &publish.volume))
            .and_then(|()| if again { Ok(Garbage::default()) } else { catalogue.commit(Fact::Published(publish)) });
        match committed {
            Ok(garbage) => node.reap(garbage),
            Err(fault) => {
                if !again {
                    node.reap(Garbage { keys: vec![key], ..Garbage::default() });
                }
                return Err(fault);
            }
        }
    }
    node.watch_listener(&name, listener)?;
    done()
}

/// A volume that may go on empty is an ordinary one from its next publish on.
fn accept_loss(node: &Node, catalogue: &mut Catalogue, id: &str) -> Result<(), Fault> {
    if catalogue.volume(id)?.lost_ms != 0 {
        tracing::warn!(volume = id, "its content was lost; it goes on empty, as its class allows");
        node.reap(catalogue.commit(Fact::LossAccepted(id.to_owned()))?);
    }
    Ok(())
}

fn check_publish(catalogue: &Catalogue, publish: &Publish) -> Result<(), Fault> {
    let volume = catalogue.volume(&publish.volume)?;
    if volume.lost_ms != 0 && volume.spec.on_loss == i32::from(OnLoss::Fail) {
        let message = format!(
            "the content of volume {} ({}) was lost: the node was rebooted, or keeper and store were gone together; delete the claim and make it again, or set gpuvol.dev/on-loss: empty in its class",
            publish.volume, volume.spec.name
        );
        return Err(Fault::new(Code::ContentLost, message));
    }
    if let Some(same) = catalogue.publishes.get(&publish.publish) {
        // How the pod is called is for people: it makes no other publish.
        if (Publish { pod: same.pod.clone(), mount: same.mount, ..publish.clone() }) == *same {
            return Ok(());
        }
        let message = format!(
            "{} is published already, with other arguments: volume {}, read-only {}, {:?}",
            same.target, same.volume, same.read_only, same.arguments
        );
        return Err(Fault::new(Code::AlreadyExists, message));
    }
    let mut others = catalogue.publishes.values().filter(|p| p.volume == publish.volume);
    match others.find(|p| !(p.shared && publish.shared)) {
        None => Ok(()),
        Some(other) => {
            let message = format!(
                "volume {} is published at {} for a single writer; it cannot be at {} too",
                publish.volume, other.target, publish.target
            );
            Err(Fault::new(Code::InUse, message))
        }
    }
}

fn unpublish(node: &Arc<Node>, unpublish: &Unpublish) -> Answered {
    // Nobody new comes in, and who is in is sent away, before the leases end.
    node.end_publish(&unpublish.publish);
    if unpublish.listener_only {
        node.keeper.drop_keys(&[listener_key(&unpublish.publish)]);
        // A connection that was accepted just before was not in the table yet.
        node.end_publish(&unpublish.publish);
        node.wait_for_no_connection(&unpublish.publish, Duration::from_secs(2));
        return done();
    }
    let mut catalogue = node.catalogue();
    if let Some(known) = catalogue.publishes.get(&unpublish.publish) {
        let volume = known.volume.clone();
        let written = view::written_by(&catalogue, &unpublish.publish);
        let garbage = catalogue.commit(Fact::Unpublished(unpublish.publish.clone()))?;
        drop(catalogue);
        // Now, and not with the rest: a publish of the same name that follows holds its listener under the same key.
        let name = unpublish.publish.as_str();
        node.keeper.drop_keys(&[listener_key(name), fuse_key(name), journal_key(name)]);
        node.mounts().remove(name);
        node.announce();
        node.reap(garbage);
        // Who came in between the first time and the commit.
        node.end_publish(&unpublish.publish);
        for id in written {
            if let Err(fault) = view::freeze(node, &volume, id) {
                tracing::error!(volume, node = id, %fault, "a file of a mount that is gone could not be sealed");
            }
        }
    }
    done()
}

fn list_publishes(node: &Arc<Node>, list: &ListPublishes) -> AdminAnswer {
    let catalogue = node.catalogue();
    let of_volume = |p: &&Publish| list.volume.is_empty() || p.volume == list.volume;
    let publishes: Vec<Publish> = catalogue.publishes.values().filter(of_volume).cloned().collect();
    let silent = |p: &&Publish| !node.is_served(&p.publish, p.mount.is_some());
    let unserved = publishes.iter().filter(silent).map(|p| p.publish.clone()).collect();
    AdminAnswer::Publishes(Publishes { publishes, unserved })
}

fn status(node: &Arc<Node>) -> NodeReport {
    let (keeper_connected, held) = node.keeper.check();
    let books = node.books_now();
    let catalogue = node.catalogue();
    NodeReport {
        tiers: books.tiers(&catalogue),
        devices: books.devices,
        no_inventory: node.inventory.missing().unwrap_or_default().to_owned(),
        keeper_connected,
        held,
        volumes: catalogue.volumes.len() as u64,
        publishes: catalogue.publishes.len() as u64,
        leases: catalogue.leases.values().filter(|lease| !lease.mount).count() as u64,
        connections: node.connection_count() as u64,
        log_bytes: catalogue.log().size(),
        uptime_ms: u64::try_from(node.started.elapsed().as_millis()).unwrap_or(u64::MAX),
        pid: std::process::id(),
        build: env!("CARGO_PKG_VERSION").to_owned(),
    }
}
