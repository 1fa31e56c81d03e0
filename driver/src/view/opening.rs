//! Opening, creating and closing files.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use fuser::{Errno, FileAttr, FopenFlags};
use gpuvol_protocol::view::{Backing, CreateFile, Flush, Lookup, NodeKind, OpenFile as Open, Opened, Release, ViewOp};

use super::attributes::{Described, permissions};
use super::errno::{Failure, Result};
use super::files::{Body, OpenFile};
use super::names;
use super::passthrough::{Backings, Mode};
use super::release::Closing;
use super::session::{Call, View};

/// Nodes that are remembered to have been open; forgetting all of them costs a page cache, nothing else.
const WARM: usize = 64 * 1024;

/// What the kernel is told of a file that it opened.
#[derive(Debug)]
pub(super) struct Opening {
    pub handle: u64,
    pub flags: FopenFlags,
    /// The memory that the kernel reads by itself; 0 for none.
    pub backing: u32,
    pub attributes: FileAttr,
}

/// What an `open` asks for.
#[derive(Debug, Clone, Copy)]
struct Wish {
    read: bool,
    write: bool,
    truncate: bool,
    append: bool,
}

impl Wish {
    fn of(flags: i32) -> Self {
        let access = flags & libc::O_ACCMODE;
        let truncate = flags & libc::O_TRUNC != 0;
        Self {
            read: access != libc::O_WRONLY,
            // Truncating writes, whatever it is opened for.
            write: access != libc::O_RDONLY || truncate,
            truncate,
            append: flags & libc::O_APPEND != 0,
        }
    }
}

impl View {
    pub(super) fn open_file(&self, call: Call, node: u64, flags: i32) -> Result<Opening> {
        if node == names::SOCKET {
            return Err(Errno::ENXIO.into());
        }
        let wish = Wish::of(flags);
        if wish.write {
            self.writable()?;
        }
        self.in_turn(node, |mode| {
            let passthrough = !wish.write && self.held.backings.permitted();
            let open = Open { node, write: wish.write, truncate: wish.truncate, passthrough };
            let answer = self.ask_handle(call, node, ViewOp::OpenFile(open));
            if wish.write && answer.as_ref().is_err_and(|failure| failure.errno() == Errno::ESTALE) {
                self.prepare(call, node);
            }
            let (opened, fds) = answer?;
            self.opening(call, wish, mode, opened, fds)
        })
    }

    /// The version that was to be written is gone from its name. The kernel looks again, once: whatever is there now gets
    /// its draft, so that what is found can be opened.
    fn prepare(&self, call: Call, node: u64) {
        let Some((parent, name)) = self.found.place(node) else { return };
        let Ok(now) = self.ask_node(0, ViewOp::Lookup(Lookup { parent, name })) else { return };
        if now.draft || now.kind() != NodeKind::File {
            return;
        }
        let open = Open { node: now.id, write: true, ..Open::default() };
        match self.ask_handle(call, now.id, ViewOp::OpenFile(open)) {
            // It became a draft just now.
            Ok((opened, _)) if !opened.stale => self.give_back(call, now.id),
            _ => {}
        }
    }

    pub(super) fn create_file(&self, call: Call, parent: u64, name: &OsStr, mode: u32, flags: i32) -> Result<Opening> {
        self.writable()?;
        let wish = Wish::of(flags);
        let create = CreateFile {
            write: wish.write,
            truncate: wish.truncate,
            exclusive: flags & libc::O_EXCL != 0,
            ..self.creation(call, parent, name, mode)?
        };
        let (opened, fds) = self.ask_handle(call, 0, ViewOp::CreateFile(create))?;
        let node = opened.node.as_ref().map_or(0, |node| node.id);
        self.in_turn(node, |mode| self.opening(call, wish, mode, opened, fds))
    }

    /// An empty file that nobody opens.
    pub(super) fn make_file(&self, call: Call, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr> {
        self.writable()?;
        let create = CreateFile { closed: true, exclusive: true, ..self.creation(call, parent, name, mode)? };
        Ok(self.ask_node(call.unique, ViewOp::CreateFile(create))?.attributes())
    }

    fn creation(&self, call: Call, parent: u64, name: &OsStr, mode: u32) -> Result<CreateFile> {
        let (name, mode) = (names::fresh(name)?, permissions(mode).into());
        Ok(CreateFile { parent, name, mode, uid: call.uid, gid: call.gid, ..CreateFile::default() })
    }

    /// Asks for a handle. Where no answer came the store may have made it all the same, and a writer that nobody knows
    /// of would keep its draft from being frozen for ever: the handle is closed when the store is back.
    fn ask_handle(&self, call: Call, node: u64, op: ViewOp) -> Result<(Opened, Vec<OwnedFd>)> {
        let result = self.ask_opened(call.unique, op);
        if let Err(Failure::Unanswered { .. } | Failure::Confused(_)) = &result {
            let release = Release { handle: call.unique, failed: false };
            self.held.close_later(Closing { unique: 0, node, release, backing: None });
        }
        result
    }

    /// Opens and releases of one node do not overlap: see [`super::passthrough`].
    fn in_turn<T>(&self, node: u64, work: impl FnOnce(&Mode) -> Result<T>) -> Result<T> {
        let mode = self.held.backings.mode(node);
        let turn = mode.turn.take(self.shared.store.deadline())?;
        let result = work(&mode);
        drop(turn);
        self.held.backings.tidy(node, mode);
        result
    }

    fn opening(&self, call: Call, wish: Wish, mode: &Mode, opened: Opened, fds: Vec<OwnedFd>) -> Result<Opening> {
        if opened.stale {
            return Err(Errno::ESTALE.into());
        }
        let opened = Opened { handle: call.unique, ..opened };
        let attributes = opened.node.as_ref().ok_or(Failure::Confused("an open file without its node"))?.attributes();
        let (passthrough, noted) = (opened.passthrough, opened.backing);
        let result = self.adopt(opened, fds).and_then(|file| {
            let backing = if passthrough { self.backing(mode, &file, noted)? } else { 0 };
            Ok((file, backing))
        });
        let (file, backing) = match result {
            Ok(result) => result,
            Err(failure) => {
                self.give_back(call, attributes.ino.0);
                return Err(failure);
            }
        };
        Backings::opened(mode, backing);
        // Set once: the file is fresh.
        let _ = file.backing.set(backing);
        let flags = self.caching(&file, wish, backing);
        Ok(Opening { handle: file.handle, flags, backing, attributes })
    }

    /// The kernel's id to open a file over, known to the store before it is used; 0 where it cannot be.
    fn backing(&self, mode: &Mode, file: &OpenFile, noted: u32) -> Result<u32> {
        let Body::Sealed(content) = &file.body else { return Ok(0) };
        let Some(memory) = content.only_memory() else { return Ok(0) };
        let Some((backing, fresh)) = self.held.backings.ready(mode, memory, noted) else { return Ok(0) };
        // Every handle says so: the store knows by that in which mode the node is open.
        let note = Backing { handle: file.handle, backing };
        match self.ask_done(0, ViewOp::Backing(note)) {
            Ok(()) => Ok(backing),
            Err(failure) => {
                if fresh {
                    self.held.backings.close(backing);
                }
                Err(failure)
            }
        }
    }

    /// An open that the caller is not told of. The node's turn is taken, so only the store is told.
    fn give_back(&self, call: Call, node: u64) {
        self.files.remove(call.unique);
        let release = Release { handle: call.unique, failed: false };
        if let Err(failure) = self.ask_done(0, ViewOp::Release(release)) {
            tracing::warn!(publish = self.publish, node, %failure, "a file that was not opened stays open in the store");
        }
    }

    /// Which of a file's pages the kernel keeps. The one place where this is decided:
    /// * a sealed file's are kept from open to open, once they are known to be the sealed file's;
    /// * a draft's are not kept, because other mounts write to it as well; and what only writes needs none at all;
    /// * nor does what appends: the kernel would keep the bytes where it thought that the file ended.
    fn caching(&self, file: &OpenFile, wish: Wish, backing: u32) -> FopenFlags {
        // What was not written needs no flush.
        let flush = if file.write { FopenFlags::empty() } else { FopenFlags::FOPEN_NOFLUSH };
        let pages = match &file.body {
            Body::Sealed(_) if backing == 0 && self.warmed(file.node) => FopenFlags::FOPEN_KEEP_CACHE,
            Body::Draft(_) if !wish.read || wish.append => FopenFlags::FOPEN_DIRECT_IO,
            Body::Sealed(_) | Body::Draft(_) => FopenFlags::empty(),
        };
        flush | pages
    }

    /// Whether a node was open sealed before. The first time its pages may still be those of the draft that it was.
    fn warmed(&self, node: u64) -> bool {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        if warm.len() >= WARM {
            warm.clear();
        }
        !warm.insert(node)
    }

    /// A descriptor of the file was closed, or synchronised.
    pub(super) fn flush_file(&self, handle: u64) -> Result<()> {
        let file = self.file(handle)?;
        // What ran out of room is not shown: the old version may stay yet.
        if file.write && !file.failed() { self.ask_done(0, ViewOp::Flush(Flush { handle })) } else { Ok(()) }
    }

    pub(super) fn release_file(&self, call: Call, node: u64, handle: u64) -> Result<()> {
        let file: Option<Arc<OpenFile>> = self.files.remove(handle);
        let failed = file.as_ref().is_some_and(|file| file.failed());
        let backing = file.and_then(|file| file.backing.get().copied());
        self.held.close(Closing { unique: call.unique, node, release: Release { handle, failed }, backing })
    }
}
