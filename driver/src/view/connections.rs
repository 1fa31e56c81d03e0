//! The kernel's own view of FUSE connections: how many requests of each are unanswered, and the way to end one.
//!
//! It is a file system of its own (`fusectl`), mounted below `/sys/fs/fuse` on most hosts and in few containers; where
//! it is not, it is mounted for this process alone, at no place.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

const USUAL_PLACE: &str = "/sys/fs/fuse/connections";
/// `FUSE_CTL_SUPER_MAGIC` of `linux/magic.h`.
const MAGIC: u64 = 0x6573_5543;

#[derive(Debug)]
pub struct Connections(OwnedFd);

impl Connections {
    /// Fails where it is not mounted and may not be: without `CAP_SYS_ADMIN` in the first user namespace.
    pub fn open() -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        if let Ok(usual) = rustix::fs::open(USUAL_PLACE, flags, Mode::empty())
            && rustix::fs::fstatfs(&usual).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(MAGIC))
        {
            return Ok(Self(usual));
        }
        let fresh = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(fresh.as_fd())?;
        let mount = rustix::mount::fsmount(fresh.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
        Ok(Self(mount))
    }

    /// Requests that wait for an answer, read by a mounter or not. `None`: there is no such connection (any more).
    pub fn waiting(&self, connection: u32) -> io::Result<Option<u64>> {
        let Some(mut file) = self.file(connection, "waiting", OFlags::RDONLY)? else { return Ok(None) };
        let mut text = String::new();
        match file.read_to_string(&mut text) {
            // The connection ended since.
            Ok(0) => Ok(None),
            Ok(_) => text.trim().parse().map(Some).map_err(io::Error::other),
            Err(error) => Err(error),
        }
    }

    /// Ends a connection: every caller gets an error at once, and the mount answers nothing any more. `false`: there was
    /// no such connection.
    pub fn abort(&self, connection: u32) -> io::Result<bool> {
        let Some(mut file) = self.file(connection, "abort", OFlags::WRONLY)? else { return Ok(false) };
        file.write_all(b"1")?;
        Ok(true)
    }

    fn file(&self, connection: u32, name: &str, flags: OFlags) -> io::Result<Option<File>> {
        let path = format!("{connection}/{name}");
        match rustix::fs::openat(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty()) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
