//! Operations with paths and slots filled in: what is done in both directories, and what a report prints.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::os::unix::ffi::OsStringExt;

use rustix::fs::OFlags;

use super::op::{Data, From, RenameHow, Room, XattrHow};

/// A path below the directory of the case, as bytes; empty for that directory.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Below(pub Vec<u8>);

#[derive(Debug, Clone)]
pub enum Step {
    Open { at: Below, flags: OFlags, mode: u32 },
    Close { handle: usize },
    Dup { handle: usize },
    Write { handle: usize, data: Data },
    WriteAt { handle: usize, offset: u64, data: Data },
    Read { handle: usize, length: u64 },
    ReadAt { handle: usize, offset: u64, length: u64 },
    Seek { handle: usize, from: From, offset: i64 },
    Holes { handle: usize },
    Truncate { handle: usize, size: u64 },
    TruncatePath { at: Below, size: u64 },
    Allocate { handle: usize, offset: u64, length: u64, room: Room },
    CopyRange { from: usize, to: usize, from_offset: u64, to_offset: u64, length: u64 },
    Sync { handle: usize, data_only: bool },
    StatHandle { handle: usize },
    ChmodHandle { handle: usize, mode: u32 },
    TimesHandle { handle: usize, atime: i64, mtime: i64 },
    Map { handle: usize, writable: bool, page: u64, pages: u64 },
    MapRead { map: usize, offset: u64, length: u64 },
    MapWrite { map: usize, offset: u64, data: Data },
    Unmap { map: usize },
    Stat { at: Below, follow: bool },
    List { at: Below },
    MakeDirectory { at: Below, mode: u32 },
    RemoveDirectory { at: Below },
    Unlink { at: Below },
    Rename { from: Below, to: Below, how: RenameHow },
    Symlink { at: Below, target: Below },
    ReadLink { at: Below },
    HardLink { from: Below, to: Below },
    MakeFile { at: Below, mode: u32 },
    Chmod { at: Below, mode: u32 },
    Chown { at: Below, uid: Option<u32>, gid: Option<u32> },
    Times { at: Below, atime: i64, mtime: i64, follow: bool },
    SetXattr { at: Below, name: &'static str, data: Data, how: XattrHow },
    GetXattr { at: Below, name: &'static str },
    ListXattrs { at: Below },
    RemoveXattr { at: Below, name: &'static str },
}

impl Data {
    pub fn bytes(&self) -> Vec<u8> {
        crate::content::content(u64::from(self.seed), crate::size::index(u64::from(self.length)))
    }
}

impl Step {
    /// The name whose target gets a new version where nobody is writing it.
    pub fn begins_version(&self) -> Option<&Below> {
        match self {
            Self::Open { at, flags, .. } => {
                flags.intersects(OFlags::WRONLY | OFlags::RDWR | OFlags::TRUNC).then_some(at)
            }
            Self::TruncatePath { at, .. } => Some(at),
            _ => None,
        }
    }

    /// The handle it works on.
    pub fn handle(&self) -> Option<usize> {
        match self {
            Self::Write { handle, .. }
            | Self::WriteAt { handle, .. }
            | Self::Read { handle, .. }
            | Self::ReadAt { handle, .. }
            | Self::Seek { handle, .. }
            | Self::Truncate { handle, .. }
            | Self::Allocate { handle, .. }
            | Self::Sync { handle, .. }
            | Self::ChmodHandle { handle, .. }
            | Self::TimesHandle { handle, .. } => Some(*handle),
            Self::CopyRange { to, .. } => Some(*to),
            _ => None,
        }
    }

    /// The names that it may change.
    pub fn names(&self) -> Vec<&Below> {
        match self {
            Self::Open { at, .. }
            | Self::TruncatePath { at, .. }
            | Self::MakeDirectory { at, .. }
            | Self::RemoveDirectory { at }
            | Self::Unlink { at }
            | Self::Symlink { at, .. }
            | Self::MakeFile { at, .. }
            | Self::Chmod { at, .. }
            | Self::Chown { at, .. }
            | Self::Times { at, .. }
            | Self::SetXattr { at, .. }
            | Self::RemoveXattr { at, .. } => vec![at],
            Self::Rename { from, to, .. } | Self::HardLink { from, to } => vec![from, to],
            _ => Vec::new(),
        }
    }
}

impl Below {
    pub fn of_case() -> Self {
        Self(Vec::new())
    }

    pub fn child(&self, name: &[u8]) -> Self {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push(b'/');
        }
        path.extend_from_slice(name);
        Self(path)
    }

    pub fn parent(&self) -> Self {
        let end = self.0.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        Self(self.0[..end].to_vec())
    }

    pub fn to_os(&self) -> OsString {
        OsString::from_vec(self.0.clone())
    }
}

impl Display for Below {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let text = self.0.escape_ascii().to_string();
        match text.len() {
            0 => f.write_str("."),
            100.. => write!(f, "{}..({} bytes)", &text[..40], self.0.len()),
            _ => f.write_str(&text),
        }
    }
}

impl fmt::Debug for Below {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}
