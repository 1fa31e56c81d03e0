//! Taking over a FUSE connection that was answered before: by the plugin, or by a mounter that is gone.
//!
//! The library begins a session by reading INIT, which the kernel sends once. So it is given a socket with an INIT of
//! our own, and when that is answered the connection is put in the socket's place. Then the kernel is asked to send
//! again what nobody answered; before that nothing may be read, or what a dead mounter read would stay unanswered.
//! The connection is never cloned for the sake of threads: the kernel fails what was read from a clone when it closes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use fuser::{Config, Filesystem, InitFlags, SessionACL};
use gpuvol_protocol::view::Agreed;
use rustix::fs::OFlags;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::handshake::replay;

/// `FUSE_NOTIFY_RESEND` of `linux/fuse.h`.
const RESEND: i32 = 7;

/// A session over a connection, ready to run with `threads` threads.
pub fn resume<F: Filesystem>(
    filesystem: F,
    agreed: &Agreed,
    fuse: BorrowedFd<'_>,
    threads: usize,
) -> io::Result<fuser::Session<F>> {
    let (ours, theirs) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&ours, &replay(agreed), SendFlags::NOSIGNAL)?;
    let mut config = Config::default();
    config.acl = SessionACL::All;
    config.n_threads = Some(threads);
    let session = fuser::Session::from_fd(filesystem, theirs, SessionACL::All, config)?;
    // A read that does not wait would turn the library's loop into a spin.
    let flags = rustix::fs::fcntl_getfl(fuse)?;
    rustix::fs::fcntl_setfl(fuse, flags - OFlags::NONBLOCK)?;
    replace(session.as_fd(), fuse)?;
    if agreed.flags & InitFlags::FUSE_HAS_RESEND.bits() != 0 {
        resend(fuse)?;
    }
    Ok(session)
}

/// Puts a copy of `fuse` in the place of `session`'s descriptor.
fn replace(session: BorrowedFd<'_>, fuse: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both are open for the length of the borrows, and both stay open and owned as before: the session owns the
    // number whose file changes, and nobody reads from it yet.
    let result = unsafe { libc::dup3(fuse.as_raw_fd(), session.as_raw_fd(), libc::O_CLOEXEC) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn resend(fuse: BorrowedFd<'_>) -> io::Result<()> {
    let mut notice = [0; 16];
    notice[..4].copy_from_slice(&16u32.to_ne_bytes());
    notice[4..8].copy_from_slice(&RESEND.to_ne_bytes());
    rustix::io::write(fuse, &notice)?;
    Ok(())
}
