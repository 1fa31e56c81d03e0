//! What is mounted at a target, mounting something there, and unmounting it.
//!
//! A mount is made detached: it is made what it should be while nobody can see it, and one call attaches it. So there is
//! no moment at which a pod has another one, and a failure before that call leaves nothing.

mod detached;
pub mod fuse;
pub mod table;

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::deadline::{Late, within};
use crate::target::Target;
pub use detached::Detached;

/// What is at a target path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    /// A directory on which nothing is mounted.
    Directory,
    /// A live mount whose root is this directory.
    Mounted(Root),
    /// A mount whose file system did not answer within the deadline: it hangs, or whoever serves it is being replaced.
    Silent(Root),
    /// A mount whose file system is gone (`EIO`, `ENOTCONN`, `ESTALE`), or was deleted underneath.
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

    /// The FUSE connection that it would be of: mounts without a block device have major number 0.
    pub fn connection(&self) -> Option<u32> {
        (self.device.0 == 0).then_some(self.device.1)
    }
}

impl From<&Statx> for Root {
    fn from(stat: &Statx) -> Self {
        Self { device: (stat.stx_dev_major, stat.stx_dev_minor), inode: stat.stx_ino }
    }
}

/// Looks at a target without asking a file system's server, so it cannot hang; a mount may be silent or dead.
pub fn look(target: &Target) -> io::Result<Found> {
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
    Ok(Found::Mounted(Root::from(&stat)))
}

/// Looks at a target, and asks the file system of a mount whether it is there.
pub fn inspect(target: &Arc<Target>, deadline: Duration) -> io::Result<Found> {
    let found = look(target)?;
    let Found::Mounted(root) = found else { return Ok(found) };
    let again = Arc::clone(target);
    match within(deadline, move || stat(&again, AtFlags::STATX_FORCE_SYNC)) {
        Ok(Ok(_)) => Ok(Found::Mounted(root)),
        Ok(Err(e)) if is_dead(e) => Ok(Found::Dead(io::Error::from(e).to_string())),
        Ok(Err(e)) => Err(e.into()),
        Err(Late::Hangs(_)) => Ok(Found::Silent(root)),
        Err(late) => Err(io::Error::other(late)),
    }
}

fn stat(target: &Target, sync: AtFlags) -> Result<Statx, Errno> {
    let how = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | sync;
    rustix::fs::statx(target.parent(), target.name(), how, StatxFlags::BASIC_STATS)
}

/// Asks the file system of an open directory whether it is there, and waits for its answer.
pub fn ask(directory: BorrowedFd<'_>) -> io::Result<()> {
    let how = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    Ok(rustix::fs::statx(directory, "", how, StatxFlags::BASIC_STATS).map(drop)?)
}

/// What a call says of a mount whose file system is gone. It is still a mount, to be unmounted.
pub fn is_dead(error: Errno) -> bool {
    matches!(error, Errno::IO | Errno::NOTCONN | Errno::CONNABORTED | Errno::STALE | Errno::HOSTDOWN)
}

/// What became of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// It is gone, or was not there.
    Gone,
    /// Somebody is inside.
    Busy,
    /// The call did not return in this time.
    Hangs(Duration),
}

/// Unmounts the topmost mount at a target, if nobody is inside.
pub fn try_unmount(target: &Arc<Target>, deadline: Duration) -> io::Result<Unmounted> {
    match unmount_with(target, UnmountFlags::NOFOLLOW, deadline) {
        // Or it is not a mount point (any more).
        Ok(Ok(()) | Err(Errno::INVAL | Errno::NOENT)) => Ok(Unmounted::Gone),
        Ok(Err(Errno::BUSY)) => Ok(Unmounted::Busy),
        Ok(Err(e)) => Err(e.into()),
        Err(Late::Hangs(after)) => Ok(Unmounted::Hangs(after)),
        Err(late) => Err(io::Error::other(late)),
    }
}

/// Unmounts the topmost mount at a target. One that is busy or hangs past the deadline is detached: whoever is inside
/// keeps it until he leaves, and nobody else gets in.
pub fn unmount(target: &Arc<Target>, deadline: Duration) -> io::Result<()> {
    match try_unmount(target, deadline)? {
        Unmounted::Gone => Ok(()),
        Unmounted::Busy => detach(target, "it is busy", deadline),
        Unmounted::Hangs(after) => detach(target, &format!("unmounting hangs for {after:?}"), deadline),
    }
}

/// Takes the topmost mount off a target, whoever is inside.
pub fn detach(target: &Arc<Target>, why: &str, deadline: Duration) -> io::Result<()> {
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
