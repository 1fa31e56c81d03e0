//! One question to the store's admin socket.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gpuvol_protocol::admin::{AdminAnswer, AdminOp, AdminReply, AdminRequest, ListVolumes, Node, NodeStatus, Volume};
use gpuvol_protocol::{Channel, FrameError, Limits};

/// A store that does not answer by then is stuck.
const ANSWER: Duration = Duration::from_secs(5);
/// Most pages of volumes that are asked for.
const PAGES: usize = 1000;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    #[error("{0}")]
    Connect(#[source] std::io::Error),
    #[error("{0}")]
    Broken(#[from] FrameError),
    #[error("the store closed the connection")]
    Closed,
    #[error("the store refused: {0}")]
    Refused(String),
    #[error("the store answered something else than asked for")]
    Confused,
}

#[derive(Debug)]
pub struct Admin {
    channel: Channel,
    next: u64,
}

impl Admin {
    pub fn connect(socket: &Path) -> Result<Self, AdminError> {
        let stream = UnixStream::connect(socket).map_err(AdminError::Connect)?;
        Ok(Self { channel: Channel::new(stream, Limits::default()), next: 1 })
    }

    pub fn status(&mut self) -> Result<Node, AdminError> {
        match self.ask(AdminOp::NodeStatus(NodeStatus {}))? {
            AdminAnswer::Node(node) => Ok(node),
            _ => Err(AdminError::Confused),
        }
    }

    pub fn volumes(&mut self) -> Result<Vec<Volume>, AdminError> {
        let mut all: Vec<Volume> = Vec::new();
        for _ in 0..PAGES {
            let last = all.last().and_then(|volume| volume.spec.as_ref());
            let after = last.map(|spec| spec.id.clone()).unwrap_or_default();
            match self.ask(AdminOp::ListVolumes(ListVolumes { after, limit: 0 }))? {
                AdminAnswer::Volumes(page) => {
                    let more = page.more && !page.volumes.is_empty();
                    all.extend(page.volumes);
                    if !more {
                        break;
                    }
                }
                _ => return Err(AdminError::Confused),
            }
        }
        Ok(all)
    }

    fn ask(&mut self, op: AdminOp) -> Result<AdminAnswer, AdminError> {
        let id = self.next;
        self.next += 1;
        self.channel.send(&AdminRequest { id, op: Some(op) }, &[])?;
        let (reply, _) = self.channel.receive::<AdminReply>(Some(ANSWER))?.ok_or(AdminError::Closed)?;
        match reply.answer {
            Some(AdminAnswer::Fault(fault)) => Err(AdminError::Refused(fault.message)),
            Some(answer) if reply.id == id => Ok(answer),
            _ => Err(AdminError::Confused),
        }
    }
}
