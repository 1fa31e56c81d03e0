//! A client that speaks the protocol by hand, to say what the real one never would.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use gpuvol_protocol::message::{
    Answer, Create, Created, Hello, MAGIC, Op, Reply, Request, Seal, Segment, Tier, Welcome,
};
use gpuvol_protocol::{Channel, Fault, Limits, Version};

#[derive(Debug)]
pub struct RawClient {
    pub channel: Channel,
    pub welcome: Welcome,
    pub pipe: Option<OwnedFd>,
    next: u64,
}

impl RawClient {
    pub fn connect(mount: &Path) -> Self {
        Self::join(mount, &[])
    }

    /// Joins a lease, or opens one where `lease` is empty.
    pub fn join(mount: &Path, lease: &[u8]) -> Self {
        let socket = UnixStream::connect(mount.join(".gpuvol.sock")).unwrap();
        let mut channel = Channel::new(socket, Limits::default());
        let hello = Hello {
            magic: MAGIC,
            min_version: Version::OLDEST.number(),
            max_version: Version::NEWEST.number(),
            lease: lease.to_vec(),
            client: "raw".into(),
        };
        channel.send(&hello, &[]).unwrap();
        let (welcome, fds) = channel.receive::<Welcome>(Some(super::node::DEADLINE)).unwrap().unwrap();
        Self { channel, welcome, pipe: fds.into_iter().next(), next: 1 }
    }

    pub fn call(&mut self, op: Op, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), Fault> {
        let id = self.next;
        self.next += 1;
        self.call_as(id, op, fds)
    }

    /// With a request id of one's own choice.
    pub fn call_as(&mut self, id: u64, op: Op, fds: &[BorrowedFd<'_>]) -> Result<(Answer, Vec<OwnedFd>), Fault> {
        self.channel.send(&Request { id, released: vec![], op: Some(op) }, fds).unwrap();
        let (reply, fds) = self.channel.receive::<Reply>(Some(super::node::DEADLINE)).unwrap().expect("a reply");
        assert_eq!(reply.id, id);
        match reply.answer.expect("an answer") {
            Answer::Fault(fault) => Err(fault),
            answer => Ok((answer, fds)),
        }
    }

    /// Does the store still talk to us?
    pub fn is_connected(&mut self) -> bool {
        let request = Request { id: u64::MAX, released: vec![], op: Some(Op::Ping(Default::default())) };
        self.channel.send(&request, &[]).is_ok()
            && matches!(self.channel.receive::<Reply>(Some(super::node::DEADLINE)), Ok(Some(_)))
    }

    /// Seals a reservation whose memory is `size` bytes of content.
    pub fn seal(&mut self, reservation: u64, size: u64) -> Result<(), Fault> {
        let segments = vec![Segment { len: size, ..Segment::default() }];
        self.call(Op::Seal(Seal { reservation, segments, ..Seal::default() }), &[]).map(|_| ())
    }

    pub fn reserve(&mut self, path: &str, size: u64) -> Result<(Created, OwnedFd), Fault> {
        let create = Create { path: path.into(), size, tier: Tier::Host.into(), device: vec![] };
        match self.call(Op::Create(create), &[])? {
            (Answer::Created(created), fds) => Ok((created, fds.into_iter().next().unwrap())),
            other => panic!("{other:?}"),
        }
    }
}
