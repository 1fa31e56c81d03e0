//! The view socket: the mounter's connections, and which mounts there are.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use gpuvol_protocol::message::Done;
use gpuvol_protocol::view::{Session, SessionList, Sessions, ViewAnswer, ViewOp, ViewReply, ViewRequest};
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits};

use super::{attributes, files, names};
use crate::catalogue::lease::LeaseId;
use crate::catalogue::record::Origin;
use crate::catalogue::state::Catalogue;
use crate::node::Node;

/// Most connections: a few for each mount, which wait for each other beyond that.
const MAX_CONNECTIONS: usize = 512;
/// Longest that one request for the list of mounts waits.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Most mounts that one answer brings descriptors of: two each.
const PAGE: usize = gpuvol_protocol::fdpass::MAX_FDS / 2;

/// A published mount that asks.
#[derive(Debug, Clone)]
pub struct Mounted {
    pub publish: String,
    pub volume: String,
    pub read_only: bool,
    pub lease: LeaseId,
    /// Its pod, for people.
    pub producer: String,
    /// The kernel's id of the request; 0 where it is safe to repeat.
    pub unique: u64,
}

impl Mounted {
    fn of(catalogue: &Catalogue, publish: &str, unique: u64) -> Result<Self, Fault> {
        let gone = || Fault::new(Code::NotFound, format!("no mount {publish:.80} is published on this node"));
        let lease = *catalogue.mounts.get(publish).ok_or_else(gone)?;
        let known = catalogue.publishes.get(publish).ok_or_else(gone)?;
        Ok(Self {
            publish: publish.to_owned(),
            volume: known.volume.clone(),
            read_only: known.read_only,
            lease,
            producer: known.pod.clone(),
            unique,
        })
    }

    pub fn origin(&self) -> Option<Origin> {
        Some(Origin { lease: self.lease.0.to_vec(), request: self.unique })
    }

    pub fn may_write(&self) -> Result<(), Fault> {
        if !self.read_only {
            return Ok(());
        }
        Err(Fault::new(Code::ReadOnly, format!("volume {} is published read-only here", self.volume)))
    }

    /// What an earlier sending of this request made: a node's id, or 0.
    pub fn answered(&self, catalogue: &Catalogue) -> Option<u64> {
        if self.unique == 0 {
            return None;
        }
        catalogue.leases.get(&self.lease).and_then(|lease| lease.answer(self.unique))
    }
}

pub type Answered = (ViewAnswer, Vec<Arc<OwnedFd>>);
pub type Outcome = Result<Answered, Fault>;

pub fn done() -> Outcome {
    Ok((ViewAnswer::Done(Done {}), Vec::new()))
}

/// Serves the view socket until the process ends. No shortage of anything ends it.
pub fn serve(node: &Arc<Node>, listener: &UnixListener) -> ! {
    const PAUSE: Duration = Duration::from_millis(50);
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::error!(%error, "no connection of a mounter can be accepted");
                std::thread::sleep(PAUSE);
                continue;
            }
        };
        if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            tracing::warn!("refused a connection of a mounter: {MAX_CONNECTIONS} are open");
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let (place, node) = (Place(open.clone()), node.clone());
        let spawned = std::thread::Builder::new().name("view".into()).stack_size(512 * 1024).spawn(move || {
            let _place = place;
            if let Err(error) = converse(&node, stream) {
                tracing::info!(%error, "a mounter's connection ended");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a mounter's connection");
            std::thread::sleep(PAUSE);
        }
    }
}

struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(node: &Arc<Node>, stream: UnixStream) -> Result<(), FrameError> {
    let mut channel = Channel::new(stream, Limits::default());
    while let Some((request, fds)) = channel.receive::<ViewRequest>(None)? {
        let outcome = if fds.is_empty() {
            handle(node, request)
        } else {
            Err(Fault::new(Code::Protocol, format!("{} descriptors with a request that takes none", fds.len())))
        };
        let (answer, out) = outcome.unwrap_or_else(|fault| (ViewAnswer::Fault(fault), Vec::new()));
        let out: Vec<BorrowedFd<'_>> = out.iter().map(|fd| fd.as_fd()).collect();
        channel.send(&ViewReply { answer: Some(answer) }, &out)?;
    }
    Ok(())
}

fn handle(node: &Arc<Node>, request: ViewRequest) -> Outcome {
    let op = request.op.ok_or_else(|| Fault::new(Code::Unsupported, "a request that this store does not know"))?;
    if let ViewOp::Sessions(sessions) = &op {
        return Ok(list(node, sessions));
    }
    let mount = Mounted::of(&node.catalogue(), &request.publish, request.unique)?;
    match op {
        ViewOp::Sessions(_) => done(),
        ViewOp::Lookup(lookup) => names::lookup(node, &mount, &lookup),
        ViewOp::GetNode(get) => names::get_node(node, &mount, get.node),
        ViewOp::ReadDirectory(read) => names::read_directory(node, &mount, &read),
        ViewOp::OpenFile(open) => files::open(node, &mount, &open),
        ViewOp::CreateFile(create) => files::create(node, &mount, &create),
        ViewOp::Describe(describe) => files::describe(node, &mount, describe.handle),
        ViewOp::Backing(backing) => files::note_backing(node, &mount, &backing),
        ViewOp::Reserve(reserve) => files::reserve(node, &mount, &reserve),
        ViewOp::Flush(flush) => files::flush(node, &mount, flush.handle),
        ViewOp::Release(release) => files::release(node, &mount, &release),
        ViewOp::SetAttributes(set) => attributes::set(node, &mount, &set),
        ViewOp::MakeDirectory(make) => names::make_directory(node, &mount, &make),
        ViewOp::MakeLink(make) => names::make_link(node, &mount, &make),
        ViewOp::ReadLink(read) => names::read_link(node, &mount, read.node),
        ViewOp::Remove(remove) => names::remove(node, &mount, &remove),
        ViewOp::RenameNode(rename) => names::rename(node, &mount, &rename),
        ViewOp::GetXattr(get) => attributes::get_xattr(node, &mount, &get),
        ViewOp::ListXattrs(list) => attributes::list_xattrs(node, &mount, list.node),
        ViewOp::SetXattr(set) => attributes::set_xattr(node, &mount, &set),
        ViewOp::StatVolume(_) => names::stat_volume(node, &mount),
    }
}

/// Which mounts there are, as soon as that is something else than `known`.
fn list(node: &Arc<Node>, sessions: &Sessions) -> Answered {
    let until = Instant::now() + Duration::from_millis(sessions.wait_ms).min(LONGEST_WAIT);
    node.note_served(sessions.known.clone());
    let mut catalogue = node.catalogue();
    loop {
        let mounts = node.mounts().clone();
        let left = until.saturating_duration_since(Instant::now());
        let same =
            mounts.len() == sessions.known.len() && sessions.known.iter().all(|known| mounts.contains_key(known));
        if same && !left.is_zero() {
            catalogue = node.wait_change(catalogue, left);
            continue;
        }
        let mut fds = Vec::new();
        let mut answer = SessionList::default();
        for (publish, mount) in mounts {
            let new = !sessions.known.contains(&publish);
            if new && fds.len() >= 2 * PAGE {
                // The rest when these are known.
                continue;
            }
            if new {
                fds.extend([mount.fuse, mount.journal]);
            }
            answer.sessions.extend(session(&catalogue, publish));
        }
        return (ViewAnswer::Sessions(answer), fds);
    }
}

fn session(catalogue: &Catalogue, publish: String) -> Option<Session> {
    let known = catalogue.publishes.get(&publish);
    let lease = catalogue.mounts.get(&publish).and_then(|id| catalogue.leases.get(id));
    let mut backings: Vec<u32> = lease.into_iter().flat_map(|lease| lease.backings.values().copied()).collect();
    backings.sort_unstable();
    backings.dedup();
    let mount = known.and_then(|k| k.mount).unwrap_or_default();
    Some(Session {
        volume: known.map(|k| k.volume.clone()).unwrap_or_default(),
        read_only: known.is_some_and(|k| k.read_only),
        connection: mount.connection,
        agreed: mount.agreed,
        backings,
        publish,
    })
}
