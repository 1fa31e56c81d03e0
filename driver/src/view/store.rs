//! Asking the store, which may be replaced in the middle of it.
//!
//! Each request in flight has a connection of its own; idle ones are kept. A request whose connection breaks is sent
//! again with the same id over a new one, so that it has one effect, until the deadline. A socket that is not there, or
//! on which nobody listens, belongs to a store that is being replaced as well: mounts outlive it.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gpuvol_protocol::view::{SessionList, Sessions, ViewAnswer, ViewOp, ViewReply, ViewRequest};
use gpuvol_protocol::{Channel, FrameError, Limits};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::errno::{Failure, Result};

/// Below the node's state directory.
const DIRECTORY: &str = "store";
const SOCKET: &str = "view.sock";
/// Idle connections that are kept: more requests than that are rarely in flight at once.
const IDLE: usize = 32;

/// The store as mounters see it.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    deadline: Duration,
    idle: Mutex<Vec<Channel>>,
}

impl Store {
    /// The store of a node. `deadline`: how long a request may take, a restart of the store included.
    pub fn new(state: &Path, deadline: Duration) -> Self {
        Self { directory: state.join(DIRECTORY), deadline, idle: Mutex::default() }
    }

    pub fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Asks one thing for a mount. `unique`: the id under which it has one effect; 0 for what is safe to repeat.
    pub fn ask(&self, publish: &str, unique: u64, op: ViewOp) -> Result<(ViewAnswer, Vec<OwnedFd>)> {
        self.call(&ViewRequest { publish: publish.to_owned(), unique, op: Some(op) }, self.deadline)
    }

    /// The mounts to serve, as soon as they are others than `known`.
    pub fn sessions(&self, known: Vec<String>, wait: Duration) -> Result<(SessionList, Vec<OwnedFd>)> {
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let op = Some(ViewOp::Sessions(Sessions { known, wait_ms }));
        let request = ViewRequest { publish: String::new(), unique: 0, op };
        match self.call(&request, self.deadline.saturating_add(wait))? {
            (ViewAnswer::Sessions(list), fds) => Ok((list, fds)),
            _ => Err(Failure::Confused("no list of sessions")),
        }
    }

    fn call(&self, request: &ViewRequest, patience: Duration) -> Result<(ViewAnswer, Vec<OwnedFd>)> {
        let start = Instant::now();
        let mut pause = Duration::from_millis(1);
        loop {
            let idle = self.lock().pop();
            let pooled = idle.is_some();
            let until = start + patience;
            let error = match self.try_call(idle, request, until) {
                Ok((Some(ViewAnswer::Fault(fault)), _)) => return Err(Failure::Refused(fault)),
                Ok((Some(answer), fds)) => return Ok((answer, fds)),
                Ok((None, _)) => return Err(Failure::Confused("an answer of a kind that this mounter does not know")),
                Err(error) => error,
            };
            let retry = matches!(error, FrameError::Io(_) | FrameError::Cut { .. } | FrameError::Stalled { .. });
            if !retry || Instant::now() >= until {
                return Err(Failure::Unanswered { waited: start.elapsed(), source: error });
            }
            tracing::debug!(%error, "asking the store again");
            if pooled {
                // The others are connections to the same store that is gone.
                self.lock().clear();
                continue;
            }
            std::thread::sleep(pause.min(until.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }

    fn try_call(
        &self,
        idle: Option<Channel>,
        request: &ViewRequest,
        until: Instant,
    ) -> std::result::Result<(Option<ViewAnswer>, Vec<OwnedFd>), FrameError> {
        let mut channel = match idle {
            Some(channel) => channel,
            None => Channel::new(self.dial(until)?, Limits::default()),
        };
        channel.send(request, &[])?;
        let left = until.saturating_duration_since(Instant::now());
        let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
        let (reply, fds) = channel.receive::<ViewReply>(Some(left))?.ok_or_else(closed)?;
        let mut idle = self.lock();
        if idle.len() < IDLE {
            idle.push(channel);
        }
        Ok((reply.answer, fds))
    }

    /// A connected socket. Its name is taken from a descriptor of the directory: a state directory's path may be longer
    /// than a socket's may be.
    fn dial(&self, until: Instant) -> std::io::Result<UnixStream> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.directory, flags, Mode::empty())?;
        let address = SocketAddrUnix::new(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))?;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        loop {
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                // The listener's queue is full: a store that is being replaced, or very busy.
                Err(Errno::AGAIN | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => return Err(error.into()),
            }
        }
        rustix::io::ioctl_fionbio(&socket, false)?;
        Ok(UnixStream::from(socket))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
