//! The mounter's side of the view protocol, without a mounter: what a mount asks the store.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use gpuvol_protocol::admin::{AdminOp, Mount, Publish, Unpublish};
use gpuvol_protocol::view::{
    CreateFile, Flush, Lookup, Node, OpenFile, Opened, ROOT, Release, Reserve, ViewAnswer, ViewOp, ViewReply,
    ViewRequest,
};
use gpuvol_protocol::{Channel, Fault, Limits};

use crate::node::TestNode;

/// One published mount. Its `/dev/fuse` is `/dev/null`: nobody serves it.
#[derive(Debug)]
pub struct TestMount {
    socket: PathBuf,
    pub publish: String,
    next: std::cell::Cell<u64>,
}

impl TestNode {
    /// Publishes a mount of a volume.
    pub fn mount(&self, volume: &str, name: &str, read_only: bool) -> TestMount {
        let publish = Publish {
            publish: format!("{volume}-{name}"),
            volume: volume.into(),
            target: format!("/{name}"),
            read_only,
            pod: format!("tests/{name}"),
            shared: true,
            mount: Some(Mount::default()),
            ..Publish::default()
        };
        let fuse = std::fs::File::open("/dev/null").unwrap();
        let id = publish.publish.clone();
        self.admin(AdminOp::Publish(publish), &[fuse.as_fd()]).unwrap();
        TestMount { socket: self.state().join("store/view.sock"), publish: id, next: std::cell::Cell::new(2) }
    }

    pub fn unmount(&self, mount: &TestMount) {
        let unpublish = Unpublish { publish: mount.publish.clone(), ..Unpublish::default() };
        self.admin(AdminOp::Unpublish(unpublish), &[]).unwrap();
    }
}

impl TestMount {
    /// The id of one more request of the kernel.
    pub fn unique(&self) -> u64 {
        self.next.set(self.next.get() + 2);
        self.next.get()
    }

    pub fn ask(&self, unique: u64, op: ViewOp) -> Result<(ViewAnswer, Vec<OwnedFd>), Fault> {
        let stream = UnixStream::connect(&self.socket).unwrap();
        let mut channel = Channel::new(stream, Limits::default());
        channel.send(&ViewRequest { publish: self.publish.clone(), unique, op: Some(op) }, &[]).unwrap();
        let (reply, fds) = channel.receive::<ViewReply>(Some(Duration::from_secs(20))).unwrap().unwrap();
        match reply.answer.unwrap() {
            ViewAnswer::Fault(fault) => Err(fault),
            answer => Ok((answer, fds)),
        }
    }

    pub fn lookup(&self, name: &str) -> Result<Node, Fault> {
        self.node(ViewOp::Lookup(Lookup { parent: ROOT, name: name.into() }))
    }

    pub fn node(&self, op: ViewOp) -> Result<Node, Fault> {
        match self.ask(self.unique(), op)? {
            (ViewAnswer::Node(node), _) => Ok(node),
            (other, _) => panic!("no node: {other:?}"),
        }
    }

    pub fn opened(&self, unique: u64, op: ViewOp) -> Result<(Opened, Vec<OwnedFd>), Fault> {
        match self.ask(unique, op)? {
            (ViewAnswer::Opened(opened), fds) => Ok((opened, fds)),
            (other, _) => panic!("not opened: {other:?}"),
        }
    }

    pub fn done(&self, op: ViewOp) {
        let (answer, _) = self.ask(self.unique(), op).unwrap();
        assert!(matches!(answer, ViewAnswer::Done(_)), "{answer:?}");
    }

    /// Creates a file in the root; answers its node and the handle.
    pub fn create(&self, name: &str) -> Result<(Node, u64), Fault> {
        let create = CreateFile { parent: ROOT, name: name.into(), mode: 0o644, write: true, ..CreateFile::default() };
        let (opened, _) = self.opened(self.unique(), ViewOp::CreateFile(create))?;
        Ok((opened.node.unwrap(), opened.handle))
    }

    /// Opens a file for writing as the kernel does: looks it up again when it is told to.
    pub fn open_to_write(&self, name: &str, truncate: bool) -> Result<(Node, u64), Fault> {
        for _ in 0..2 {
            let node = self.lookup(name)?.id;
            let open = OpenFile { node, write: true, truncate, ..OpenFile::default() };
            let (opened, _) = self.opened(self.unique(), ViewOp::OpenFile(open))?;
            if !opened.stale {
                return Ok((opened.node.unwrap(), opened.handle));
            }
        }
        panic!("{name} is stale twice");
    }

    pub fn reserve(&self, node: u64, size: u64) -> Result<(Opened, OwnedFd), Fault> {
        let (opened, fds) = self.opened(0, ViewOp::Reserve(Reserve { node, size, ahead: 0 }))?;
        Ok((opened, fds.into_iter().next().unwrap()))
    }

    pub fn write(&self, node: u64, at: u64, bytes: &[u8]) -> Result<(), Fault> {
        let (_, memory) = self.reserve(node, at + bytes.len() as u64)?;
        std::fs::File::from(memory).write_all_at(bytes, at).unwrap();
        Ok(())
    }

    pub fn flush(&self, handle: u64) {
        self.done(ViewOp::Flush(Flush { handle }));
    }

    pub fn release(&self, handle: u64, failed: bool) {
        self.done(ViewOp::Release(Release { handle, failed }));
    }

    /// What a program reads at a name now.
    pub fn read(&self, name: &str) -> Result<Vec<u8>, Fault> {
        let node = self.lookup(name)?;
        let handle = self.unique();
        let (opened, fds) = self.opened(handle, ViewOp::OpenFile(OpenFile { node: node.id, ..OpenFile::default() }))?;
        let mut bytes = opened.content.clone();
        let mut append = |fd: &OwnedFd, offset: u64, len: u64| {
            let at = bytes.len();
            bytes.resize(at + usize::try_from(len).unwrap(), 0);
            let file = std::fs::File::from(fd.try_clone().unwrap());
            file.read_exact_at(&mut bytes[at..], offset).unwrap();
        };
        if opened.memory {
            append(&fds[0], 0, opened.node.as_ref().unwrap().size);
        }
        for segment in &opened.segments {
            append(&fds[segment.allocation as usize], segment.offset, segment.len);
        }
        assert_eq!(bytes.len() as u64, opened.node.unwrap().size);
        self.release(handle, false);
        Ok(bytes)
    }
}
