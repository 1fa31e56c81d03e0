//! One thread that waits for everything that happens by itself: connections to published listeners, and lease pipes
//! that hang up.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll;

use crate::catalogue::lease::LeaseId;

/// What a descriptor is watched for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Watched {
    /// A publish's listener: connections.
    Listener(String),
    /// A lease's pipe: its hang-up.
    Lease(LeaseId),
}

#[derive(Debug)]
pub struct Watch {
    epoll: OwnedFd,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    by_token: HashMap<u64, (Watched, Arc<OwnedFd>)>,
    tokens: HashMap<Watched, u64>,
    next: u64,
}

impl Watch {
    pub fn new() -> io::Result<Self> {
        Ok(Self { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?, table: Mutex::default() })
    }

    /// Watches a descriptor, instead of the one that was watched for the same thing before.
    pub fn add(&self, what: Watched, fd: Arc<OwnedFd>) -> io::Result<()> {
        self.remove(&what);
        let flags = match what {
            Watched::Listener(_) => epoll::EventFlags::IN,
            // A hang-up is always reported; what a client may write into the pipe is nobody's business.
            Watched::Lease(_) => epoll::EventFlags::empty(),
        };
        let mut table = self.lock();
        table.next += 1;
        let token = table.next;
        epoll::add(&self.epoll, fd.as_fd(), epoll::EventData::new_u64(token), flags)?;
        table.tokens.insert(what.clone(), token);
        table.by_token.insert(token, (what, fd));
        Ok(())
    }

    pub fn has(&self, what: &Watched) -> bool {
        self.lock().tokens.contains_key(what)
    }

    pub fn remove(&self, what: &Watched) {
        let mut table = self.lock();
        if let Some((_, fd)) = table.tokens.remove(what).and_then(|token| table.by_token.remove(&token)) {
            let gone = epoll::delete(&self.epoll, fd.as_fd());
            debug_assert!(gone.is_ok(), "a watched descriptor was not in the set: {gone:?}");
        }
    }

    /// Waits for something to happen and hands each thing to `each`.
    pub fn turn(&self, mut each: impl FnMut(&Watched, &Arc<OwnedFd>)) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        for event in events {
            let token = event.data.u64();
            let found = self.lock().by_token.get(&token).cloned();
            if let Some((what, fd)) = found {
                each(&what, &fd);
            }
        }
        Ok(())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
