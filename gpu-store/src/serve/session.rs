//! One client's connection: handshake, then requests, one at a time.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use gpuvol_protocol::message::{Answer, Done, Hello, INLINE_LIMIT, MAGIC, Op, Reply, Request, Welcome};
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits, Version};

use super::{names, open, put, small};
use crate::catalogue::lease::LeaseId;
use crate::catalogue::record::{Fact, HoldsReleased, LeaseOpened, Origin};
use crate::node::{MAX_LEASES, MAX_LEASES_OF_PUBLISH, Node, internal};

/// Most connections that one publish gets accepted in a turn.
const ACCEPTS: usize = 32;
/// How long the store lets a shortage pass before it accepts again.
const PAUSE: Duration = Duration::from_millis(50);
/// How long a new connection may take to say hello.
const HELLO: Duration = Duration::from_secs(10);
/// Longest name of a client, and of a pod, that objects carry as their producer, in bytes: a page of a list has a
/// thousand of them.
const MAX_NAME: usize = 128;

/// Who is asking.
#[derive(Debug, Clone)]
pub struct Asker {
    pub publish: String,
    pub volume: String,
    pub read_only: bool,
    pub lease: LeaseId,
    /// Pod and program, for people.
    pub producer: String,
    /// Who the kernel says is there: user and group, which own what is made.
    pub owner: (u32, u32),
}

impl Asker {
    pub fn origin(&self, request: u64) -> Option<Origin> {
        Some(Origin { lease: self.lease.0.to_vec(), request })
    }

    /// Refuses what a read-only publish may not do.
    pub fn may_write(&self, path: impl std::fmt::Display) -> Result<(), Fault> {
        if !self.read_only {
            return Ok(());
        }
        let message = format!("{path} cannot be changed: volume {} is published read-only here", self.volume);
        Err(Fault::new(Code::ReadOnly, message))
    }
}

/// What a request is answered with: the answer, and descriptors that go along.
pub type Answered = (Answer, Vec<Arc<OwnedFd>>);
pub type Outcome = Result<Answered, Fault>;

/// Takes every connection that waits at a publish's listener.
pub fn accept(node: &Arc<Node>, publish: &str, listener: &Arc<OwnedFd>) {
    let listener = match listener.try_clone() {
        Ok(listener) => UnixListener::from(listener),
        Err(error) => {
            tracing::error!(%error, "no descriptor to accept with");
            return std::thread::sleep(PAUSE);
        }
    };
    // The flag belongs to the open file, which the keeper and a successor share: all of us want it so.
    if listener.set_nonblocking(true).is_err() {
        return;
    }
    // What is left waits for the next turn: one pod that connects in a loop keeps nobody else waiting.
    for _ in 0..ACCEPTS {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(error) => {
                tracing::error!(%error, "no connection can be accepted");
                std::thread::sleep(PAUSE);
                return;
            }
        };
        let (node, publish) = (node.clone(), publish.to_owned());
        let name = format!("client {publish:.8}");
        let spawned = std::thread::Builder::new().name(name).stack_size(512 * 1024).spawn(move || {
            if let Err(error) = converse(&node, &publish, stream) {
                tracing::info!(publish, %error, "a client's connection ended");
            }
        });
        if let Err(error) = spawned {
            tracing::error!(%error, "no thread for a connection");
            std::thread::sleep(PAUSE);
            return;
        }
    }
}

fn converse(node: &Arc<Node>, publish: &str, stream: UnixStream) -> Result<(), FrameError> {
    stream.set_nonblocking(false)?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).map_err(std::io::Error::from)?;
    let place = node.admit(publish, &stream);
    let mut channel = Channel::new(stream, Limits::default());
    let refuse =
        |channel: &mut Channel, fault| channel.send(&Welcome { fault: Some(fault), ..Welcome::default() }, &[]);
    let _place = match place {
        Ok(place) => place,
        // Without waiting for its hello: who floods us with connections does not get our threads.
        Err(fault) => return refuse(&mut channel, fault),
    };
    let Some((hello, _)) = channel.receive::<Hello>(Some(HELLO))? else { return Ok(()) };
    let (asker, welcome, pipe) = match greet(node, publish, &hello) {
        Ok((asker, welcome, pipe)) => (Asker { owner: (peer.uid.as_raw(), peer.gid.as_raw()), ..asker }, welcome, pipe),
        Err(fault) => return refuse(&mut channel, fault),
    };
    channel.send(&welcome, &pipe.as_ref().map(AsFd::as_fd).into_iter().collect::<Vec<_>>())?;
    drop(pipe);
    while let Some((request, fds)) = channel.receive::<Request>(None)? {
        let id = request.id;
        let (answer, out) = handle(node, &asker, request, fds).unwrap_or_else(|fault| (Answer::Fault(fault), vec![]));
        let out: Vec<BorrowedFd<'_>> = out.iter().map(|fd| fd.as_fd()).collect();
        channel.send(&Reply { id, answer: Some(answer) }, &out)?;
    }
    Ok(())
}

/// Negotiates, and gives the client the lease that it has, or a new one with its pipe.
fn greet(node: &Arc<Node>, publish: &str, hello: &Hello) -> Result<(Asker, Welcome, Option<OwnedFd>), Fault> {
    if hello.magic != MAGIC {
        return Err(Fault::new(Code::Protocol, "the peer does not speak gpuvol: its first message is something else"));
    }
    let version = Version::negotiate(hello.min_version, hello.max_version).ok_or_else(|| {
        let (old, new) = (Version::OLDEST.number(), Version::NEWEST.number());
        let (min, max) = (hello.min_version, hello.max_version);
        let message = format!(
            "the client speaks protocol versions {min} to {max}, this store {old} to {new}; update the older one"
        );
        Fault::new(Code::Protocol, message)
    })?;
    let client = printable(&hello.client);

    let catalogue = node.catalogue();
    let known = catalogue.publishes.get(publish).cloned();
    let known = known.ok_or_else(not_published)?;
    let volume = catalogue.volume(&known.volume)?;
    let (tier, device) = (volume.tier(), volume.device.clone());
    let joined = LeaseId::from_slice(&hello.lease)
        .filter(|id| catalogue.leases.get(id).is_some_and(|lease| lease.publish == publish));
    let leases = catalogue.leases.len();
    let same = catalogue.leases.values().filter(|lease| lease.publish == publish).count();
    drop(catalogue);

    let (lease, pipe) = match joined {
        Some(lease) => (lease, None),
        None if leases >= MAX_LEASES || same >= MAX_LEASES_OF_PUBLISH => {
            let message = format!(
                "too many clients: {same} of this pod (limit {MAX_LEASES_OF_PUBLISH}), {leases} on the node (limit {MAX_LEASES})"
            );
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        None => new_lease(node, publish, &client).map(|(lease, pipe)| (lease, Some(pipe)))?,
    };
    let pod = printable(&known.pod);
    let producer = if pod.is_empty() { client } else { format!("{pod} ({client})") };
    let asker = Asker {
        publish: publish.to_owned(),
        volume: known.volume.clone(),
        read_only: known.read_only,
        lease,
        producer,
        owner: (0, 0),
    };
    let welcome = Welcome {
        version: version.number(),
        lease: lease.0.to_vec(),
        volume: known.volume,
        read_only: known.read_only,
        max_frame: Limits::default().max_frame,
        inline_limit: INLINE_LIMIT,
        tier: tier.into(),
        device,
        fault: None,
    };
    Ok((asker, welcome, pipe))
}

/// A name as people may see it, cut to [`MAX_NAME`].
fn printable(name: &str) -> String {
    let mut name: String = name.chars().filter(|c| !c.is_control()).collect();
    let end = (0..=MAX_NAME.min(name.len())).rev().find(|n| name.is_char_boundary(*n));
    name.truncate(end.unwrap_or(0));
    name
}

/// Opens a lease: its pipe is with the keeper before its record is in the log.
fn new_lease(node: &Arc<Node>, publish: &str, client: &str) -> Result<(LeaseId, OwnedFd), Fault> {
    let lease = LeaseId::random();
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(internal)?;
    let read = Arc::new(read);
    node.keeper.hold(&[(lease.key(), read.clone())])?;
    let opened =
        LeaseOpened { lease: lease.0.to_vec(), publish: publish.to_owned(), client: client.to_owned(), mount: false };
    let committed = {
        let mut catalogue = node.catalogue();
        // The publish may have ended while the keeper was asked.
        if catalogue.publishes.contains_key(publish) {
            catalogue.commit(Fact::LeaseOpened(opened))
        } else {
            Err(not_published())
        }
    };
    match committed {
        Ok(garbage) => node.reap(garbage),
        Err(fault) => {
            node.keeper.drop_keys(&[lease.key()]);
            return Err(fault);
        }
    }
    if let Err(fault) = node.watch_lease(lease, read) {
        // Nobody would see it hang up.
        let garbage = node.catalogue().commit(Fact::LeaseEnded(lease.0.to_vec()))?;
        node.reap(garbage);
        return Err(fault);
    }
    Ok((lease, write))
}

fn not_published() -> Fault {
    Fault::new(Code::NotFound, "this volume is no longer published here")
}

fn handle(node: &Arc<Node>, asker: &Asker, request: Request, fds: Vec<OwnedFd>) -> Outcome {
    if request.id == 0 {
        return Err(Fault::new(Code::Protocol, "a request without an id"));
    }
    let mut catalogue = node.catalogue();
    // A lease ends with its publish, so a connection that outlived either has nothing to ask for.
    let lease = catalogue.lease(asker.lease)?;
    let holds: Vec<u64> = request.released.into_iter().filter(|hold| lease.holds.contains_key(hold)).collect();
    if !holds.is_empty() {
        let released = HoldsReleased { lease: asker.lease.0.to_vec(), holds };
        node.reap(catalogue.commit(Fact::HoldsReleased(released))?);
    }
    drop(catalogue);
    let op = request.op.ok_or_else(|| Fault::new(Code::Unsupported, "a request that this store does not know"))?;
    if !fds.is_empty() && !matches!(op, Op::Seal(_) | Op::Attach(_)) {
        return Err(Fault::new(Code::Protocol, format!("{} descriptors with a request that takes none", fds.len())));
    }
    let id = request.id;
    match op {
        Op::Create(create) => put::create(node, asker, id, &create),
        Op::Seal(seal) => put::seal(node, asker, id, seal, fds),
        Op::Attach(attach) => put::attach(node, asker, id, attach, fds),
        Op::Abort(abort) => put::abort(node, asker, &abort),
        Op::PutInline(inline) => small::put_inline(node, asker, id, inline),
        Op::Open(request) => open::open(node, asker, id, &request),
        Op::Stat(stat) => names::stat(node, asker, &stat),
        Op::List(list) => names::list(node, asker, &list),
        Op::Rename(rename) => names::rename(node, asker, id, &rename),
        Op::Unlink(unlink) => names::unlink(node, asker, id, &unlink),
        Op::Mkdir(mkdir) => names::mkdir(node, asker, id, &mkdir),
        Op::Statfs(_) => names::statfs(node, asker),
        Op::Ping(_) => Ok((Answer::Done(Done {}), vec![])),
    }
}
