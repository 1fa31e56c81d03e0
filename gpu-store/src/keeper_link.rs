//! The store's side of the keeper: what it must hold, and a connection that comes back.
//!
//! The link remembers every descriptor that the keeper should hold. When the keeper dies while the store lives, the
//! link hands everything to its successor before it answers the next call.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use gpuvol_protocol::keeping::{Drop as DropKeys, Hold, KeeperOp, KeeperReply, KeeperRequest, List, PAGE};
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits};

/// How long a call may take, a new keeper's start included.
const DEADLINE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub struct KeeperLink {
    path: PathBuf,
    inner: Mutex<Inner>,
    /// What the last check found.
    last: Mutex<(bool, u64)>,
}

#[derive(Debug, Default)]
struct Inner {
    channel: Option<Channel>,
    holding: BTreeMap<String, Arc<OwnedFd>>,
    /// Names that the keeper may hold after all: a hold that was given up may still arrive.
    stale: Vec<String>,
    held: u64,
}

type Fds = Vec<(String, Arc<OwnedFd>)>;

impl KeeperLink {
    /// Connects and takes back everything that the keeper holds. Waits up to `patience` for the keeper to appear.
    pub fn connect(path: PathBuf, patience: Duration) -> Result<(Self, BTreeMap<String, Arc<OwnedFd>>), Fault> {
        let link = Self { path, inner: Mutex::default(), last: Mutex::new((true, 0)) };
        let start = Instant::now();
        let held = loop {
            match link.list_all() {
                Ok(held) => break held,
                Err(_) if start.elapsed() < patience => std::thread::sleep(RETRY),
                Err(error) => return Err(link.unreachable(&error)),
            }
        };
        link.inner.lock().unwrap_or_else(PoisonError::into_inner).holding = held.clone();
        Ok((link, held))
    }

    /// Holds descriptors under names. When this returns `Ok` they outlive the store.
    pub fn hold(&self, fds: &[(String, Arc<OwnedFd>)]) -> Result<(), Fault> {
        let start = Instant::now();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        // Remembered first: a keeper that is replaced in the middle gets these too.
        inner.holding.extend(fds.iter().cloned());
        let result = self
            .call(&mut inner, start, |channel| fds.chunks(PAGE).try_fold((), |(), chunk| hold_chunk(channel, chunk)));
        if result.is_err() {
            for (key, _) in fds {
                inner.holding.remove(key);
                inner.stale.push(key.clone());
            }
        }
        result
    }

    /// Lets names go. A keeper that cannot be reached now does not get them from its store again.
    pub fn drop_keys(&self, keys: &[String]) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let dropped: Vec<_> = keys.iter().filter_map(|key| inner.holding.remove(key)).collect();
        let result = self.call(&mut inner, Instant::now(), |channel| {
            keys.chunks(1000).try_fold((), |(), chunk| {
                let op = KeeperOp::Drop(DropKeys { keys: chunk.to_vec() });
                ask(channel, op, &[]).map(|_| ())
            })
        });
        drop(inner);
        drop(dropped);
        if let Err(fault) = result {
            tracing::error!(%fault, "the keeper still holds memory that was freed");
        }
    }

    /// Is the keeper there, and how many descriptors does it hold? Reconnects if it must.
    /// Where somebody is waiting for the keeper just now, it is what that one waits for that is missing.
    pub fn check(&self) -> (bool, u64) {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return *self.last.lock().unwrap_or_else(PoisonError::into_inner),
        };
        let mut held = inner.held;
        let result = self.attempt(&mut inner, &mut |channel| {
            let op = KeeperOp::List(List { after: String::new(), prefix: "\u{10ffff}".into() });
            held = ask(channel, op, &[])?.0.held;
            Ok(())
        });
        inner.held = held;
        let now = (result.is_ok(), held);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = now;
        now
    }

    fn list_all(&self) -> Result<BTreeMap<String, Arc<OwnedFd>>, CallError> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = BTreeMap::new();
        self.attempt(&mut inner, &mut |channel| {
            let mut after = String::new();
            loop {
                let list = List { after: after.clone(), prefix: String::new() };
                let (reply, fds) = ask(channel, KeeperOp::List(list), &[])?;
                if let Some(last) = reply.keys.last() {
                    after.clone_from(last);
                }
                all.extend(reply.keys.into_iter().zip(fds.into_iter().map(Arc::new)));
                if !reply.more {
                    return Ok(());
                }
            }
        })?;
        Ok(all)
    }

    /// Does something over the connection, again over a new one until the deadline, which counts from `start`: who waited
    /// for the lock has waited for the keeper.
    fn call(
        &self,
        inner: &mut Inner,
        start: Instant,
        mut work: impl FnMut(&mut Channel) -> Result<(), CallError>,
    ) -> Result<(), Fault> {
        loop {
            match self.attempt(inner, &mut work) {
                Ok(()) => return Ok(()),
                Err(CallError::Refused(fault)) => return Err(fault),
                Err(_) if start.elapsed() < DEADLINE => std::thread::sleep(RETRY),
                Err(error) => return Err(self.unreachable(&error)),
            }
        }
    }

    /// One try over the connection that is there, or over a new one that is first given everything.
    fn attempt(
        &self,
        inner: &mut Inner,
        work: &mut dyn FnMut(&mut Channel) -> Result<(), CallError>,
    ) -> Result<(), CallError> {
        let mut channel = match inner.channel.take() {
            Some(channel) => channel,
            None => self.hand_over(&inner.holding)?,
        };
        let stale = std::mem::take(&mut inner.stale);
        let cleared = stale.chunks(1000).try_fold((), |(), chunk| {
            ask(&mut channel, KeeperOp::Drop(DropKeys { keys: chunk.to_vec() }), &[]).map(|_| ())
        });
        if let Err(error) = cleared {
            inner.stale = stale;
            return Err(error);
        }
        let result = work(&mut channel);
        if !matches!(result, Err(CallError::Frame(_))) {
            inner.channel = Some(channel);
        }
        result
    }

    fn hand_over(&self, holding: &BTreeMap<String, Arc<OwnedFd>>) -> Result<Channel, CallError> {
        let socket = UnixStream::connect(&self.path).map_err(FrameError::from)?;
        let mut channel = Channel::new(socket, Limits::default());
        let mut all: Fds = holding.iter().map(|(key, fd)| (key.clone(), fd.clone())).collect();
        // The log last: a keeper that has it has everything that it tells of.
        all.sort_by_key(|(key, _)| key.starts_with("log/"));
        for chunk in all.chunks(PAGE) {
            hold_chunk(&mut channel, chunk)?;
        }
        if !all.is_empty() {
            tracing::info!(descriptors = all.len(), "connected to the keeper and handed it everything");
        }
        Ok(channel)
    }

    fn unreachable(&self, error: &CallError) -> Fault {
        let message =
            format!("the keeper at {} cannot be reached: {error}; is gpuvol-keeper running?", self.path.display());
        Fault::new(Code::Unavailable, message)
    }
}

fn hold_chunk(channel: &mut Channel, chunk: &[(String, Arc<OwnedFd>)]) -> Result<(), CallError> {
    let keys = chunk.iter().map(|(key, _)| key.clone()).collect();
    let fds: Vec<BorrowedFd<'_>> = chunk.iter().map(|(_, fd)| fd.as_fd()).collect();
    ask(channel, KeeperOp::Hold(Hold { keys }), &fds).map(|_| ())
}

fn ask(channel: &mut Channel, op: KeeperOp, fds: &[BorrowedFd<'_>]) -> Result<(KeeperReply, Vec<OwnedFd>), CallError> {
    channel.send(&KeeperRequest { op: Some(op) }, fds)?;
    let closed = || FrameError::Io(std::io::ErrorKind::UnexpectedEof.into());
    let (reply, fds) = channel.receive::<KeeperReply>(Some(DEADLINE))?.ok_or_else(closed)?;
    match reply.fault {
        Some(fault) => Err(CallError::Refused(fault)),
        None => Ok((reply, fds)),
    }
}

#[derive(Debug, thiserror::Error)]
enum CallError {
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("{0}")]
    Refused(Fault),
}
