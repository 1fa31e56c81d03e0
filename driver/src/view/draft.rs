//! A file that is being written: the store's memory, written in place.
//!
//! All handles of a draft, in all mounts, share one [`Draft`]. The memory's size is the file's size. The store makes
//! room, and so counts the quota, before bytes are written beyond what it made before; what changes the end of the file
//! takes the draft's turn. Until its first write a draft has no memory and reads as what it is to replace.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use fuser::Errno;
use gpuvol_protocol::view::{Opened, Reserve};

use super::content::Content;
use super::errno::{Failure, Result};
use super::turn::{Taken, Turn};

/// How much more than needed is asked for: half of the file, so that the number of times grows with its size's
/// logarithm, within these bounds.
const LEAST_AHEAD: u64 = 1024 * 1024;
const MOST_AHEAD: u64 = 64 * 1024 * 1024;
/// The end of a file is a signed number in every interface.
const LARGEST: u64 = i64::MAX as u64;

/// Asks the store for room.
pub trait Landlord {
    fn reserve(&self, reserve: Reserve) -> Result<(Opened, Vec<OwnedFd>)>;
    fn take_turn<'a>(&self, turn: &'a Turn) -> Result<Taken<'a>>;
}

#[derive(Debug)]
pub struct Draft {
    pub node: u64,
    pub turn: Turn,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    memory: Option<Arc<File>>,
    /// Bytes that may be written without asking.
    reserved: u64,
    /// What it reads as while it has no memory.
    base: Arc<Content>,
}

impl Draft {
    fn new(node: u64) -> Self {
        Self { node, turn: Turn::default(), state: Mutex::default() }
    }

    /// Takes in what the store says: a draft's memory, or what it is to replace.
    pub fn learn(&self, reserved: u64, memory: Option<OwnedFd>, base: Content) -> io::Result<()> {
        let fresh = memory.map(File::from);
        let mut state = self.lock();
        let Some(fresh) = fresh else {
            if state.memory.is_none() {
                state.base = Arc::new(base);
            }
            return Ok(());
        };
        let known = match &state.memory {
            Some(known) => same(known, &fresh)?,
            None => false,
        };
        if !known {
            state.memory = Some(Arc::new(fresh));
            state.base = Arc::default();
        }
        state.reserved = reserved;
        Ok(())
    }

    pub fn memory(&self) -> Option<Arc<File>> {
        self.lock().memory.clone()
    }

    /// The store gave memory back: what may be written is to be asked for again.
    pub fn forget_reservation(&self) {
        self.lock().reserved = 0;
    }

    fn forget_memory(&self, memory: &Arc<File>) {
        let mut state = self.lock();
        if state.memory.as_ref().is_some_and(|known| Arc::ptr_eq(known, memory)) {
            state.memory = None;
            state.reserved = 0;
        }
    }

    /// The memory, with room up to `end`.
    pub fn room(&self, store: &impl Landlord, end: u64) -> Result<Arc<File>> {
        if let Some(memory) = self.ready(end) {
            return Ok(memory);
        }
        let _turn = store.take_turn(&self.turn)?;
        self.room_in_turn(store, end)
    }

    /// As [`Draft::room`], for who has the turn already.
    pub fn room_in_turn(&self, store: &impl Landlord, end: u64) -> Result<Arc<File>> {
        if let Some(memory) = self.ready(end) {
            return Ok(memory);
        }
        if end > LARGEST {
            return Err(Errno::EFBIG.into());
        }
        let ahead = (end / 2).clamp(LEAST_AHEAD, MOST_AHEAD);
        let (opened, fds) = store.reserve(Reserve { node: self.node, size: end, ahead })?;
        if !opened.memory {
            return Err(Failure::Confused("no memory for a draft that was given room"));
        }
        let memory = fds.into_iter().next().ok_or(Failure::Confused("no descriptor of a draft's memory"))?;
        self.learn(opened.reserved, Some(memory), Content::default()).map_err(Failure::system("looking at a draft"))?;
        self.ready(end).ok_or(Failure::Confused("less room than asked for"))
    }

    fn ready(&self, end: u64) -> Option<Arc<File>> {
        let state = self.lock();
        if state.reserved >= end { state.memory.clone() } else { None }
    }

    pub fn write_at(&self, store: &impl Landlord, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        self.change(|| self.room(store, end), |memory| memory.write_all_at(bytes, offset))
    }

    /// As [`Draft::write_at`], for who has the turn already.
    pub fn write_in_turn(&self, store: &impl Landlord, bytes: &[u8], offset: u64) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(Errno::EFBIG)?;
        self.change(|| self.room_in_turn(store, end), |memory| memory.write_all_at(bytes, offset))
    }

    /// Does something to the memory. Memory that was frozen meanwhile says `EPERM`: then the store gives another.
    pub fn change(
        &self,
        room: impl Fn() -> Result<Arc<File>>,
        work: impl Fn(&Arc<File>) -> io::Result<()>,
    ) -> Result<()> {
        let memory = room()?;
        match work(&memory) {
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
                self.forget_memory(&memory);
                work(&room()?).map_err(Failure::system("writing to a draft"))
            }
            result => result.map_err(Failure::system("writing to a draft")),
        }
    }

    /// The size as it is now.
    pub fn size(&self) -> Result<u64> {
        let (memory, base) = self.parts();
        match memory {
            Some(memory) => Ok(memory.metadata().map_err(Failure::system("looking at a draft"))?.size()),
            None => Ok(base.len()),
        }
    }

    /// Fills `buffer` from `offset`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let (memory, base) = self.parts();
        match memory {
            Some(memory) => read_full(&memory, buffer, offset),
            None => base.read_at(buffer, offset),
        }
        .map_err(Failure::system("reading a draft"))
    }

    fn parts(&self) -> (Option<Arc<File>>, Arc<Content>) {
        let state = self.lock();
        (state.memory.clone(), Arc::clone(&state.base))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn same(one: &File, other: &File) -> io::Result<bool> {
    let (one, other) = (one.metadata()?, other.metadata()?);
    Ok((one.dev(), one.ino()) == (other.dev(), other.ino()))
}

fn read_full(memory: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        // An offset beyond the largest file is beyond this one's end.
        let Some(at) = offset.checked_add(done as u64).filter(|at| *at <= LARGEST) else { break };
        match memory.read_at(&mut buffer[done..], at) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// The drafts of all mounts, and the appends that a mounter before this one left half done.
#[derive(Debug, Default)]
pub struct Drafts {
    open: Mutex<HashMap<(String, u64), Weak<Draft>>>,
    unfinished: Mutex<Vec<Unfinished>>,
}

/// An append that will be asked for again: nobody else's may go where its bytes belong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unfinished {
    pub publish: String,
    pub volume: String,
    pub node: u64,
    pub unique: u64,
    pub end: u64,
}

impl Drafts {
    pub fn open(&self, volume: &str, node: u64) -> Arc<Draft> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (volume.to_owned(), node);
        if let Some(known) = open.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let draft = Arc::new(Draft::new(node));
        // Now and then, so that what is closed does not pile up.
        if open.len().is_power_of_two() {
            open.retain(|_, draft| draft.strong_count() > 0);
        }
        open.insert(key, Arc::downgrade(&draft));
        draft
    }

    /// A draft that somebody has open here.
    pub fn find(&self, volume: &str, node: u64) -> Option<Arc<Draft>> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&(volume.to_owned(), node)).and_then(Weak::upgrade)
    }

    pub fn inherit(&self, unfinished: impl IntoIterator<Item = Unfinished>) {
        self.unfinished().extend(unfinished);
    }

    /// The end of the file that unfinished appends will make, where there are any.
    pub fn promised_end(&self, volume: &str, node: u64) -> u64 {
        let of = |append: &&Unfinished| append.node == node && append.volume == volume;
        self.unfinished().iter().filter(of).map(|append| append.end).max().unwrap_or(0)
    }

    pub fn finished(&self, publish: &str, unique: u64) {
        self.unfinished().retain(|append| append.unique != unique || append.publish != publish);
    }

    /// A mount is gone, and with it who would ask again.
    pub fn ended(&self, publish: &str) {
        self.unfinished().retain(|append| append.publish != publish);
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<Unfinished>> {
        self.unfinished.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
