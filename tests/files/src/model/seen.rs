//! What one operation showed in one directory, and the attributes of a file as they are compared.

use std::fmt::{self, Debug, Formatter};

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::content::short;
use crate::size::of_stat;

pub type Outcome = Result<Seen, Errno>;

#[derive(Clone, PartialEq, Eq)]
pub enum Seen {
    Done,
    Number(u64),
    Bytes(Vec<u8>),
    /// Names in order, with what kind the listing says they are.
    Names(Vec<(Vec<u8>, FileType)>),
    Attributes(Attributes),
    /// What cannot be right in any file system.
    Nonsense(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub kind: FileType,
    /// With set-id and sticky bits.
    pub mode: u32,
    /// 0 for what is not a file: directories and links need not agree.
    pub size: u64,
    /// 0 for directories.
    pub links: u64,
    pub uid: u32,
    pub gid: u32,
    /// Nanoseconds since the epoch.
    pub atime: i128,
    pub mtime: i128,
    pub inode: u64,
}

impl Attributes {
    pub fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let directory = kind == FileType::Directory;
        let nanoseconds = |seconds: i64, more: u64| i128::from(seconds) * 1_000_000_000 + i128::from(more);
        Self {
            kind,
            mode: stat.st_mode & 0o7777,
            size: if directory { 0 } else { of_stat(stat.st_size) },
            #[allow(clippy::useless_conversion, reason = "its width depends on the processor")]
            links: if directory { 0 } else { stat.st_nlink.into() },
            uid: stat.st_uid,
            gid: stat.st_gid,
            atime: nanoseconds(stat.st_atime, stat.st_atime_nsec),
            mtime: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
            inode: stat.st_ino,
        }
    }
}

impl Debug for Seen {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("ok"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(bytes) => write!(f, "{} bytes {}", bytes.len(), short(bytes)),
            Self::Names(names) => {
                let names: Vec<String> = names.iter().map(|(name, _)| name.escape_ascii().to_string()).collect();
                write!(f, "{names:?}")
            }
            Self::Attributes(attributes) => write!(f, "{attributes:?}"),
            Self::Nonsense(what) => write!(f, "nonsense: {what}"),
        }
    }
}

/// An outcome in few words: bytes as their beginning, errors by name.
pub fn word(outcome: &Outcome) -> String {
    match outcome {
        Ok(seen) => format!("{seen:?}"),
        Err(errno) => std::io::Error::from(*errno).to_string(),
    }
}
