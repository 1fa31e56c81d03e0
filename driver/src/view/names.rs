//! Names that the mounter has its own mind about: the hidden socket, and names that are too long.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::UNIX_EPOCH;

use fuser::{Errno, FileAttr, FileType, INodeNo};
use gpuvol_protocol::types::{MAX_NAME, SOCKET_NAME};

use super::attributes::BLOCK;
use super::errno::Result;

/// The node of the hidden socket, in every directory. The store counts its nodes up from 1 and never comes here.
pub const SOCKET: u64 = 1 << 62;

pub fn is_socket(name: &OsStr) -> bool {
    name.as_bytes() == SOCKET_NAME.as_bytes()
}

/// The socket as `stat` shows it: anybody in the pod may connect, the store tells pods apart by the mount.
pub fn socket() -> FileAttr {
    FileAttr {
        ino: INodeNo(SOCKET),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::Socket,
        perm: 0o777,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: BLOCK,
        flags: 0,
    }
}

/// A name that is looked for.
pub fn sought(name: &OsStr) -> Result<Vec<u8>> {
    if name.len() > MAX_NAME { Err(Errno::ENAMETOOLONG.into()) } else { Ok(name.as_bytes().to_vec()) }
}

/// A name that something is to get. The socket's is taken, in every directory.
pub fn fresh(name: &OsStr) -> Result<Vec<u8>> {
    if is_socket(name) { Err(Errno::EEXIST.into()) } else { sought(name) }
}

/// A name that is to go away, or to be another's. The socket keeps its own.
pub fn movable(name: &OsStr) -> Result<Vec<u8>> {
    if is_socket(name) { Err(Errno::EPERM.into()) } else { sought(name) }
}
