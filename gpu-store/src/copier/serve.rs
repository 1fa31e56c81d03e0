//! The copier's own process: copies at the store's word, and an end when there is nothing to do.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gpuvol_protocol::{Channel, Code, Fault, FrameError};

use super::copy::{Gpus, copy};
use super::wire::{Begin, Begun, COPIES, Copy, limits};

/// Copies that may be there at a time: twice what the store begins, which takes a copy for ended a moment before its
/// thread is.
const MOST: usize = 2 * COPIES;
/// How long the store may take from announcing a copy to saying what to copy.
const DEADLINE: Duration = Duration::from_secs(10);
/// How often to look whether the last copy has ended.
const LOOK: Duration = Duration::from_millis(250);

/// Why [`serve`] ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Nothing to do for long enough; no copy is under way.
    Idle,
    /// The store is gone, or has given this process up. Copies may be under way, for nobody.
    StoreGone,
}

/// Serves one store until there was nothing to do for `idle`, or until its end of the connection is closed.
pub fn serve(socket: UnixStream, idle: Duration) -> Result<End, FrameError> {
    let mut control = Channel::new(socket, limits());
    let work = Arc::new(Work { gpus: Gpus::default(), state: Mutex::new(State { copies: 0, since: Instant::now() }) });
    loop {
        let left = match work.idle_for() {
            Some(time) if time >= idle => return Ok(End::Idle),
            Some(time) => idle - time,
            None => LOOK,
        };
        match control.receive::<Begin>(Some(left)) {
            Ok(Some((Begin {}, fds))) => {
                let fault = begin(&work, fds).err();
                control.send(&Begun { fault }, &[])?;
            }
            Ok(None) => return Ok(End::StoreGone),
            Err(FrameError::Idle(_)) => {}
            Err(error) => return Err(error),
        }
    }
}

fn begin(work: &Arc<Work>, fds: Vec<OwnedFd>) -> Result<(), Fault> {
    let Ok([connection, target]) = <[OwnedFd; 2]>::try_from(fds) else {
        return Err(Fault::new(Code::Protocol, "a copy is announced with two descriptors"));
    };
    let busy = work.enter()?;
    let run = move || {
        let mut channel = Channel::new(UnixStream::from(connection), limits());
        if let Err(error) = serve_one(&busy.0, &mut channel, target) {
            tracing::warn!(%error, "the store has left a copy");
        }
    };
    match thread::Builder::new().name("gpuvol-copy".to_owned()).spawn(run) {
        Ok(_) => Ok(()),
        Err(error) => Err(Fault::new(Code::Unavailable, format!("the copier gets no thread: {error}"))),
    }
}

fn serve_one(work: &Work, channel: &mut Channel, target: OwnedFd) -> Result<(), FrameError> {
    let Some((request, fds)) = channel.receive::<Copy>(Some(DEADLINE))? else { return Ok(()) };
    let start = Instant::now();
    let mut ended = copy(&work.gpus, &request, fds, target);
    ended.micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    match &ended.fault {
        None => tracing::info!(object = request.object, bytes = ended.bytes, micros = ended.micros, "copied"),
        Some(fault) => tracing::warn!(object = request.object, %fault, broken = ended.broken, "not copied"),
    }
    channel.send(&ended, &[])
}

/// The GPUs in use, and how many copies there are.
#[derive(Debug)]
struct Work {
    gpus: Gpus,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    copies: usize,
    /// When the last copy ended.
    since: Instant,
}

impl Work {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long there has been no copy; `None` while there is one.
    fn idle_for(&self) -> Option<Duration> {
        let state = self.state();
        (state.copies == 0).then(|| state.since.elapsed())
    }

    fn enter(self: &Arc<Self>) -> Result<Busy, Fault> {
        let mut state = self.state();
        if state.copies >= MOST {
            return Err(Fault::new(Code::LimitExceeded, format!("the copier has {MOST} copies to do already")));
        }
        state.copies += 1;
        Ok(Busy(Arc::clone(self)))
    }
}

/// One copy that is there, until dropped.
struct Busy(Arc<Work>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.copies -= 1;
        state.since = Instant::now();
    }
}
