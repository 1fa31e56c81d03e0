//! Listening sockets with a name in a directory.
//!
//! A socket's address has room for 108 bytes and kubelet's paths are longer, so the name is given relative to an open
//! directory, through `/proc/self/fd`. A socket is bound and listening under a temporary name first and then renamed:
//! whoever looks finds the old one or the new one, and both accept.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait to be accepted, while the store restarts for example.
const BACKLOG: i32 = 128;

/// Binds a listener at `name` in `directory`, in place of whatever socket is there.
pub fn bind(directory: BorrowedFd<'_>, name: &str, mode: Mode) -> io::Result<OwnedFd> {
    let fresh = format!("{name}.new");
    remove(directory, &fresh)?;
    let bound = bind_fresh(directory, &fresh, mode).and_then(|listener| {
        rustix::fs::renameat(directory, &fresh, directory, name)?;
        Ok(listener)
    });
    if bound.is_err() {
        let _ = remove(directory, &fresh);
    }
    bound
}

fn bind_fresh(directory: BorrowedFd<'_>, name: &str, mode: Mode) -> io::Result<OwnedFd> {
    let listener = bound(directory, name)?;
    rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Binds a listener at a name that is free, in a file system that gives sockets their mode itself.
pub fn bind_once(directory: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let listener = bound(directory, name)?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

fn bound(directory: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::net::bind(&socket, &address(directory, name)?)?;
    Ok(socket)
}

/// Whether somebody listens behind the socket at `name`; a missing one answers `false` like one whose listener is gone.
pub fn answers(directory: BorrowedFd<'_>, name: &str) -> io::Result<bool> {
    match connect(directory, name) {
        Ok(_) => Ok(true),
        // The backlog is full: somebody holds the listener and is busy.
        Err(Errno::AGAIN) => Ok(true),
        Err(Errno::CONNREFUSED | Errno::NOENT) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Connects without waiting; `AGAIN` where the listener's backlog is full.
pub fn connect(directory: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&socket, &address(directory, name)?)?;
    Ok(socket)
}

/// Removes the socket at `name`; a missing one is fine.
pub fn remove(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

fn address(directory: BorrowedFd<'_>, name: &str) -> Result<SocketAddrUnix, Errno> {
    SocketAddrUnix::new(format!("/proc/self/fd/{}/{name}", directory.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};

    #[test]
    fn a_socket_has_a_name_deeper_than_its_address_could_hold() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
        std::fs::create_dir_all(&deep).unwrap();
        let at = File::open(&deep).unwrap();
        assert!(!answers(at.as_fd(), "s").unwrap());
        let first = bind(at.as_fd(), "s", Mode::from_raw_mode(0o777)).unwrap();
        let metadata = std::fs::metadata(deep.join("s")).unwrap();
        assert!(metadata.file_type().is_socket());
        assert_eq!(metadata.permissions().mode() & 0o777, 0o777);
        assert!(answers(at.as_fd(), "s").unwrap());
        drop(first);
        assert!(!answers(at.as_fd(), "s").unwrap());
        let _second = bind(at.as_fd(), "s", Mode::from_raw_mode(0o600)).unwrap();
        assert!(answers(at.as_fd(), "s").unwrap());
        assert_eq!(std::fs::read_dir(&deep).unwrap().count(), 1);
        remove(at.as_fd(), "s").unwrap();
        remove(at.as_fd(), "s").unwrap();
    }

    #[test]
    fn a_full_backlog_still_counts_as_answering() {
        let dir = tempfile::tempdir().unwrap();
        let at = File::open(dir.path()).unwrap();
        let _listener = bind(at.as_fd(), "s", Mode::from_raw_mode(0o600)).unwrap();
        let waiting: Vec<_> = std::iter::from_fn(|| connect(at.as_fd(), "s").ok()).take(1000).collect();
        assert!(waiting.len() < 1000);
        assert!(answers(at.as_fd(), "s").unwrap());
    }
}
