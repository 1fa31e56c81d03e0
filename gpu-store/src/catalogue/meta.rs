//! What a node has beside its content: permissions, owner, times, extended attributes.

use super::record::{Meta, Xattr};

/// What the mount is, it is for whoever has it: the mount is the capability. So what appears without anybody's mode is
/// open to all users of it.
const OPEN_FILE: u32 = 0o666;
const OPEN_DIRECTORY: u32 = 0o777;
/// Permission bits, with set-id and sticky bits.
pub const MODE_BITS: u32 = 0o7777;

/// A new node's.
pub fn new(mode: u32, uid: u32, gid: u32, time_ns: i64) -> Meta {
    Meta {
        mode: mode & MODE_BITS,
        uid,
        gid,
        atime_ns: time_ns,
        mtime_ns: time_ns,
        ctime_ns: time_ns,
        xattrs: Vec::new(),
    }
}

/// An object's that a client put.
pub fn of_client(time_ms: u64, (uid, gid): (u32, u32)) -> Meta {
    new(OPEN_FILE, uid, gid, ns(time_ms))
}

/// A directory's that nobody gave a mode.
pub fn of_directory(time_ms: u64, (uid, gid): (u32, u32)) -> Meta {
    new(OPEN_DIRECTORY, uid, gid, ns(time_ms))
}

fn ns(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX / 1_000_000).saturating_mul(1_000_000)
}

pub fn xattr<'m>(meta: &'m Meta, name: &[u8]) -> Option<&'m [u8]> {
    meta.xattrs.iter().find(|x| x.name == name).map(|x| x.value.as_slice())
}

/// Sets an attribute, or takes it away; answers whether it was there.
pub fn set_xattr(meta: &mut Meta, name: &[u8], value: Option<&[u8]>) -> bool {
    let at = meta.xattrs.iter().position(|x| x.name == name);
    match (at, value) {
        (Some(at), Some(value)) => meta.xattrs[at].value = value.to_vec(),
        (Some(at), None) => drop(meta.xattrs.remove(at)),
        (None, Some(value)) => meta.xattrs.push(Xattr { name: name.to_vec(), value: value.to_vec() }),
        (None, None) => {}
    }
    at.is_some()
}
