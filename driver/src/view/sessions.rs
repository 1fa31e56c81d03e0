//! Which mounts this process serves: what the store lists.
//!
//! A mount that appears in the list comes with its connection and its journal, and is taken over. One that disappears
//! was unpublished: its threads end by themselves when it is unmounted, or it is ended.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gpuvol_protocol::view::{Session, SessionList};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::connections::Connections;
use super::errno::{Failure, Result};
use super::heartbeat::Beat;
use super::release::Held;
use super::resume::resume;
use super::session::{Shared, View};

/// How long the store may wait for a change.
const WAIT: Duration = Duration::from_secs(2);
/// How long a mount that was unpublished may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
/// How long to leave a mount alone that cannot be served.
const PAUSE: Duration = Duration::from_secs(2);

/// The mounts of this process.
#[derive(Debug)]
pub struct Sessions {
    shared: Arc<Shared>,
    threads: usize,
    live: Mutex<HashMap<String, Live>>,
    /// Mounts that could not be served, or whose connection ended while they are still listed; and since when.
    shunned: Mutex<HashMap<String, Instant>>,
}

#[derive(Debug)]
struct Live {
    connection: u32,
    held: Arc<Held>,
    thread: JoinHandle<()>,
    /// Since when the store does not list it.
    unlisted: Option<Instant>,
}

impl Sessions {
    /// `threads`: for each mount.
    pub fn new(shared: Arc<Shared>, threads: usize) -> Self {
        Self { shared, threads, live: Mutex::default(), shunned: Mutex::default() }
    }

    /// What each mount has to show that it is served.
    pub fn beats(&self) -> Vec<Beat> {
        let beat = |(publish, live): (&String, &Live)| Beat {
            publish: publish.clone(),
            connection: live.connection,
            age: live.held.progress.oldest().unwrap_or_default(),
        };
        self.live().iter().filter(|(_, live)| !live.thread.is_finished()).map(beat).collect()
    }

    /// Asks the store once what to serve, and does it.
    pub fn follow(&self) -> Result<()> {
        let known = self.known();
        let (list, fds) = self.shared.store.sessions(known.clone(), WAIT)?;
        let fresh = self.take(&known, &list, fds)?;
        self.start(fresh);
        self.end_unlisted(&list);
        let held: Vec<_> = self.live().values().map(|live| Arc::clone(&live.held)).collect();
        held.iter().for_each(|held| held.close_late());
        Ok(())
    }

    /// The mounts whose descriptors are not wanted now. Of one that has ended they are, now and then: it may have been
    /// published anew under the same name.
    fn known(&self) -> Vec<String> {
        let mut live = self.live();
        let mut shunned = self.shunned();
        shunned.retain(|_, since| since.elapsed() < PAUSE);
        live.retain(|publish, live| {
            let runs = !live.thread.is_finished();
            if !runs {
                shunned.insert(publish.clone(), Instant::now());
            }
            runs
        });
        live.keys().chain(shunned.keys()).cloned().collect()
    }

    /// Pairs the listed mounts that are new with their descriptors. Every journal is read before any mount is served:
    /// an append that is half done in one mount keeps its place in a file of all.
    fn take(&self, known: &[String], list: &SessionList, fds: Vec<OwnedFd>) -> Result<Vec<(Session, OwnedFd, View)>> {
        let mut fds = fds.into_iter();
        let mut fresh = Vec::new();
        for session in list.sessions.iter().filter(|session| !known.contains(&session.publish)) {
            let (Some(fuse), Some(journal)) = (fds.next(), fds.next()) else {
                return Err(Failure::Confused("a new mount without its descriptors"));
            };
            if is_over(fuse.as_fd()) {
                tracing::debug!(publish = session.publish, "still listed, and over");
                self.shunned().insert(session.publish.clone(), Instant::now());
                continue;
            }
            let copy = fuse.try_clone().map_err(Failure::system("copying a descriptor"));
            match copy.and_then(|copy| View::new(session, copy, journal, Arc::clone(&self.shared))) {
                Ok(view) => fresh.push((session.clone(), fuse, view)),
                Err(failure) => self.shun(session, &failure),
            }
        }
        Ok(fresh)
    }

    /// Leaves a mount alone for a while.
    fn shun(&self, session: &Session, why: &dyn std::error::Error) {
        tracing::error!(publish = session.publish, why = %why, "cannot serve a mount");
        self.shunned().insert(session.publish.clone(), Instant::now());
    }

    fn start(&self, fresh: Vec<(Session, OwnedFd, View)>) {
        for (session, fuse, view) in fresh {
            let held = view.held();
            let thread = match self.serve(&session, &fuse, view) {
                Ok(thread) => thread,
                Err(error) => {
                    self.shun(&session, &error);
                    continue;
                }
            };
            let live = Live { connection: session.connection, held, thread, unlisted: None };
            self.live().insert(session.publish, live);
        }
    }

    fn serve(&self, session: &Session, fuse: &OwnedFd, view: View) -> std::io::Result<JoinHandle<()>> {
        let agreed = session.agreed.unwrap_or_default();
        let serving = resume(view, &agreed, fuse.as_fd(), self.threads)?;
        let publish = session.publish.clone();
        tracing::info!(publish, volume = session.volume, read_only = session.read_only, "serving");
        std::thread::Builder::new().name("mount".into()).spawn(move || match serving.run() {
            Ok(()) => tracing::info!(publish, "the mount is gone"),
            Err(error) => tracing::error!(publish, %error, "a mount is not served any more"),
        })
    }

    fn end_unlisted(&self, list: &SessionList) {
        // What was unpublished may come again under its name at any time.
        self.shunned().retain(|publish, _| list.sessions.iter().any(|session| session.publish == *publish));
        let mut overdue = Vec::new();
        let mut live = self.live();
        for (publish, live) in live.iter_mut() {
            match list.sessions.iter().find(|session| session.publish == *publish) {
                Some(session) => {
                    live.unlisted = None;
                    live.held.backings.keep_only(&session.backings);
                }
                None => {
                    let since = live.unlisted.get_or_insert_with(Instant::now);
                    if since.elapsed() >= GRACE && !live.thread.is_finished() {
                        overdue.push((publish.clone(), live.connection));
                        // Once more after the same time, should it fail.
                        live.unlisted = None;
                    }
                }
            }
        }
        drop(live);
        for (publish, connection) in overdue {
            match Connections::open().and_then(|connections| connections.abort(connection)) {
                Ok(_) => tracing::warn!(publish, connection, ?GRACE, "an unpublished mount was still there; ended"),
                Err(error) => tracing::warn!(publish, connection, %error, "an unpublished mount cannot be ended"),
            }
        }
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shunned(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.shunned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a connection was unmounted or ended.
fn is_over(fuse: BorrowedFd<'_>) -> bool {
    let mut set = [PollFd::from_borrowed_fd(fuse, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut set, Some(&at_once)).is_ok_and(|_| set[0].revents().contains(PollFlags::ERR))
}
