//! The kernel's table of this process's mounts.

use std::fs;
use std::path::PathBuf;

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Major and minor number; for FUSE the minor number names the connection.
    pub device: (u32, u32),
    /// The directory of the file system that is mounted.
    pub root: String,
    /// Where.
    pub at: PathBuf,
    /// The file system's type.
    pub kind: String,
}

/// All mounts, oldest first; a file system is not asked for it.
pub fn read() -> Vec<Mounted> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// `id parent MAJOR:MINOR ROOT AT options … - KIND …`, with odd bytes in octal.
fn parse(table: &str) -> Vec<Mounted> {
    let plain = |field: &str| {
        [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
            .iter()
            .fold(field.to_owned(), |text, (octal, byte)| text.replace(octal, byte))
    };
    let line = |line: &str| {
        let (mount, system) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(2);
        let (major, minor) = fields.next()?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let (root, at) = (plain(fields.next()?), plain(fields.next()?).into());
        Some(Mounted { device, root, at, kind: system.split(' ').next()?.to_owned() })
    };
    table.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mount_table_is_read() {
        let table = "30 1 0:40 /run/x/publish/1 /data/my\\040volume ro - tmpfs tmpfs rw\nbroken\n";
        let want = Mounted {
            device: (0, 40),
            root: "/run/x/publish/1".into(),
            at: "/data/my volume".into(),
            kind: "tmpfs".into(),
        };
        assert_eq!(parse(table), [want]);
    }
}
