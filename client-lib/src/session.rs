//! A client's conversation with the store: handshake, a few connections, one lease, and coming back after the store
//! was replaced.
//!
//! A request keeps its id when it is sent again over a new connection, so that it has one effect. Several threads use
//! one session at once: each request in flight has a connection of its own, and idle ones are kept.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Answer, Hello, MAGIC, Op, Ping, Reply, Request, Tier, Welcome};
use gpuvol_protocol::types::SOCKET_NAME;
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits, Version};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result, is_gone};

/// How long a call waits for a store that is being replaced, unless told otherwise.
pub const DEFAULT_DEADLINE: Duration = Duration::from_secs(30);
/// Idle connections that are kept.
const IDLE: usize = 4;
/// Holds that are let go of in one request.
const RELEASES: usize = 4096;

/// Where the store listens.
#[derive(Debug)]
enum Address {
    /// In this directory, under the reserved name: survives renames above it, and paths longer than a socket's may be.
    Directory(OwnedFd),
    Socket(PathBuf),
}

#[derive(Debug)]
pub struct Session {
    address: Address,
    deadline: Duration,
    next_request: AtomicU64,
    /// Held while a connection is opened, so that threads join one lease instead of opening one each.
    opening: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pid: u32,
    idle: Vec<Channel>,
    lease: Vec<u8>,
    /// The lease ends when the last copy of this is closed.
    pipe: Option<OwnedFd>,
    /// Counts leases: mappings cached under an earlier one are not served again.
    epoch: u64,
    released: Vec<u64>,
    welcome: Welcome,
}

impl Session {
    /// Connects to the store that listens in a directory. `deadline`: how long a call waits for a store that is being
    /// replaced.
    pub fn in_directory(directory: &Path, deadline: Duration) -> Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(directory, flags, Mode::empty())
            .map_err(|e| Error::Connect { path: directory.join(SOCKET_NAME), source: e.into() })?;
        Self::connect(Address::Directory(fd), directory.join(SOCKET_NAME), deadline)
    }

    /// Connects to the store that listens at a socket.
    pub fn at_socket(socket: &Path, deadline: Duration) -> Result<Self> {
        Self::connect(Address::Socket(socket.to_owned()), socket.to_owned(), deadline)
    }

    fn connect(address: Address, path: PathBuf, deadline: Duration) -> Result<Self> {
        let session = Self {
            address,
            deadline,
            next_request: AtomicU64::new(1),
            opening: Mutex::new(()),
            state: Mutex::new(State {
                pid: std::process::id(),
                idle: Vec::new(),
                lease: Vec::new(),
                pipe: None,
                epoch: 0,
                released: Vec::new(),
                welcome: Welcome::default(),
            }),
        };
        let start = Instant::now();
        let channel = loop {
            let left = deadline.saturating_sub(start.elapsed());
            let error = match session.open_channel(left) {
                Ok(channel) => break channel,
                Err(CallError::Refused(fault)) => return Err(Error::Refused(fault)),
                Err(CallError::Frame(FrameError::Io(error))) => error,
                Err(CallError::Frame(error)) => std::io::Error::other(error),
                Err(CallError::LeaseEnded) => std::io::ErrorKind::ConnectionReset.into(),
            };
            // A store that dies with our connection in its hands is being replaced; where nobody listens nothing is.
            let replaced = matches!(
                error.kind(),
                std::io::ErrorKind::UnexpectedEof
                    | std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::BrokenPipe
            );
            if !replaced || start.elapsed() >= deadline {
                return Err(Error::Connect { path, source: error });
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        session.lock().idle.push(channel);
        Ok(session)
    }

    pub fn volume(&self) -> String {
        self.lock().welcome.volume.clone()
    }

    pub fn read_only(&self) -> bool {
        self.lock().welcome.read_only
    }

    pub fn tier(&self) -> Tier {
        self.lock().welcome.tier()
    }

    /// The volume's GPU as of the last handshake; empty where it has none yet.
    pub fn device(&self) -> Vec<u8> {
        self.lock().welcome.device.clone()
    }

    /// Changes whenever the lease does.
    pub fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    /// Asks the store one thing. Waits for a store that is being replaced until the deadline.
    pub fn call(&self, op: Op, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>)> {
        self.call_while(op, fds, || {})
    }

    /// As [`Session::call`]; does something else while the store answers.
    pub fn call_while(
        &self,
        op: Op,
        fds: &[BorrowedFd<'_>],
        meanwhile: impl FnOnce(),
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let mut meanwhile = Some(meanwhile);
        let start = Instant::now();
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let mut request = Request { id, released: self.take_released(), op: Some(op) };
        let mut pause = Duration::from_millis(1);
        loop {
            let error =
                match self.try_call(&request, fds, self.deadline.saturating_sub(start.elapsed()), &mut meanwhile) {
                    Ok((Answer::Fault(fault), _)) => return Err(Error::Refused(fault)),
                    Ok(answer) => return Ok(answer),
                    Err(CallError::Refused(fault)) => {
                        self.lock().released.append(&mut request.released);
                        return Err(Error::Refused(fault));
                    }
                    Err(CallError::Frame(FrameError::Io(source))) if is_gone(&source) => {
                        self.lock().released.append(&mut request.released);
                        return Err(Error::Connect { path: self.path(), source });
                    }
                    Err(CallError::LeaseEnded) => FrameError::Io(std::io::ErrorKind::ConnectionReset.into()),
                    Err(CallError::Frame(error)) => error,
                };
            let retry = matches!(error, FrameError::Io(_) | FrameError::Cut { .. });
            if !retry || start.elapsed() >= self.deadline {
                let mut state = self.lock();
                state.released.append(&mut request.released);
                if matches!(request.op, Some(Op::Open(_))) {
                    // The store may open it yet: nobody here will use that.
                    state.released.push(id);
                }
                drop(state);
                return Err(Error::Unavailable { volume: self.volume(), waited: start.elapsed(), source: error });
            }
            tracing::debug!(%error, "asking the store again");
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(100));
        }
    }

    fn try_call(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        patience: Duration,
        meanwhile: &mut Option<impl FnOnce()>,
    ) -> CallResult<(Answer, Vec<OwnedFd>)> {
        let mut channel = match self.pop_idle() {
            Some(channel) => channel,
            None => self.open_channel(patience)?,
        };
        channel.send(request, fds)?;
        if let Some(meanwhile) = meanwhile.take() {
            meanwhile();
        }
        let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
        let (reply, fds) = channel.receive::<Reply>(Some(self.patience(request)))?.ok_or_else(closed)?;
        if matches!(&reply.answer, Some(Answer::Fault(fault)) if fault.code() == Code::LeaseEnded) {
            return Err(CallError::LeaseEnded);
        }
        let mut state = self.lock();
        if state.idle.len() < IDLE && state.pid == std::process::id() {
            state.idle.push(channel);
        }
        drop(state);
        match reply.answer {
            Some(answer) if reply.id == request.id => Ok((answer, fds)),
            _ => Err(CallError::Refused(Fault::new(Code::Protocol, "the store's reply is not to this request"))),
        }
    }

    /// How long the store may think about a request: it waits for a path where it is asked to, and makes every page of
    /// large host memory, which takes about half a second for each GiB.
    fn patience(&self, request: &Request) -> Duration {
        const GIB: u64 = 1 << 30;
        self.deadline.saturating_add(match &request.op {
            Some(Op::Create(create)) => Duration::from_secs(2 * create.size.div_ceil(GIB).min(86_400)),
            Some(Op::Open(open)) => Duration::from_millis(open.wait_ms),
            _ => Duration::ZERO,
        })
    }

    /// Lets go of a hold: now where a connection is idle, else with the next request.
    pub fn release(&self, hold: u64) {
        let idle = {
            let mut state = self.lock();
            state.released.push(hold);
            if state.pid == std::process::id() { state.idle.pop() } else { None }
        };
        let Some(mut channel) = idle else { return };
        let id = self.next_request.fetch_add(1, Ordering::Relaxed);
        let request = Request { id, released: self.take_released(), op: Some(Op::Ping(Ping {})) };
        let told = channel.send(&request, &[]).and_then(|()| channel.receive::<Reply>(Some(Duration::from_secs(1))));
        let mut state = self.lock();
        match told {
            Ok(Some(_)) if state.idle.len() < IDLE => state.idle.push(channel),
            Ok(Some(_)) => {}
            // The store is being replaced: it is told with the next request. A hold let go of twice is let go of once.
            _ => state.released.extend(request.released),
        }
    }

    fn take_released(&self) -> Vec<u64> {
        let mut state = self.lock();
        let keep = state.released.len().saturating_sub(RELEASES);
        state.released.split_off(keep)
    }

    fn pop_idle(&self) -> Option<Channel> {
        let mut state = self.lock();
        if state.pid != std::process::id() {
            // A forked child has copies of its parent's connections and of its lease. It takes a lease of its own; the
            // parent's lives on until both are gone, so what the child has mapped stays.
            state.pid = std::process::id();
            state.idle.clear();
            state.lease.clear();
            state.released.clear();
            state.epoch += 1;
            if let Some(pipe) = state.pipe.take() {
                std::mem::forget(pipe);
            }
        }
        state.idle.pop()
    }

    /// A new connection that has joined the lease, or opened a new one. While no store runs, the listener that the keeper
    /// holds still takes connections: the welcome is what shows that a store is there.
    fn open_channel(&self, patience: Duration) -> CallResult<Channel> {
        let _one_at_a_time = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        let until = Instant::now().checked_add(patience).unwrap_or_else(|| Instant::now() + DEFAULT_DEADLINE);
        let mut channel = Channel::new(self.dial(until)?, Limits::default());
        let hello = Hello {
            magic: MAGIC,
            min_version: Version::OLDEST.number(),
            max_version: Version::NEWEST.number(),
            lease: self.lock().lease.clone(),
            client: client_name(),
        };
        // A store that refuses the connection says why without waiting for our hello.
        let sent = channel.send(&hello, &[]);
        let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
        let left = until.saturating_duration_since(Instant::now());
        let (mut welcome, fds) = match channel.receive::<Welcome>(Some(left)) {
            Ok(answer) => answer.ok_or_else(closed)?,
            Err(error) => return Err(sent.err().unwrap_or(error).into()),
        };
        if let Some(fault) = welcome.fault.take() {
            return Err(CallError::Refused(fault));
        }
        let mut state = self.lock();
        if welcome.lease != state.lease {
            // Idle connections belong to the lease that ended.
            state.idle.clear();
            state.pipe = fds.into_iter().next();
            state.lease.clone_from(&welcome.lease);
            state.epoch += 1;
        }
        state.welcome = welcome;
        Ok(channel)
    }

    /// Where the store listens, for people.
    fn path(&self) -> PathBuf {
        use std::os::fd::AsRawFd;
        match &self.address {
            Address::Socket(path) => path.clone(),
            Address::Directory(fd) => {
                let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
                std::fs::read_link(link).unwrap_or_default().join(SOCKET_NAME)
            }
        }
    }

    /// A connected socket. Where the store is being replaced its listener's queue may be full: that is waited for.
    fn dial(&self, until: Instant) -> CallResult<UnixStream> {
        use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
        use std::os::fd::AsRawFd;
        let path = match &self.address {
            Address::Socket(path) => path.clone(),
            Address::Directory(fd) => format!("/proc/self/fd/{}/{SOCKET_NAME}", fd.as_fd().as_raw_fd()).into(),
        };
        let address = SocketAddrUnix::new(path).map_err(|e| FrameError::Io(e.into()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
            .map_err(|e| FrameError::Io(e.into()))?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(FrameError::Io(error.into()).into()),
            }
        }
        rustix::io::ioctl_fionbio(&socket, false).map_err(|e| FrameError::Io(e.into()))?;
        Ok(UnixStream::from(socket))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Program and pid, for people who look at who has what open.
fn client_name() -> String {
    let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    format!("{} pid {}", name.trim(), std::process::id())
}

#[derive(Debug)]
enum CallError {
    Frame(FrameError),
    Refused(Fault),
    LeaseEnded,
}

type CallResult<T> = std::result::Result<T, CallError>;

impl From<FrameError> for CallError {
    fn from(error: FrameError) -> Self {
        CallError::Frame(error)
    }
}
