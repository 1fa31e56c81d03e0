//! Bytes and file descriptors over a Unix stream socket.
//!
//! Descriptors ride on the first byte of a frame. The receiving buffer has room for exactly the allowed number: more
//! than that sets `MSG_CTRUNC`, which the caller treats as the end of the connection. Everything here is safe code;
//! descriptors are owned from the moment the kernel hands them over, so an early return closes them.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

/// Most descriptors in one message; the kernel's own limit (`SCM_MAX_FD`) is 253.
pub const MAX_FDS: usize = 64;

const ANCILLARY: usize = rustix::cmsg_space!(ScmRights(MAX_FDS));

/// What one receive brought.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub bytes: usize,
    pub fds: Vec<OwnedFd>,
    /// The peer sent more descriptors than allowed, or ancillary data of another kind.
    pub truncated: bool,
}

/// Sends some of `bytes`, and all of `fds` on the first byte sent. Answers how many bytes went out.
pub(crate) fn send(socket: impl AsFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many file descriptors for one message"));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?)
}

/// Receives what is there without waiting; `WouldBlock` when nothing is, 0 bytes at the end of the stream.
pub(crate) fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)?;
    let mut received =
        Received { bytes: message.bytes, fds: Vec::new(), truncated: message.flags.contains(ReturnFlags::CTRUNC) };
    for part in ancillary.drain() {
        match part {
            RecvAncillaryMessage::ScmRights(rights) => received.fds.extend(rights),
            _ => received.truncated = true,
        }
    }
    Ok(received)
}
