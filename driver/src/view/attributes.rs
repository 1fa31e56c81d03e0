//! A node's attributes as the kernel takes them.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use gpuvol_protocol::view::{Node, NodeKind};

/// What `stat` names as a good size for a write.
pub const BLOCK: u32 = 4096;
/// `st_blocks` counts in these.
const SECTOR: u64 = 512;

impl Described for Node {
    fn attributes(&self) -> FileAttr {
        FileAttr {
            ino: INodeNo(self.id),
            size: self.size,
            blocks: self.allocated.div_ceil(SECTOR),
            atime: from_ns(self.atime_ns),
            mtime: from_ns(self.mtime_ns),
            ctime: from_ns(self.ctime_ns),
            crtime: UNIX_EPOCH,
            kind: match self.kind() {
                NodeKind::File => FileType::RegularFile,
                NodeKind::Directory => FileType::Directory,
                NodeKind::Link => FileType::Symlink,
            },
            perm: permissions(self.mode),
            nlink: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: BLOCK,
            flags: 0,
        }
    }
}

pub trait Described {
    fn attributes(&self) -> FileAttr;
}

/// What is known of a directory without asking: enough for `.` and `..`, of which the kernel keeps nothing else.
pub fn of_directory(node: u64) -> FileAttr {
    Node { id: node, kind: NodeKind::Directory.into(), mode: 0o755, links: 2, ..Node::default() }.attributes()
}

/// A mode without the file's kind: permission, set-id and sticky bits.
pub fn permissions(mode: u32) -> u16 {
    // The mask leaves twelve bits.
    u16::try_from(mode & 0o7777).unwrap_or(0)
}

fn from_ns(ns: i64) -> SystemTime {
    let distance = Duration::from_nanos(ns.unsigned_abs());
    if ns < 0 { UNIX_EPOCH - distance } else { UNIX_EPOCH + distance }
}

/// Nanoseconds since the epoch, as near as they can be said.
pub fn to_ns(time: TimeOrNow) -> i64 {
    let time = match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    };
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_nanos()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_come_back_from_both_sides_of_the_epoch() {
        for ns in [0, 1, 1_700_000_000_123_456_789, -1, -86_400_000_000_001] {
            assert_eq!(to_ns(TimeOrNow::SpecificTime(from_ns(ns))), ns);
        }
    }

    #[test]
    fn a_started_block_counts() {
        let node = Node { allocated: 513, mode: 0o104_755, ..Node::default() };
        assert_eq!((node.attributes().blocks, node.attributes().perm), (2, 0o4755));
    }
}
