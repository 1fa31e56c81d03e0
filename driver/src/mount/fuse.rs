//! A FUSE mount that is nowhere yet, whose server is somebody else.
//!
//! Making one asks nobody: the kernel only queues its first message, `INIT`. Whoever has the descriptor answers it, and
//! from then on requests are queued until someone serves them.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use rustix::thread::CapabilitySet;

use super::Detached;
use super::table::{self, Mounted};

/// What `mountinfo` calls the device.
const SOURCE: &str = "gpuvol";
/// What `mountinfo` calls the file system of our mounts.
pub const KIND: &str = "fuse.gpuvol";

/// A file system's mount and the descriptor for its server. Dropped, both are gone, and what waits for the server fails.
#[derive(Debug)]
pub struct FuseMount {
    pub fuse: OwnedFd,
    pub mount: Detached,
    /// The minor device number of the mount, which names the connection below `/sys/fs/fuse/connections`.
    pub connection: u32,
}

impl FuseMount {
    /// For any user, with the kernel checking permissions; without devices and set-user-id bits. Programs may run:
    /// builds keep theirs on volumes.
    pub fn create() -> io::Result<Self> {
        let server: OwnedFd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let context = rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
        let fs = context.as_fd();
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        for (key, value) in [
            ("source", SOURCE.to_owned()),
            ("subtype", SOURCE.to_owned()),
            // As text, which every kernel with FUSE in fsopen takes.
            ("fd", server.as_raw_fd().to_string()),
            ("rootmode", "40000".to_owned()),
            ("user_id", uid.as_raw().to_string()),
            ("group_id", gid.as_raw().to_string()),
        ] {
            rustix::mount::fsconfig_set_string(fs, key, value)?;
        }
        for flag in ["allow_other", "default_permissions"] {
            rustix::mount::fsconfig_set_flag(fs, flag)?;
        }
        rustix::mount::fsconfig_create(fs)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        let mount = Detached::new(rustix::mount::fsmount(fs, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?);
        let connection = mount.root()?.connection().ok_or_else(|| io::Error::other("a FUSE mount on a real device"))?;
        Ok(Self { fuse: server, mount, connection })
    }

    /// The descriptor for the server.
    pub fn fuse(&self) -> BorrowedFd<'_> {
        self.fuse.as_fd()
    }
}

/// Whether the kernel lets this process have reads answered from files of the kernel's own (`CAP_SYS_ADMIN` where user
/// namespaces begin).
pub fn may_pass_through() -> bool {
    let everything = |map: &str| map.split_ascii_whitespace().eq(["0", "0", "4294967295"]);
    fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| everything(&map))
        && rustix::thread::capabilities(None).is_ok_and(|of| of.effective.contains(CapabilitySet::SYS_ADMIN))
}

/// The mounts of ours in this process's mount table.
pub fn mounted() -> impl Iterator<Item = Mounted> {
    table::read().into_iter().filter(|mounted| mounted.kind == KIND)
}

/// Whether a connection is that of a mount of ours in this process's mount table.
pub fn is_ours(connection: u32) -> bool {
    mounted().any(|mounted| mounted.device == (0, connection))
}
