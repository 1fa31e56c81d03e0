//! Mounts that are nowhere yet: nobody sees one before it is as it should be, and dropped it is gone.

use std::ffi::{c_int, c_uint};
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::mount::{MoveMountFlags, OpenTreeFlags};

use super::Root;

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

    /// What `fsmount` made.
    pub(super) fn new(mount: OwnedFd) -> Self {
        Self(mount)
    }

    /// From now on nothing can be written through this mount.
    pub fn make_read_only(&self) -> io::Result<()> {
        let attributes = MountAttributes { set: libc::MOUNT_ATTR_RDONLY, clear: 0, propagation: 0, user_namespace: 0 };
        mount_setattr(self.0.as_fd(), &attributes)
    }

    /// The mount's root; no file system's server is asked.
    pub fn root(&self) -> io::Result<Root> {
        Root::of(self.0.as_fd())
    }

    /// Another descriptor of the mount's root; the mount is there for as long as one of the two is.
    pub fn directory(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
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
