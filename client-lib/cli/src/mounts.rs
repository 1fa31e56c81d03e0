//! The volumes that are mounted where this process looks, found through its mount table.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use gpuvol_protocol::types::SOCKET_NAME;

const TABLE: &str = "/proc/self/mountinfo";

/// Directories with a store's socket in them, in the order of their mounting.
pub fn volumes() -> std::io::Result<Vec<PathBuf>> {
    let mut found = mount_points(&std::fs::read(TABLE)?);
    found.retain(|mount| std::fs::symlink_metadata(mount.join(SOCKET_NAME)).is_ok_and(|m| m.file_type().is_socket()));
    Ok(found)
}

/// Mount points of a mount table that may be volumes. Network file systems are left out: looking at one whose server is
/// gone could take forever.
fn mount_points(table: &[u8]) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in table.split(|b| *b == b'\n') {
        // id parent major:minor root MOUNT options optional... - TYPE source options
        let mut fields = line.split(|b| *b == b' ');
        let Some(mount) = fields.nth(4) else { continue };
        let Some(kind) = fields.skip_while(|field| *field != b"-").nth(1) else { continue };
        let skipped: [&[u8]; 12] = [
            b"nfs", b"nfs4", b"cifs", b"smb3", b"ceph", b"autofs", b"9p", b"proc", b"sysfs", b"cgroup", b"cgroup2",
            b"devpts",
        ];
        let mount = PathBuf::from(OsString::from_vec(unescape(mount)));
        if !skipped.contains(&kind) && !found.contains(&mount) {
            found.push(mount);
        }
    }
    found
}

/// The table writes space, tab, newline and backslash as `\` and three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok()).and_then(|d| u8::from_str_radix(d, 8).ok());
        match octal {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_are_read_with_their_escapes() {
        let table = b"22 1 0:5 / /proc rw,nosuid - proc proc rw\n\
            30 1 0:40 / /data/my\\040volume rw shared:7 master:1 - fuse.gpuvol gpuvol rw\n\
            31 30 0:41 / /home rw - nfs4 server:/home rw\n\
            32 1 0:42 / /tmp/a\\134b rw - tmpfs tmpfs rw\n\
            33 1 0:42 / /tmp/a\\134b rw - tmpfs tmpfs rw\n\
            broken line\n";
        assert_eq!(mount_points(table), [PathBuf::from("/data/my volume"), PathBuf::from("/tmp/a\\b")]);
    }
}
