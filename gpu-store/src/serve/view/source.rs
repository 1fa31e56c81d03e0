//! A sealed file's bytes in host memory, wherever they are.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use gpuvol_protocol::Fault;
use gpuvol_protocol::message::{Allocation, Segment};

use crate::catalogue::object::Content;
use crate::hosting::{Original, Replica};
use crate::node::{Node, internal};
use crate::serve::open::read_slot;

/// Bytes of one step of a copy.
const STEP: usize = 1 << 20;

#[derive(Debug)]
pub enum Source {
    Bytes(Vec<u8>),
    /// Host memory; with the replica that it is, where the object itself is in GPU memory.
    Segments {
        allocations: Vec<Allocation>,
        segments: Vec<Segment>,
        fds: Vec<Arc<OwnedFd>>,
        replica: Option<Replica>,
    },
}

impl Source {
    /// Finds a version's bytes. Those in GPU memory are copied to the host first, which may take a while: not to be called
    /// under the catalogue's lock.
    pub fn of(node: &Node, volume: &str, version: u64) -> Result<Self, Fault> {
        let (allocations, segments, fds, name) = {
            let catalogue = node.catalogue();
            let state = catalogue.volume(volume)?;
            let object = state.objects.get(&version);
            match object.map(|object| &object.content) {
                Some(Content::Slot(slot)) => return Ok(Self::Bytes(read_slot(&catalogue, slot)?)),
                Some(Content::Segments { allocations, segments }) => {
                    let fds: Option<Vec<_>> = allocations.iter().map(|a| catalogue.fd(a.id)).collect();
                    let path = state.tree.path(version).map(|path| String::from_utf8_lossy(&path).into_owned());
                    let name = format!("{} in volume {volume}", path.unwrap_or_else(|| format!("version {version}")));
                    (allocations.clone(), segments.clone(), fds, name)
                }
                Some(Content::Link(_) | Content::Draft(_)) | None => {
                    return Err(internal(format!("version {version} of volume {volume} has no content")));
                }
            }
        };
        let fds = fds.ok_or_else(|| internal(format!("version {version} of volume {volume} has lost its memory")))?;
        if allocations.iter().any(|a| !a.device.is_empty()) {
            let replica = node.hosting.replica(&Original { version, name, allocations, segments, fds })?;
            return Ok(Self::Segments {
                allocations: vec![replica.allocation()],
                segments: vec![replica.segment()],
                fds: vec![replica.fd.clone()],
                replica: Some(replica),
            });
        }
        Ok(Self::Segments { allocations, segments, fds, replica: None })
    }

    /// Copies the first `most` bytes to the beginning of a file.
    pub fn copy_to(&self, target: BorrowedFd<'_>, most: u64) -> Result<(), Fault> {
        let mut at = 0;
        match self {
            Self::Bytes(bytes) => {
                let end = bytes.len().min(usize::try_from(most).unwrap_or(usize::MAX));
                write_all(target, &bytes[..end], at)
            }
            Self::Segments { segments, fds, .. } => {
                let mut buffer = vec![0; STEP];
                for segment in segments {
                    let len = segment.len.min(most - at);
                    if segment.inline.is_empty() {
                        let fd = usize::try_from(segment.allocation).ok().and_then(|i| fds.get(i));
                        let fd = fd.ok_or_else(|| internal("a segment of no allocation"))?;
                        copy(fd, segment.offset, target, at, len, &mut buffer)?;
                    } else {
                        let end = usize::try_from(len).unwrap_or(usize::MAX);
                        write_all(target, &segment.inline[..end], at)?;
                    }
                    at += len;
                    if at == most {
                        break;
                    }
                }
                Ok(())
            }
        }
    }
}

fn copy(
    from: &OwnedFd,
    mut offset: u64,
    target: BorrowedFd<'_>,
    mut at: u64,
    len: u64,
    buffer: &mut [u8],
) -> Result<(), Fault> {
    let end = at + len;
    while at < end {
        let step = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        match rustix::io::pread(from, &mut buffer[..step], offset).map_err(internal)? {
            0 => return Err(internal("memory that is shorter than its object")),
            n => {
                write_all(target, &buffer[..n], at)?;
                offset += n as u64;
                at += n as u64;
            }
        }
    }
    Ok(())
}

fn write_all(target: BorrowedFd<'_>, bytes: &[u8], at: u64) -> Result<(), Fault> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::pwrite(target, &bytes[done..], at + done as u64).map_err(internal)?;
    }
    Ok(())
}
