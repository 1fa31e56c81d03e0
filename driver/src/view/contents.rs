//! Reading and writing open files.

use std::io;

use fuser::Errno;
use rustix::fs::{FallocateFlags, SeekFrom};

use super::draft::{Draft, Landlord};
use super::errno::{Failure, Result};
use super::files::Body;
use super::session::{Call, View};

/// Bytes that one `copy_file_range` copies; callers ask again for the rest.
const COPY: u64 = 16 * 1024 * 1024;
/// Bytes that are copied at a time.
const CHUNK: usize = 1024 * 1024;

/// A place in an open file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub handle: u64,
    pub offset: u64,
}

impl View {
    /// Fills `buffer`; fewer bytes only at the end of the file.
    pub(super) fn read_file(&self, at: Place, buffer: &mut [u8]) -> Result<usize> {
        self.file(at.handle)?.read_at(buffer, at.offset)
    }

    pub(super) fn write_file(&self, call: Call, at: Place, bytes: &[u8], append: bool) -> Result<u32> {
        let file = self.file(at.handle)?;
        let draft = file.draft()?;
        let result = if append { self.append(call, draft, bytes) } else { draft.write_at(self, bytes, at.offset) };
        file.note(&result);
        result?;
        u32::try_from(bytes.len()).map_err(|_| Errno::EINVAL.into())
    }

    pub(super) fn allocate(&self, at: Place, len: u64, mode: i32) -> Result<()> {
        let file = self.file(at.handle)?;
        let draft = file.draft()?;
        let end = at.offset.checked_add(len).ok_or(Errno::EFBIG)?;
        let _turn = self.take_turn(&draft.turn)?;
        let result = match mode {
            0 => self.extend(draft, at.offset, len, FallocateFlags::empty()),
            libc::FALLOC_FL_KEEP_SIZE => self.extend(draft, at.offset, len, FallocateFlags::KEEP_SIZE),
            _ if mode == libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE => self.punch(draft, at.offset, end),
            libc::FALLOC_FL_ZERO_RANGE => self.zero(draft, at.offset, end, FallocateFlags::empty()),
            _ if mode == libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE => {
                self.zero(draft, at.offset, end, FallocateFlags::KEEP_SIZE)
            }
            _ => Err(Errno::EOPNOTSUPP.into()),
        };
        file.note(&result);
        result
    }

    /// Makes room; and the file longer, unless its size is to be kept.
    fn extend(&self, draft: &Draft, offset: u64, len: u64, flags: FallocateFlags) -> Result<()> {
        let room = || draft.room_in_turn(self, offset.saturating_add(len));
        draft.change(room, |memory| Ok(rustix::fs::fallocate(memory, flags, offset, len)?))
    }

    fn punch(&self, draft: &Draft, offset: u64, end: u64) -> Result<()> {
        let len = end.min(draft.size()?).saturating_sub(offset);
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let room = || draft.room_in_turn(self, offset.saturating_add(len));
        draft.change(room, |memory| Ok(rustix::fs::fallocate(memory, flags, offset, len)?))
    }

    /// Memory has no such call: a hole, filled again.
    fn zero(&self, draft: &Draft, offset: u64, end: u64, flags: FallocateFlags) -> Result<()> {
        draft.room_in_turn(self, end)?;
        self.punch(draft, offset, end)?;
        self.extend(draft, offset, end - offset, flags)
    }

    /// The next byte that is data, or that is not, from `offset`.
    pub(super) fn seek_file(&self, at: Place, whence: i32) -> Result<u64> {
        let file = self.file(at.handle)?;
        if let Body::Draft(draft) = &file.body
            && let Some(memory) = draft.memory()
        {
            // Nobody uses the position of this descriptor.
            let to = match whence {
                libc::SEEK_DATA => SeekFrom::Data(at.offset),
                libc::SEEK_HOLE => SeekFrom::Hole(at.offset),
                _ => return Err(Errno::EINVAL.into()),
            };
            return rustix::fs::seek(&memory, to).map_err(|e| Failure::system("seeking in a draft")(e.into()));
        }
        let size = file.size()?;
        match whence {
            _ if at.offset >= size => Err(Errno::ENXIO.into()),
            libc::SEEK_DATA => Ok(at.offset),
            libc::SEEK_HOLE => Ok(size),
            _ => Err(Errno::EINVAL.into()),
        }
    }

    /// Copies up to `len` bytes between two files of the mount; fewer at the source's end, or where it is much.
    pub(super) fn copy(&self, from: Place, to: Place, len: u64) -> Result<u32> {
        let (source, target) = (self.file(from.handle)?, self.file(to.handle)?);
        let draft = target.draft()?;
        let len = len.min(COPY).min(source.size()?.saturating_sub(from.offset));
        let mut buffer = self.shared.buffers.take(CHUNK);
        let mut done = 0u64;
        while done < len {
            let chunk = usize::try_from(len - done).unwrap_or(CHUNK).min(CHUNK);
            let got = source.read_at(&mut buffer[..chunk], from.offset + done)?;
            if got == 0 {
                break;
            }
            let written = draft.write_at(self, &buffer[..got], to.offset.saturating_add(done));
            target.note(&written);
            match written {
                // What was copied before there was no more room is told; the next call says why it ends.
                Err(_) if done > 0 => break,
                result => result?,
            }
            done += got as u64;
        }
        u32::try_from(done).map_err(|e| Failure::System { what: "copying", source: io::Error::other(e) })
    }
}
