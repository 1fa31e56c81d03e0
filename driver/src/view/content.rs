//! The bytes of a file that nobody writes: whole, or ranges of shared memory laid end to end.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gpuvol_protocol::message::{Allocation, Segment};

use super::errno::{Failure, Result};

/// Memory that open files share, by allocation: a slab holds many files, and each descriptor counts against the
/// process's limit.
#[derive(Debug, Default)]
pub struct Memories {
    open: Mutex<HashMap<u64, Weak<File>>>,
}

impl Memories {
    fn share(&self, allocation: &Allocation, fd: OwnedFd) -> Arc<File> {
        if allocation.id == 0 {
            return Arc::new(File::from(fd));
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = open.get(&allocation.id).and_then(Weak::upgrade) {
            return known;
        }
        let memory = Arc::new(File::from(fd));
        // Now and then, so that what is closed does not pile up.
        if open.len().is_power_of_two() {
            open.retain(|_, memory| memory.strong_count() > 0);
        }
        open.insert(allocation.id, Arc::downgrade(&memory));
        memory
    }
}

#[derive(Debug, Default)]
pub struct Content {
    /// Each with the offset in the file at which it ends.
    pieces: Vec<(u64, Piece)>,
}

#[derive(Debug)]
enum Piece {
    Inline(Vec<u8>),
    Memory { memory: Arc<File>, offset: u64 },
}

impl Content {
    pub fn whole(bytes: Vec<u8>) -> Self {
        Self { pieces: vec![(bytes.len() as u64, Piece::Inline(bytes))] }
    }

    /// `fds`: one for each allocation.
    pub fn of_segments(
        allocations: &[Allocation],
        segments: Vec<Segment>,
        fds: Vec<OwnedFd>,
        memories: &Memories,
    ) -> Result<Self> {
        if fds.len() != allocations.len() {
            return Err(Failure::Confused("not one descriptor for each allocation"));
        }
        let shared: Vec<_> = allocations.iter().zip(fds).map(|(of, fd)| memories.share(of, fd)).collect();
        let mut pieces = Vec::with_capacity(segments.len());
        let mut end = 0u64;
        for segment in segments {
            end = end.checked_add(segment.len).ok_or(Failure::Confused("segments longer than a file can be"))?;
            let piece = if !segment.inline.is_empty() {
                if segment.inline.len() as u64 != segment.len {
                    return Err(Failure::Confused("a segment is not as long as its bytes"));
                }
                Piece::Inline(segment.inline)
            } else {
                let memory = usize::try_from(segment.allocation).ok().and_then(|index| shared.get(index));
                let memory = memory.ok_or(Failure::Confused("a segment of no allocation"))?;
                Piece::Memory { memory: Arc::clone(memory), offset: segment.offset }
            };
            if segment.len > 0 {
                pieces.push((end, piece));
            }
        }
        Ok(Self { pieces })
    }

    pub fn len(&self) -> u64 {
        self.pieces.last().map_or(0, |(end, _)| *end)
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The only memory, where the file is nothing else: from its first byte to its last.
    pub fn only_memory(&self) -> Option<&Arc<File>> {
        match self.pieces.as_slice() {
            [(_, Piece::Memory { memory, offset: 0 })] => Some(memory),
            _ => None,
        }
    }

    /// Fills `buffer` from `offset`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        let first = self.pieces.partition_point(|(end, _)| *end <= offset);
        for (index, (end, piece)) in self.pieces.iter().enumerate().skip(first) {
            if done == buffer.len() {
                break;
            }
            let begin = index.checked_sub(1).map_or(0, |before| self.pieces[before].0);
            // Pieces follow each other without gaps, so the position is inside this one.
            let skip = offset + done as u64 - begin;
            let left = usize::try_from(end - begin - skip).unwrap_or(usize::MAX);
            let wanted = left.min(buffer.len() - done);
            let to = &mut buffer[done..done + wanted];
            match piece {
                Piece::Inline(bytes) => {
                    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
                    to.copy_from_slice(&bytes[skip..skip + wanted]);
                }
                Piece::Memory { memory, offset } => memory.read_exact_at(to, offset + skip)?,
            }
            done += wanted;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(bytes: &[u8]) -> OwnedFd {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file.into()
    }

    fn segment(allocation: u32, offset: u64, len: u64) -> Segment {
        Segment { allocation, offset, len, ..Segment::default() }
    }

    #[test]
    fn segments_are_read_end_to_end() {
        let allocations =
            [Allocation { id: 7, ..Allocation::default() }, Allocation { id: 8, ..Allocation::default() }];
        let inline = Segment { len: 2, inline: b"--".to_vec(), ..Segment::default() };
        let segments = vec![segment(0, 2, 3), segment(0, 0, 0), inline, segment(1, 0, 4)];
        let memories = Memories::default();
        let fds = vec![memory(b"abcdef"), memory(b"0123")];
        let content = Content::of_segments(&allocations, segments, fds, &memories).unwrap();
        assert_eq!((content.len(), content.only_memory().is_some()), (9, false));
        let whole = b"cde--0123";
        for from in 0..10 {
            for len in 0..11 {
                let mut buffer = vec![0; len];
                let got = content.read_at(&mut buffer, from as u64).unwrap();
                assert_eq!(&buffer[..got], &whole[from.min(9)..(from + len).min(9)], "{from} {len}");
            }
        }
        assert_eq!(content.read_at(&mut [0; 4], u64::MAX).unwrap(), 0);
    }

    #[test]
    fn an_allocation_is_held_once() {
        let memories = Memories::default();
        let allocation = [Allocation { id: 7, ..Allocation::default() }];
        let open = || Content::of_segments(&allocation, vec![segment(0, 0, 1)], vec![memory(b"a")], &memories).unwrap();
        let (one, two) = (open(), open());
        assert!(Arc::ptr_eq(one.only_memory().unwrap(), two.only_memory().unwrap()));
    }

    #[test]
    fn what_does_not_fit_together_is_refused() {
        let memories = Memories::default();
        assert!(Content::of_segments(&[], vec![segment(0, 0, 1)], vec![], &memories).is_err());
        assert!(Content::of_segments(&[Allocation::default()], vec![], vec![], &memories).is_err());
    }
}
