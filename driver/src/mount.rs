//! What is mounted at a target, mounting a directory there, and unmounting it.
//!
//! A mount is made detached: read-only is set while nobody can see it, and one call attaches it. So there is no moment
//! at which a pod has a writable one, and a failure before that call leaves nothing.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::deadline::{Late, within};
use crate::target::Target;

/// What is at a target path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// A directory on which nothing is mounted.
    Directory,
    /// A live mount whose root is this directory.
    Mounted(Root),
    /// A mount whose file system is gone (`EIO`, `ENOTCONN`, `ESTALE`), hangs, or was deleted underneath.
    Dead(String),
    /// Something that is not a directory.
    Other(FileType),
}

/// A directory, wherever it is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Root {
    device: (u32, u32),
    inode: u64,
}

impl Root {
    /// The directory behind a descriptor.
    pub fn of(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let of = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        Ok(Self::from(&rustix::fs::statx(directory, "", of, StatxFlags::BASIC_STATS)?))
    }
}

impl From<&Statx> for Root {
    fn from(stat: &Statx) -> Self {
        Self { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino }
    }
}

/// Looks at a target. A file system that does not answer within `deadline` counts as dead.
pub fn inspect(target: &Arc<Target>, deadline: Duration) -> io::Result<Found> {
    // Never asks a file system's server, so it cannot hang.
    let stat = match stat(target, AtFlags::STATX_DONT_SYNC) {
        Ok(stat) => stat,
        Err(Errno::NOENT) => return Ok(Found::Nothing),
        Err(e) if is_dead(e) => return Ok(Found::Dead(io::Error::from(e).to_string())),
        Err(e) => return Err(e.into()),
    };
    let kind = FileType::from_raw_mode(stat.stx_mode.into());
    if !stat.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        return Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "this kernel's statx does not tell mounts; 5.12 is needed",
        ));
    }
    if !stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(if kind == FileType::Directory { Found::Directory } else { Found::Other(kind) });
    }
    if kind == FileType::Directory && stat.stx_nlink == 0 {
        return Ok(Found::Dead("its directory was deleted".into()));
    }
    let again = Arc::clone(target);
    match within(deadline, move || self::stat(&again, AtFlags::STATX_FORCE_SYNC)) {
        Ok(Ok(_)) => Ok(Found::Mounted(Root::from(&stat))),
        Ok(Err(e)) if is_dead(e) => Ok(Found::Dead(io::Error::from(e).to_string())),
        Ok(Err(e)) => Err(e.into()),
        Err(Late::Hangs(_)) => Ok(Found::Dead(format!("its file system did not answer within {deadline:?}"))),
        Err(late) => Err(io::Error::other(late)),
    }
}

fn stat(target: &Target, sync: AtFlags) -> Result<Statx, Errno> {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | sync;
    rustix::fs::statx(target.parent(), target.name(), how, StatxFlags::BASIC_STATS)
}

/// What stat says of a mount whose file system is gone. It is still a mount, to be unmounted.
fn is_dead(error: Errno) -> bool {
    matches!(error, Errno::IO | Errno::NOTCONN | Errno::STALE | Errno::HOSTDOWN)
}

/// A mount that is nowhere yet; dropped, it is gone.
#[derive(Debug)]
pub struct Detached(OwnedFd);

impl Detached {
    /// A directory as a read-only mount of its own, without devices, programs or set-user-id bits.
    pub fn read_only(directory: BorrowedFd<'_>) -> io::Result<Self> {
        let how = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let mount = rustix::mount::open_tree(directory, "", how)?;
        let attributes = MountAttributes {
            set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV | libc::MOUNT_ATTR_NOEXEC,
            clear: 0,
            // A copy of a shared mount would be its peer: what is mounted there would appear in pods.
            propagation: libc::MS_PRIVATE,
            user_namespace: 0,
        };
        mount_setattr(mount.as_fd(), &attributes)?;
        Ok(Self(mount))
    }

    /// Makes the mount appear at a directory, in one step.
    pub fn attach(self, directory: BorrowedFd<'_>) -> io::Result<()> {
        let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
        Ok(rustix::mount::move_mount(&self.0, "", directory, "", how)?)
    }
}

/// `struct mount_attr` of `linux/mount.h`, in the size of Linux 5.12.
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

/// rustix has no `mount_setattr`.
fn mount_setattr(mount: BorrowedFd<'_>, attributes: &MountAttributes) -> io::Result<()> {
    let fd: c_int = mount.as_raw_fd();
    let flags = libc::AT_EMPTY_PATH.cast_unsigned() as c_uint;
    let path = c"";
    // SAFETY: the kernel reads the path up to its NUL and `size` bytes of `attributes`; both outlive the call, which
    // keeps neither and writes nothing. `mount` is open for the length of the borrow.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            fd,
            path.as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size_of::<MountAttributes>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Unmounts the topmost mount at a target. One that is busy or hangs past the deadline is detached: nothing can be
/// written through these mounts, so nothing is lost with the last user still inside.
pub fn unmount(target: &Arc<Target>, deadline: Duration) -> io::Result<()> {
    match unmount_with(target, UnmountFlags::NOFOLLOW, deadline) {
        Ok(Ok(())) => Ok(()),
        // Not a mount point (any more).
        Ok(Err(Errno::INVAL | Errno::NOENT)) => Ok(()),
        Ok(Err(Errno::BUSY)) => detach(target, "it is busy", deadline),
        Ok(Err(e)) => Err(e.into()),
        Err(Late::Hangs(after)) => detach(target, &format!("unmounting hangs for {after:?}"), deadline),
        Err(late) => Err(io::Error::other(late)),
    }
}

fn detach(target: &Arc<Target>, why: &str, deadline: Duration) -> io::Result<()> {
    tracing::warn!(target_path = %target.path(), why, "mount is detached instead of unmounted");
    match unmount_with(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH, deadline) {
        Ok(Ok(()) | Err(Errno::INVAL | Errno::NOENT)) => Ok(()),
        Ok(Err(e)) => Err(e.into()),
        Err(late @ Late::Hangs(_)) => Err(io::Error::new(io::ErrorKind::TimedOut, late)),
        Err(late) => Err(io::Error::other(late)),
    }
}

fn unmount_with(target: &Arc<Target>, flags: UnmountFlags, deadline: Duration) -> Result<Result<(), Errno>, Late> {
    let target = Arc::clone(target);
    within(deadline, move || rustix::mount::unmount(target.proc_path(), flags))
}
