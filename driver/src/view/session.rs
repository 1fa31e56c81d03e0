//! One published mount: what its requests are done with, and the frame around each of them.

use std::collections::HashSet;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use fuser::{Errno, InitFlags, Request};
use gpuvol_protocol::view::{
    Describe, Names, Node, Opened, ReadDirectory, Reserve, Session, Value, ViewAnswer, ViewOp,
};

use super::buffers::Buffers;
use super::content::Memories;
use super::draft::{Drafts, Landlord, Unfinished};
use super::errno::{Failure, Result};
use super::files::{Files, OpenFile};
use super::found::Found;
use super::journal::Journal;
use super::passthrough::Backings;
use super::release::Held;
use super::remembered::Remembered;
use super::store::Store;
use super::turn::{Taken, Turn};

/// The bit by which the kernel marks a request that it sends again.
const RESENT: u64 = 1 << 63;

/// What all mounts of this process share.
#[derive(Debug)]
pub struct Shared {
    pub store: Store,
    pub drafts: Drafts,
    pub memories: Memories,
    pub buffers: Buffers,
}

#[derive(Debug)]
pub struct View {
    pub(super) publish: String,
    pub(super) volume: String,
    pub(super) read_only: bool,
    pub(super) shared: Arc<Shared>,
    pub(super) held: Arc<Held>,
    /// Nodes that were open sealed before, so that what the kernel has of their pages is theirs.
    pub(super) warm: Mutex<HashSet<u64>>,
    pub(super) files: Files,
    pub(super) journal: Journal,
    pub(super) remembered: Remembered,
    pub(super) found: Found,
}

/// The kernel's id of a request.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Without the mark.
    pub unique: u64,
    pub resent: bool,
    pub uid: u32,
    pub gid: u32,
}

impl From<&Request> for Call {
    fn from(request: &Request) -> Self {
        let unique = request.unique().0;
        Self { unique: unique & !RESENT, resent: unique & RESENT != 0, uid: request.uid(), gid: request.gid() }
    }
}

impl View {
    /// `fuse`: the mount's connection. `journal`: what its mounters leave to each other.
    pub fn new(session: &Session, fuse: OwnedFd, journal: OwnedFd, shared: Arc<Shared>) -> Result<Self> {
        let journal = File::from(journal);
        let clock = journal.try_clone().map_err(Failure::system("one more descriptor of the journal"))?;
        let journal = Journal::open(journal).map_err(Failure::system("reading the journal"))?;
        shared.drafts.inherit(journal.unfinished().iter().map(|slot| Unfinished {
            publish: session.publish.clone(),
            volume: session.volume.clone(),
            node: slot.node,
            unique: slot.unique,
            end: slot.end(),
        }));
        let agreed = session.agreed.unwrap_or_default().flags;
        let passthrough = agreed & InitFlags::FUSE_PASSTHROUGH.bits() != 0;
        let backings = Backings::new(fuse, passthrough, &session.backings);
        Ok(Self {
            publish: session.publish.clone(),
            volume: session.volume.clone(),
            read_only: session.read_only,
            held: Arc::new(Held::new(session.publish.clone(), Arc::clone(&shared), backings)),
            warm: Mutex::default(),
            shared,
            files: Files::default(),
            journal,
            remembered: Remembered::new(clock),
            found: Found::default(),
        })
    }

    /// What others look at while the mount is served.
    pub fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held)
    }

    /// Does a request's work: its age is seen by the watchdog, its failure is logged where that is news, and a bug in
    /// it costs one answer, not the thread.
    pub(super) fn serve<T>(
        &self,
        request: &Request,
        what: &'static str,
        node: u64,
        work: impl FnOnce(Call) -> Result<T>,
    ) -> std::result::Result<T, Errno> {
        let _under_way = self.held.progress.begin();
        let failure = match catch_unwind(AssertUnwindSafe(|| work(Call::from(request)))) {
            Ok(Ok(result)) => return Ok(result),
            Ok(Err(failure)) => failure,
            Err(_) => {
                tracing::error!(publish = self.publish, node, what, "a request panicked");
                return Err(Errno::EIO);
            }
        };
        if failure.is_ordinary() || !self.held.is_news() {
            tracing::debug!(publish = self.publish, node, what, %failure);
        } else {
            tracing::warn!(publish = self.publish, volume = self.volume, node, what, %failure, "a request failed");
        }
        Err(failure.errno())
    }

    /// Refuses what would change a volume that is published read-only.
    pub(super) fn writable(&self) -> Result<()> {
        if self.read_only { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    fn ask(&self, unique: u64, op: ViewOp) -> Result<(ViewAnswer, Vec<OwnedFd>)> {
        self.shared.store.ask(&self.publish, unique, op)
    }

    pub(super) fn ask_done(&self, unique: u64, op: ViewOp) -> Result<()> {
        match self.ask(unique, op)? {
            (ViewAnswer::Done(_), _) => Ok(()),
            _ => Err(Failure::Confused("a result where none was asked for")),
        }
    }

    pub(super) fn ask_node(&self, unique: u64, op: ViewOp) -> Result<Node> {
        match self.ask(unique, op)? {
            (ViewAnswer::Node(node), _) => Ok(node),
            _ => Err(Failure::Confused("no node")),
        }
    }

    pub(super) fn ask_opened(&self, unique: u64, op: ViewOp) -> Result<(Opened, Vec<OwnedFd>)> {
        match self.ask(unique, op)? {
            (ViewAnswer::Opened(opened), fds) => Ok((opened, fds)),
            _ => Err(Failure::Confused("no open file")),
        }
    }

    pub(super) fn ask_value(&self, op: ViewOp) -> Result<Vec<u8>> {
        match self.ask(0, op)? {
            (ViewAnswer::Value(Value { value }), _) => Ok(value),
            _ => Err(Failure::Confused("no value")),
        }
    }

    pub(super) fn ask_names(&self, read: ReadDirectory) -> Result<Names> {
        match self.ask(0, ViewOp::ReadDirectory(read))? {
            (ViewAnswer::Names(names), _) => Ok(names),
            _ => Err(Failure::Confused("no names")),
        }
    }

    pub(super) fn ask_usage(&self) -> Result<gpuvol_protocol::message::Usage> {
        match self.ask(0, ViewOp::StatVolume(gpuvol_protocol::view::StatVolume {}))? {
            (ViewAnswer::Usage(usage), _) => Ok(usage),
            _ => Err(Failure::Confused("no usage")),
        }
    }

    /// The open file of a handle; one that a predecessor opened is asked for.
    pub(super) fn file(&self, handle: u64) -> Result<Arc<OpenFile>> {
        if let Some(file) = self.files.get(handle) {
            return Ok(file);
        }
        let (opened, fds) = self.ask_opened(0, ViewOp::Describe(Describe { handle }))?;
        self.adopt(Opened { handle, ..opened }, fds)
    }

    pub(super) fn adopt(&self, opened: Opened, fds: Vec<OwnedFd>) -> Result<Arc<OpenFile>> {
        let file = OpenFile::new(opened, fds, &self.volume, &self.shared.drafts, &self.shared.memories)?;
        Ok(self.files.insert(file))
    }
}

impl Landlord for View {
    fn reserve(&self, reserve: Reserve) -> Result<(Opened, Vec<OwnedFd>)> {
        self.ask_opened(0, ViewOp::Reserve(reserve))
    }

    fn take_turn<'a>(&self, turn: &'a Turn) -> Result<Taken<'a>> {
        turn.take(self.shared.store.deadline())
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.shared.drafts.ended(&self.publish);
    }
}
