//! Where the pieces of an object go when its bodies live in GPU memory: one allocation for the bodies, everything else
//! inline or in a memfd.

use gpuvol_memory::{Allocation as _, CudaMapping, HostAllocation, HostMemory, Mapping as _, Memory as _};
use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::message::Segment;

use crate::error::{Error, Result};
use crate::layout::{ALIGNMENT, FilePlan, Piece};

/// Metadata beyond this many bytes goes into memory of its own instead of travelling inline.
const INLINE_META: u64 = 256 * 1024;
/// Zeros at the start of the allocation that padding is copied from; as many bytes as CUDA aligns allocations to, so that
/// the first body is aligned as well as if they were not there.
const ZEROS: [u8; 256] = [0; 256];
const ZEROS_LEN: u64 = ZEROS.len() as u64;

/// A plan whose bodies have places in one allocation, end to end with the padding between them.
pub(crate) struct PlacedPlan<'p, B> {
    /// Offset in the allocation, and what goes there.
    pub jobs: Vec<(u64, &'p B)>,
    /// Padding between bodies: offset in the allocation and length, fewer than [`ALIGNMENT`] bytes each.
    pads: Vec<(u64, u64)>,
    pub body_len: u64,
    meta: Vec<&'p [u8]>,
    pub meta_len: u64,
    /// The object's bytes in order; neighbours in the allocation are one run.
    runs: Vec<Run<'p>>,
}

enum Run<'p> {
    Body { offset: u64, len: u64 },
    Meta(&'p [u8]),
}

impl<'p, B> PlacedPlan<'p, B> {
    pub fn new(plan: &'p FilePlan<B>) -> Self {
        let (jobs, pads, meta, runs) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let is_pad = |at: usize| {
            let body = |at: usize| matches!(plan.pieces.get(at), Some(Piece::Body { .. }));
            let zeros = matches!(&plan.pieces[at], Piece::Meta { bytes, .. } if is_padding(bytes));
            zeros && at > 0 && body(at - 1) && body(at + 1)
        };
        let padded = (0..plan.pieces.len()).any(is_pad);
        let mut placed = Self { jobs, pads, body_len: if padded { ZEROS_LEN } else { 0 }, meta, meta_len: 0, runs };
        for (at, piece) in plan.pieces.iter().enumerate() {
            match piece {
                Piece::Meta { bytes, .. } if is_pad(at) => {
                    let len = bytes.len() as u64;
                    placed.pads.push((placed.body_len, len));
                    placed.extend_body(placed.body_len, len);
                }
                Piece::Meta { bytes, .. } => {
                    placed.meta.push(bytes);
                    placed.meta_len += bytes.len() as u64;
                    placed.runs.push(Run::Meta(bytes));
                }
                Piece::Body { source, len, .. } => {
                    let offset = placed.body_len.next_multiple_of(ALIGNMENT);
                    placed.jobs.push((offset, source));
                    placed.extend_body(offset, *len);
                }
            }
        }
        placed
    }

    fn extend_body(&mut self, offset: u64, len: u64) {
        self.body_len = offset + len;
        match self.runs.last_mut() {
            Some(Run::Body { offset: start, len: run }) if *start + *run == offset => *run += len,
            _ => self.runs.push(Run::Body { offset, len }),
        }
    }

    /// Bytes of device memory.
    pub fn device_len(&self) -> u64 {
        self.body_len
    }

    /// Writes the zeros that padding is copied from. Before anything is enqueued: it waits for the default stream.
    pub fn write_zeros(&self, target: &mut CudaMapping) -> gpuvol_memory::Result<()> {
        if self.pads.is_empty() {
            return Ok(());
        }
        target.copy_in(0, &ZEROS)?;
        // A small copy from the host may return before it has arrived, and another stream would not wait for it.
        target.synchronize(None)
    }

    /// Enqueues zeros for all padding, so that an object's bytes depend on nothing but its content.
    pub fn copy_zeros(&self, target: &mut CudaMapping, stream: Option<u64>) -> gpuvol_memory::Result<()> {
        let source = target.address();
        self.pads.iter().try_for_each(|(offset, len)| target.copy_from_device(*offset, source, *len, stream))
    }

    /// Memory for metadata that is too large to travel inline.
    pub fn meta_memory(&self, path: &ObjectPath) -> Result<Option<HostAllocation>> {
        if self.meta_len <= INLINE_META {
            return Ok(None);
        }
        let page = HostMemory.granularity();
        let memory = HostMemory.create(self.meta_len.next_multiple_of(page)).map_err(Error::memory(path))?;
        memory.write_at(0, &self.meta.concat()).map_err(Error::memory(path))?;
        // To the end: pages that nobody has written count as holes.
        let rest = memory.len() - self.meta_len;
        let zeros = vec![0; usize::try_from(rest).unwrap_or_default()];
        memory.write_at(self.meta_len, &zeros).map_err(Error::memory(path))?;
        memory.seal().map_err(Error::memory(path))?;
        Ok(Some(memory))
    }

    pub fn segments(&self, meta_in_memory: bool) -> Vec<Segment> {
        let mut meta_at = 0;
        let segment = |run: &Run<'_>| match run {
            Run::Body { offset, len } => Segment { allocation: 0, offset: *offset, len: *len, inline: Vec::new() },
            Run::Meta(bytes) => {
                let len = bytes.len() as u64;
                let offset = meta_at;
                meta_at += len;
                if meta_in_memory {
                    Segment { allocation: 1, offset, len, inline: Vec::new() }
                } else {
                    Segment { allocation: 0, offset: 0, len, inline: bytes.to_vec() }
                }
            }
        };
        self.runs.iter().map(segment).collect()
    }
}

fn is_padding(bytes: &[u8]) -> bool {
    (bytes.len() as u64) < ALIGNMENT && bytes.iter().all(|b| *b == 0)
}
