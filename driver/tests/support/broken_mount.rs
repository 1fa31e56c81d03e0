//! FUSE mounts whose server hangs or is gone.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags};

/// Mounts a file system at a directory whose server never answers. Dropping the server leaves a mount that answers
/// `ENOTCONN`. `None` where FUSE is not to be had.
pub fn mount_silent(at: &Path) -> Option<File> {
    let server: File = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?.into();
    let context = rustix::mount::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC).ok()?;
    for (key, value) in [
        ("fd", server.as_raw_fd().to_string()),
        ("rootmode", "40000".into()),
        ("user_id", "0".into()),
        ("group_id", "0".into()),
    ] {
        rustix::mount::fsconfig_set_string(context.as_fd(), key, value).unwrap();
    }
    rustix::mount::fsconfig_create(context.as_fd()).ok()?;
    let mount =
        rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).unwrap();
    let how = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    rustix::mount::move_mount(mount.as_fd(), "", CWD, at, how).unwrap();
    Some(server)
}
