//! A volume as a client sees it: names and numbers. Putting and opening have files of their own.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::message::{Answer, Entry, List, Mkdir, Op, Rename, Stat, Statfs, Tier, Unlink, Usage};

use crate::error::{Error, Result};
use crate::mapping::Mappings;
use crate::session::{DEFAULT_DEADLINE, Session};

/// A volume that this process talks to. Clones share one session and its lease.
#[derive(Debug, Clone)]
pub struct Volume {
    session: Arc<Session>,
    mappings: Arc<Mappings>,
}

impl Volume {
    /// The volume published at a directory.
    pub fn at_mount(mount: &Path) -> Result<Self> {
        Ok(Self::new(Session::in_directory(mount, DEFAULT_DEADLINE)?))
    }

    /// The volume whose store listens at a socket.
    pub fn at_socket(socket: &Path) -> Result<Self> {
        Ok(Self::new(Session::at_socket(socket, DEFAULT_DEADLINE)?))
    }

    /// As [`Volume::at_mount`], with another deadline for a store that is being replaced.
    pub fn with_deadline(mount: &Path, deadline: Duration) -> Result<Self> {
        Ok(Self::new(Session::in_directory(mount, deadline)?))
    }

    fn new(session: Session) -> Self {
        Self { session: Arc::new(session), mappings: Arc::new(Mappings::default()) }
    }

    /// The volume's id.
    pub fn id(&self) -> String {
        self.session.volume()
    }

    pub fn read_only(&self) -> bool {
        self.session.read_only()
    }

    pub fn tier(&self) -> Tier {
        self.session.tier()
    }

    /// The GPU that the volume lives on, as of the last connection; `None` where it has none yet.
    pub fn device(&self) -> Option<[u8; 16]> {
        self.session.device().as_slice().try_into().ok()
    }

    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    pub(crate) fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    pub(crate) fn inline_limit(&self) -> u64 {
        gpuvol_protocol::message::INLINE_LIMIT
    }

    pub(crate) fn confused(&self, what: &'static str) -> Error {
        Error::Confused { volume: self.id(), what }
    }

    pub fn stat(&self, path: &ObjectPath) -> Result<Entry> {
        match self.session.call(Op::Stat(Stat { path: path.as_bytes().to_vec() }), &[])? {
            (Answer::Entry(entry), _) => Ok(entry),
            _ => Err(self.confused("no entry")),
        }
    }

    /// One page of a directory, in byte order of names from just after `after`; whether there is more.
    pub fn list_page(&self, path: &ObjectPath, after: &[u8], limit: u32) -> Result<(Vec<Entry>, bool)> {
        let list = List { path: path.as_bytes().to_vec(), after: after.to_vec(), limit };
        match self.session.call(Op::List(list), &[])? {
            (Answer::Entries(page), _) => Ok((page.entries, page.more)),
            _ => Err(self.confused("no entries")),
        }
    }

    /// A whole directory, page by page: names that come and go meanwhile may or may not be in it.
    pub fn list(&self, path: &ObjectPath) -> Result<Vec<Entry>> {
        let mut all: Vec<Entry> = Vec::new();
        loop {
            let after = all.last().map(|entry| entry.name.clone()).unwrap_or_default();
            let (page, more) = self.list_page(path, &after, 0)?;
            let empty = page.is_empty();
            all.extend(page);
            if !more || empty {
                return Ok(all);
            }
        }
    }

    /// Moves an object or a directory; an object at the destination is replaced.
    pub fn rename(&self, from: &ObjectPath, to: &ObjectPath, no_replace: bool) -> Result<()> {
        let rename = Rename { from: from.as_bytes().to_vec(), to: to.as_bytes().to_vec(), no_replace };
        self.done(Op::Rename(rename))
    }

    /// Hides an object. Who has it open keeps it.
    pub fn unlink(&self, path: &ObjectPath) -> Result<()> {
        self.done(Op::Unlink(Unlink { path: path.as_bytes().to_vec(), directory: false }))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: &ObjectPath) -> Result<()> {
        self.done(Op::Unlink(Unlink { path: path.as_bytes().to_vec(), directory: true }))
    }

    /// Makes a directory; with `parents` also those above it, and an existing one is fine.
    pub fn mkdir(&self, path: &ObjectPath, parents: bool) -> Result<()> {
        self.done(Op::Mkdir(Mkdir { path: path.as_bytes().to_vec(), parents }))
    }

    /// Capacity and what takes it, in bytes.
    pub fn usage(&self) -> Result<Usage> {
        match self.session.call(Op::Statfs(Statfs {}), &[])? {
            (Answer::Usage(usage), _) => Ok(usage),
            _ => Err(self.confused("no usage")),
        }
    }

    fn done(&self, op: Op) -> Result<()> {
        match self.session.call(op, &[])? {
            (Answer::Done(_), _) => Ok(()),
            _ => Err(self.confused("no acknowledgement")),
        }
    }
}
