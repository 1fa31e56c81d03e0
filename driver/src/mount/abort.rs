//! Ending a FUSE connection whose server is gone or hangs: every request that waits fails, and every later one.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};

/// Aborts a connection; one that is gone is fine. The caller knows that the number is still the connection's: a mount of
/// it is there.
pub fn abort(connection: u32) -> io::Result<()> {
    match open(connection).and_then(|mut control| control.write_all(b"1")) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

fn open(connection: u32) -> io::Result<File> {
    let mounted = Path::new("/sys/fs/fuse/connections");
    match File::options().write(true).open(mounted.join(connection.to_string()).join("abort")) {
        Ok(file) => Ok(file),
        // Its control file system is mounted nowhere, which is so in most containers, or the connection is gone.
        Err(e) if e.kind() == io::ErrorKind::NotFound => open_detached(connection),
        Err(e) => Err(e),
    }
}

/// Through a mount of the control file system that nobody else sees.
fn open_detached(connection: u32) -> io::Result<File> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(context.as_fd())?;
    let mount = rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(mount, format!("{connection}/abort"), flags, Mode::empty())?.into())
}
