//! Filling fresh host memory from device memory, host memory and plain bytes at once, by many threads.
//!
//! A memfd's pages are made by whoever touches them first, and that is the slow part: a page fault and a page to
//! clear for every 4 KiB, 0.8 s a GiB for one thread (measured), where the bus needs 0.02 s. Writing with `pwrite`
//! takes half of that, but all writers of one file take turns at its lock (measured: two are no faster than one),
//! and so does `fallocate`; faults through a mapping run side by side. Page-locking the fresh memory instead faults
//! in the same pages under the driver's lock first. So the target is cut into chunks, and each thread takes one after
//! another: gathers its bytes into a page-locked buffer, then copies that into the mapping, while its other buffer is
//! on the bus. Small pieces side by side cost one wait and one copy together.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::driver::Driver;
use super::stage::{CHUNK, Half, Stage, Staging};
use super::vmm::CudaMapping;
use crate::error::{MemoryError, Result};
use crate::memfd::{HostAllocation, HostMapping};
use crate::memory::{Mapping, check_range, to_usize};

/// Threads of one fill at most. At 0.8 s a GiB each, 16 of them make pages at a third of the rate of the bus; the
/// kernel's lock on a file's page tree keeps more from helping.
const THREADS: usize = 16;

/// Where some of the bytes come from.
#[derive(Debug, Clone, Copy)]
pub enum Piece<'a> {
    /// The bytes themselves.
    Bytes(&'a [u8]),
    /// Host memory, read without mapping it.
    Host {
        /// The memory.
        memory: &'a HostAllocation,
        /// First byte, in bytes from its start.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// Device memory, of the staging's device or of another one (which takes longer).
    Device {
        /// The memory.
        mapping: &'a CudaMapping,
        /// First byte, in bytes from its start.
        offset: u64,
        /// Bytes.
        len: u64,
    },
}

impl Piece<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::Host { len, .. } | Self::Device { len, .. } => *len,
        }
    }

    fn check(&self) -> Result<()> {
        use crate::memory::Allocation;

        match self {
            Self::Bytes(_) => Ok(()),
            Self::Host { memory, offset, len } => check_range(*offset, *len, memory.len()),
            Self::Device { mapping, offset, len } => check_range(*offset, *len, mapping.len()),
        }
    }
}

/// What failed, and at which piece where it was about one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct FillError {
    /// Index into the pieces: the one that failed, or the first that may be.
    pub piece: Option<usize>,
    /// What failed.
    pub error: MemoryError,
}

impl From<MemoryError> for FillError {
    fn from(error: MemoryError) -> Self {
        Self { piece: None, error }
    }
}

impl Staging {
    /// Lays the pieces end to end into `target`, from its start on, and answers their length in bytes. After an
    /// error the target holds anything, and nothing is still running.
    pub fn fill(&self, target: &mut HostMapping, pieces: &[Piece<'_>]) -> Result<u64, FillError> {
        let mut ends = Vec::with_capacity(pieces.len());
        let mut total = 0_u64;
        for (index, piece) in pieces.iter().enumerate() {
            piece.check().map_err(|error| FillError { piece: Some(index), error })?;
            total = total.saturating_add(piece.len());
            ends.push(total);
        }
        if total == 0 {
            return Ok(0);
        }
        let start = target.span_mut(0, total)?;
        let len = to_usize(total)?;
        let entered = self.device.enter()?;
        let driver = entered.driver;
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
        let mut stages = self.take(driver, threads.min(len.div_ceil(CHUNK)))?;
        let job = Job {
            staging: self,
            target: Target(start),
            len,
            pieces,
            ends,
            next: AtomicUsize::new(0),
            failed: Mutex::new(None),
        };
        job.run(&mut stages);
        let failed = job.failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        self.put_back(driver, stages);
        failed.map_or(Ok(total), Err)
    }
}

/// First byte of the mapping to fill.
#[derive(Clone, Copy)]
struct Target(NonNull<u8>);

// SAFETY: an address into the mapping that `fill` borrows exclusively until all threads have ended; each of them
// writes the chunks that it has taken and no others.
unsafe impl Send for Target {}
// SAFETY: as above.
unsafe impl Sync for Target {}

/// One fill, shared by its threads: each takes the next chunk until none is left or one has failed.
struct Job<'a> {
    staging: &'a Staging,
    target: Target,
    len: usize,
    pieces: &'a [Piece<'a>],
    /// Where each piece ends in the target.
    ends: Vec<u64>,
    /// Offset of the next chunk that nobody has taken.
    next: AtomicUsize,
    failed: Mutex<Option<FillError>>,
}

/// A part of the target, in bytes; at most [`CHUNK`] long.
#[derive(Clone, Copy)]
struct Chunk {
    start: usize,
    len: usize,
}

impl Job<'_> {
    fn run(&self, stages: &mut [Stage]) {
        let Some((first, others)) = stages.split_first_mut() else { return };
        thread::scope(|scope| {
            for stage in others {
                // A machine that gives no more threads still has this one.
                let _ = thread::Builder::new()
                    .name("gpuvol-fill".to_owned())
                    .spawn_scoped(scope, move || self.work_noting(stage));
            }
            self.work_noting(first);
        });
    }

    fn work_noting(&self, stage: &mut Stage) {
        let Err(failure) = self.work(&stage.halves) else { return };
        // No chunk is handed out any more; the first reason is kept.
        self.next.store(self.len, Ordering::Relaxed);
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        // Nothing may still write into the buffers when others get them.
        if let Ok(entered) = self.staging.device.enter() {
            for half in &stage.halves {
                let _ = entered.driver.stream_synchronize(half.stream);
            }
        }
    }

    fn work(&self, halves: &[Half; 2]) -> Result<(), FillError> {
        let entered = self.staging.device.enter()?;
        let mut under_way: Option<Chunk> = None;
        let mut turn = 0;
        loop {
            let next = self.take_chunk();
            if let Some(chunk) = next {
                self.gather(entered.driver, chunk, &halves[turn])?;
            }
            if let Some(chunk) = under_way {
                self.deliver(entered.driver, chunk, &halves[1 - turn])?;
            }
            if next.is_none() {
                return Ok(());
            }
            under_way = next;
            turn = 1 - turn;
        }
    }

    fn take_chunk(&self) -> Option<Chunk> {
        let start = self.next.fetch_add(CHUNK, Ordering::Relaxed);
        let left = self.len.checked_sub(start).filter(|left| *left > 0)?;
        Some(Chunk { start, len: left.min(CHUNK) })
    }

    /// The piece that the byte at `offset` of the target belongs to.
    fn piece_at(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end <= offset as u64)
    }

    /// The first piece of a chunk that a failing stream can be about.
    fn first_on_device(&self, chunk: Chunk) -> Option<usize> {
        let last = self.piece_at(chunk.start + chunk.len - 1);
        (self.piece_at(chunk.start)..=last).find(|index| matches!(self.pieces[*index], Piece::Device { .. }))
    }

    /// Brings a chunk's bytes into a buffer, or on their way there on its stream.
    fn gather(&self, driver: &Driver, chunk: Chunk, half: &Half) -> Result<(), FillError> {
        let mut done = 0;
        let mut index = self.piece_at(chunk.start);
        while done < chunk.len {
            let at = (chunk.start + done) as u64;
            let len = to_usize(self.ends[index] - at)?.min(chunk.len - done);
            if len > 0 {
                let skip = at - (self.ends[index] - self.pieces[index].len());
                // SAFETY: `done + len` is at most the chunk's length, and the buffer has CHUNK bytes.
                let to = unsafe { half.buffer.add(done) };
                // SAFETY: these `len` bytes of the buffer are this thread's alone until the chunk is delivered, and
                // nothing else goes to them.
                unsafe { self.bring(driver, index, skip, to, len, half.stream) }
                    .map_err(|error| FillError { piece: Some(index), error })?;
            }
            done += len;
            index += 1;
        }
        Ok(())
    }

    /// Brings `len` bytes of a piece, from `skip` on.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes, which nobody else uses until the stream has been waited for.
    unsafe fn bring(
        &self,
        driver: &Driver,
        index: usize,
        skip: u64,
        to: NonNull<u8>,
        len: usize,
        stream: u64,
    ) -> Result<()> {
        let own = &self.staging.device;
        match self.pieces[index] {
            Piece::Device { mapping, offset, .. } if Arc::ptr_eq(mapping.device(), own) => {
                let from = mapping.base() + offset + skip;
                // SAFETY: passed on from the caller; the mapping is borrowed until all threads have ended.
                unsafe { driver.copy_dtoh_async(to, from, len, stream) }.map_err(own.fail(Some(len as u64)))
            }
            Piece::Device { mapping, offset, .. } => {
                // SAFETY: passed on from the caller; page-locked memory comes initialised from the kernel.
                let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len) };
                mapping.copy_out(offset + skip, to)
            }
            Piece::Host { memory, offset, .. } => {
                // SAFETY: as above.
                let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len) };
                memory.read_at(offset + skip, to)
            }
            Piece::Bytes(bytes) => {
                let skip = to_usize(skip)?;
                // SAFETY: as above.
                let to = unsafe { std::slice::from_raw_parts_mut(to.as_ptr(), len) };
                to.copy_from_slice(&bytes[skip..skip + len]);
                Ok(())
            }
        }
    }

    /// Waits for a chunk's bytes and copies them to their place.
    fn deliver(&self, driver: &Driver, chunk: Chunk, half: &Half) -> Result<(), FillError> {
        driver.stream_synchronize(half.stream).map_err(|failure| FillError {
            piece: self.first_on_device(chunk),
            error: self.staging.device.fail(Some(chunk.len as u64))(failure),
        })?;
        // SAFETY: the chunk lies within the target, which `fill` has borrowed for all of `len`.
        let to = unsafe { self.target.0.add(chunk.start) };
        // SAFETY: the buffer holds the chunk since the wait above; its place in the target stays mapped while `fill`
        // borrows it, has a sealed size, and belongs to the thread that took this chunk. They do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(half.buffer.as_ptr(), to.as_ptr(), chunk.len) };
        Ok(())
    }
}
