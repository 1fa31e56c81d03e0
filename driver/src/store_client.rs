//! Administration calls to the store, each with a deadline.
//!
//! Every call has a connection of its own, so there is none to find broken after the store was replaced. The calls
//! block; on the plugin's runtime they go through [`crate::blocking::run`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gpuvol_protocol::admin::{
    AdminAnswer, AdminOp, AdminReply, AdminRequest, Capacity, DeleteVolume, ExpandVolume, GetCapacity, GetVolume,
    ListPublishes, ListVolumes, Node, NodeStatus, Publish, Publishes, Unpublish, Volume, VolumeSpec, Volumes,
};
use gpuvol_protocol::message::Tier;
use gpuvol_protocol::{Channel, Code, Fault, FrameError, Limits, VolumeId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::listener;

/// Where the store's administration socket is, below the state directory.
pub const ADMIN_SOCKET: &str = "store/admin.sock";

/// Largest answer that is taken, in bytes: a list of every publish on a full node.
const MAX_ANSWER: u32 = 16 * 1024 * 1024;
/// How long to wait before the next attempt to connect to a store that is not there.
const RETRY: Duration = Duration::from_millis(50);

/// How long things may take.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Until a connection stands; a store that is being replaced is back within this time.
    pub connect: Duration,
    /// From then to the answer.
    pub call: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self { connect: Duration::from_secs(2), call: Duration::from_secs(15) }
    }
}

/// Why a call has no result.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store answered: no.
    #[error("{0}")]
    Fault(Fault),
    #[error("the store cannot be reached at {path}; is the gpuvol-store pod of this node running?", path = path.display())]
    Unreachable { path: PathBuf, source: io::Error },
    #[error("the connection to the store at {path} broke; whether it did {call} is not known, repeat it", path = path.display())]
    Broken { path: PathBuf, call: &'static str, source: FrameError },
    #[error("the store at {path} did not answer {call} within {after:?}", path = path.display())]
    Late { path: PathBuf, call: &'static str, after: Duration },
    #[error("the store at {path} answered {call} with something else; plugin and store are of different versions", path = path.display())]
    Unexpected { path: PathBuf, call: &'static str },
}

impl StoreError {
    /// The fault's code where the store answered.
    pub fn code(&self) -> Option<Code> {
        match self {
            // A code that only a newer store knows.
            StoreError::Fault(fault) => Some(Code::try_from(fault.code).unwrap_or(Code::Internal)),
            _ => None,
        }
    }

    /// The store answered that there is no such volume.
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(Code::NotFound)
    }
}

/// The store of this node.
#[derive(Debug)]
pub struct StoreClient {
    path: PathBuf,
    deadlines: Deadlines,
    last_id: AtomicU64,
}

impl StoreClient {
    /// Connects only when something is called.
    pub fn new(path: PathBuf, deadlines: Deadlines) -> Self {
        Self { path, deadlines, last_id: AtomicU64::new(0) }
    }

    /// The administration socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a volume. The same spec again answers the same volume; no room for it is `OutOfMemory`.
    pub fn create_volume(&self, spec: VolumeSpec) -> Result<Volume, StoreError> {
        self.volume("CreateVolume", AdminOp::CreateVolume(spec))
    }

    /// The volume, or `NotFound`.
    pub fn get_volume(&self, id: &VolumeId) -> Result<Volume, StoreError> {
        self.volume("GetVolume", AdminOp::GetVolume(GetVolume { id: id.to_string() }))
    }

    /// `None` where there is no such volume.
    pub fn find_volume(&self, id: &VolumeId) -> Result<Option<Volume>, StoreError> {
        match self.get_volume(id) {
            Ok(volume) => Ok(Some(volume)),
            Err(e) if e.is_not_found() => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Sets the capacity to this many bytes, which are not fewer than before.
    pub fn expand_volume(&self, id: &VolumeId, capacity: u64) -> Result<Volume, StoreError> {
        self.volume("ExpandVolume", AdminOp::ExpandVolume(ExpandVolume { id: id.to_string(), capacity }))
    }

    /// Deletes a volume; `InUse` while it is published.
    pub fn delete_volume(&self, id: &VolumeId) -> Result<(), StoreError> {
        self.done("DeleteVolume", AdminOp::DeleteVolume(DeleteVolume { id: id.to_string() }), &[])
    }

    /// At most `limit` volumes in the order of ids, from just after `after`.
    pub fn list_volumes(&self, after: &str, limit: u32) -> Result<Volumes, StoreError> {
        let call = "ListVolumes";
        match self.call(call, AdminOp::ListVolumes(ListVolumes { after: after.to_owned(), limit }), &[])? {
            AdminAnswer::Volumes(volumes) => Ok(volumes),
            _ => Err(self.unexpected(call)),
        }
    }

    /// Bytes for new volumes of a tier, on one GPU (16 bytes) or, with none named, on any.
    pub fn capacity(&self, tier: Tier, device: Vec<u8>) -> Result<Capacity, StoreError> {
        let call = "GetCapacity";
        match self.call(call, AdminOp::GetCapacity(GetCapacity { tier: tier.into(), device }), &[])? {
            AdminAnswer::Capacity(capacity) => Ok(capacity),
            _ => Err(self.unexpected(call)),
        }
    }

    /// Serves a volume: with a mount, on its FUSE descriptor; without, on a listening socket, which a repeated publish
    /// replaces.
    pub fn publish(&self, publish: Publish, descriptor: BorrowedFd<'_>) -> Result<(), StoreError> {
        self.done("Publish", AdminOp::Publish(publish), &[descriptor])
    }

    /// Ends a publish by its id; an unknown one is fine.
    pub fn unpublish(&self, publish: &str) -> Result<(), StoreError> {
        self.done("Unpublish", AdminOp::Unpublish(Unpublish { publish: publish.to_owned(), listener_only: false }), &[])
    }

    /// Closes what keeps a publish's mount busy: its listener and the connections that came through it.
    pub fn close_listener(&self, publish: &str) -> Result<(), StoreError> {
        let op = Unpublish { publish: publish.to_owned(), listener_only: true };
        self.done("Unpublish", AdminOp::Unpublish(op), &[])
    }

    /// Every publish on the node.
    pub fn publishes(&self) -> Result<Publishes, StoreError> {
        let call = "ListPublishes";
        match self.call(call, AdminOp::ListPublishes(ListPublishes { volume: String::new() }), &[])? {
            AdminAnswer::Publishes(publishes) => Ok(publishes),
            _ => Err(self.unexpected(call)),
        }
    }

    /// The node as the store sees it; also the way to ask whether it is there.
    pub fn node(&self) -> Result<Node, StoreError> {
        let call = "NodeStatus";
        match self.call(call, AdminOp::NodeStatus(NodeStatus {}), &[])? {
            AdminAnswer::Node(node) => Ok(node),
            _ => Err(self.unexpected(call)),
        }
    }

    fn volume(&self, call: &'static str, op: AdminOp) -> Result<Volume, StoreError> {
        match self.call(call, op, &[])? {
            AdminAnswer::Volume(volume) => Ok(volume),
            _ => Err(self.unexpected(call)),
        }
    }

    fn done(&self, call: &'static str, op: AdminOp, fds: &[BorrowedFd<'_>]) -> Result<(), StoreError> {
        match self.call(call, op, fds)? {
            AdminAnswer::Done(_) => Ok(()),
            _ => Err(self.unexpected(call)),
        }
    }

    fn call(&self, call: &'static str, op: AdminOp, fds: &[BorrowedFd<'_>]) -> Result<AdminAnswer, StoreError> {
        let socket = self.connect().map_err(|source| StoreError::Unreachable { path: self.path.clone(), source })?;
        let limits = Limits { max_frame: MAX_ANSWER, max_fds: 0, frame_deadline: self.deadlines.call };
        let mut channel = Channel::new(socket, limits);
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let broken = |source| match source {
            FrameError::Idle(after) => StoreError::Late { path: self.path.clone(), call, after },
            source => StoreError::Broken { path: self.path.clone(), call, source },
        };
        channel.send(&AdminRequest { id, op: Some(op) }, fds).map_err(broken)?;
        let (reply, _) = channel
            .receive::<AdminReply>(Some(self.deadlines.call))
            .map_err(broken)?
            .ok_or_else(|| broken(FrameError::Cut { got: 0 }))?;
        match reply.answer {
            Some(AdminAnswer::Fault(fault)) => Err(StoreError::Fault(fault)),
            Some(answer) if reply.id == id => Ok(answer),
            _ => Err(self.unexpected(call)),
        }
    }

    /// A store that restarts refuses for a moment: tries again until the deadline.
    fn connect(&self) -> io::Result<UnixStream> {
        let until = Instant::now() + self.deadlines.connect;
        loop {
            match self.connect_once() {
                Ok(socket) => return Ok(socket),
                Err(e) if Instant::now() + RETRY >= until => return Err(e.into()),
                Err(Errno::CONNREFUSED | Errno::NOENT | Errno::AGAIN) => thread::sleep(RETRY),
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn connect_once(&self) -> Result<UnixStream, Errno> {
        let directory = self.path.parent().ok_or(Errno::INVAL)?;
        let name = self.path.file_name().and_then(|name| name.to_str()).ok_or(Errno::INVAL)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(directory, flags, Mode::empty())?;
        Ok(UnixStream::from(listener::connect(directory.as_fd(), name)?))
    }

    fn unexpected(&self, call: &'static str) -> StoreError {
        StoreError::Unexpected { path: self.path.clone(), call }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn client(path: &Path) -> StoreClient {
        let deadlines = Deadlines { connect: Duration::from_millis(120), call: Duration::from_millis(120) };
        StoreClient::new(path.to_owned(), deadlines)
    }

    #[test]
    fn a_store_that_is_not_there_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let error = client(&path).node().unwrap_err();
        assert!(matches!(error, StoreError::Unreachable { .. }), "{error}");
        assert!(error.to_string().contains(path.to_str().unwrap()));
    }

    #[test]
    fn a_store_that_hangs_costs_one_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let _listener = UnixListener::bind(&path).unwrap();
        let start = Instant::now();
        let error = client(&path).node().unwrap_err();
        assert!(matches!(error, StoreError::Late { call: "NodeStatus", .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(2));
    }

    #[test]
    fn a_store_that_dies_in_a_call_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("admin.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let store = thread::spawn(move || drop(listener.accept().unwrap()));
        let error = client(&path).node().unwrap_err();
        assert!(matches!(error, StoreError::Broken { .. }), "{error}");
        store.join().unwrap();
    }
}
