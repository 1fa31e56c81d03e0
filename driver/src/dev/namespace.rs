//! Mount namespaces of one's own: for the demo's node, and for each of its stages a view in which the volume is at
//! `/data` and the node's state directory is not there.
//!
//! A stage's root is a tmpfs with everything of the real root bound into it, so that `/data` can be made wherever the
//! real root is read-only or has a `/data` of its own, and nothing of it outlives the stage.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change, unmount,
};
use rustix::thread::UnshareFlags;

/// Where a stage finds its volume.
pub const DATA: &str = "/data";

/// How far processes can be kept apart here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Isolation {
    /// A mount namespace, as root.
    Mounts,
    /// A mount namespace in a user namespace.
    User,
    /// Neither, and why.
    None(String),
}

impl Isolation {
    /// The most that is permitted, found out by trying it in a child process.
    pub fn find() -> Self {
        let mounts = try_in_child(false);
        if mounts.is_ok() {
            return Isolation::Mounts;
        }
        match try_in_child(true) {
            Ok(()) => Isolation::User,
            Err(why) => Isolation::None(why),
        }
    }
}

fn try_in_child(user: bool) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let mut command = Command::new(program);
    command.arg("probe-namespace").stdin(Stdio::null());
    if user {
        command.arg("--user");
    }
    let output = command.output().map_err(|e| e.to_string())?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

/// Tries what the demo needs, in this process and its new namespace.
pub fn probe(user: bool) -> io::Result<()> {
    enter(user)?;
    tmpfs(&std::env::temp_dir(), c"size=1m")
}

/// Moves this process, which has one thread, into a mount namespace from which nothing propagates; with `user`, in a
/// user namespace in which it is root.
pub fn enter(user: bool) -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let flags = if user { UnshareFlags::NEWUSER | UnshareFlags::NEWNS } else { UnshareFlags::NEWNS };
    // SAFETY: this process has one thread here, so no other one sees its file system context change; descriptors stay
    // shared with nobody, for CLONE_FILES is not among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }.map_err(named("make a namespace"))?;
    if user {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {uid} 1\n"))?;
        fs::write("/proc/self/gid_map", format!("0 {gid} 1\n"))?;
    }
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(named("make mounts private"))
}

/// A stage's view: this process sees `data` at [`DATA`], and an empty directory at each of `hidden` and at `/dev/shm`.
/// `root` is a directory for the new root to be mounted on, which is best one of the hidden.
pub fn stage_root(data: &Path, hidden: &[PathBuf], root: &Path) -> io::Result<()> {
    tmpfs(root, c"mode=755,size=1m")?;
    for entry in fs::read_dir("/")? {
        let entry = entry?;
        let (from, to) = (entry.path(), root.join(entry.file_name()));
        if from == Path::new(DATA) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            symlink(fs::read_link(&from)?, &to)?;
            continue;
        }
        if kind.is_dir() {
            fs::create_dir(&to)?;
        } else {
            fs::File::create(&to)?;
        }
        match mount_bind_recursive(&from, &to) {
            // What this user cannot see, or what is gone, the stage does not see either.
            Ok(()) | Err(Errno::ACCESS | Errno::NOENT) => {}
            Err(e) => return Err(named_path("bind", &from)(e)),
        }
    }
    let at = below(root, Path::new(DATA));
    fs::create_dir(&at)?;
    mount_bind_recursive(data, &at).map_err(named_path("bind", data))?;
    for directory in hidden {
        tmpfs(&below(root, directory), c"mode=755,size=1m")?;
    }
    let shared = below(root, Path::new("/dev/shm"));
    if shared.is_dir() {
        tmpfs(&shared, c"mode=1777")?;
    }
    change_root(root)
}

fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// By pivot_root, which leaves nothing of the old root; by chroot where the root is not a mount (an initial ramdisk).
fn change_root(root: &Path) -> io::Result<()> {
    rustix::process::chdir(root)?;
    match rustix::process::pivot_root(".", ".") {
        // The old root is on top of the new one now.
        Ok(()) => unmount(".", UnmountFlags::DETACH).map_err(named("leave the old root"))?,
        Err(Errno::INVAL | Errno::BUSY) => rustix::process::chroot(".").map_err(named("change the root"))?,
        Err(e) => return Err(named("pivot the root")(e)),
    }
    Ok(rustix::process::chdir("/")?)
}

fn tmpfs(at: &Path, options: &CStr) -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", at, "tmpfs", flags, Some(options)).map_err(named_path("mount a tmpfs at", at))
}

fn named(doing: &'static str) -> impl FnOnce(Errno) -> io::Error {
    move |errno| io::Error::new(io::Error::from(errno).kind(), format!("cannot {doing}: {errno}"))
}

fn named_path(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> io::Error {
    let path = path.to_owned();
    move |errno| io::Error::new(io::Error::from(errno).kind(), format!("cannot {doing} {}: {errno}", path.display()))
}
