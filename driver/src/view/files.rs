//! Open files, by handle. The store knows what a handle is; this is only what was learned of it, so a mounter that did
//! not open a file asks.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use gpuvol_protocol::view::Opened;

use super::content::{Content, Memories};
use super::draft::{Draft, Drafts};
use super::errno::{Failure, Result};

#[derive(Debug)]
pub struct OpenFile {
    pub handle: u64,
    pub node: u64,
    pub write: bool,
    pub body: Body,
    /// Set where this process opened it: the kernel's id of the memory that it reads by itself, or 0.
    pub backing: OnceLock<u32>,
    /// The last write through it found no room.
    failed: AtomicBool,
}

#[derive(Debug)]
pub enum Body {
    Sealed(Content),
    Draft(Arc<Draft>),
}

impl OpenFile {
    /// From the store's answer and the descriptors that came with it.
    pub fn new(opened: Opened, fds: Vec<OwnedFd>, volume: &str, drafts: &Drafts, memories: &Memories) -> Result<Self> {
        let node = opened.node.as_ref().ok_or(Failure::Confused("an open file without its node"))?;
        let (id, is_draft) = (node.id, node.draft || opened.memory || opened.write);
        let (mut memory, mut content) = (None, Content::default());
        if opened.memory {
            memory = fds.into_iter().next();
            if memory.is_none() {
                return Err(Failure::Confused("no descriptor of a draft's memory"));
            }
        } else if opened.segments.is_empty() {
            content = Content::whole(opened.content);
        } else {
            content = Content::of_segments(&opened.allocations, opened.segments, fds, memories)?;
        }
        let body = if is_draft {
            let draft = drafts.open(volume, id);
            draft.learn(opened.reserved, memory, content).map_err(Failure::system("looking at a draft"))?;
            Body::Draft(draft)
        } else {
            Body::Sealed(content)
        };
        Ok(Self {
            handle: opened.handle,
            node: id,
            write: opened.write,
            body,
            backing: OnceLock::new(),
            failed: AtomicBool::new(false),
        })
    }

    /// Fills `buffer` from `offset`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        match &self.body {
            Body::Sealed(content) => content.read_at(buffer, offset).map_err(Failure::system("reading")),
            Body::Draft(draft) => draft.read_at(buffer, offset),
        }
    }

    pub fn size(&self) -> Result<u64> {
        match &self.body {
            Body::Sealed(content) => Ok(content.len()),
            Body::Draft(draft) => draft.size(),
        }
    }

    /// The draft behind a handle that may write.
    pub fn draft(&self) -> Result<&Arc<Draft>> {
        match &self.body {
            Body::Draft(draft) if self.write => Ok(draft),
            _ => Err(fuser::Errno::EBADF.into()),
        }
    }

    /// Remembers whether there was room for the last write.
    pub fn note<T>(&self, result: &Result<T>) {
        let failed = result.as_ref().is_err_and(Failure::is_for_want_of_room);
        self.failed.store(failed, Ordering::Relaxed);
    }

    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }
}

/// What this process knows of a mount's handles. The kernel bounds their number.
#[derive(Debug, Default)]
pub struct Files {
    open: RwLock<HashMap<u64, Arc<OpenFile>>>,
}

impl Files {
    pub fn get(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&handle).cloned()
    }

    pub fn insert(&self, file: OpenFile) -> Arc<OpenFile> {
        let file = Arc::new(file);
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
        open.insert(file.handle, Arc::clone(&file));
        file
    }

    pub fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&handle)
    }
}
