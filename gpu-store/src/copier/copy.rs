//! One copy, in the copier's process: sources opened, the target filled, and what failed said by name.
//!
//! Memory that clients made is read with `pread` or by the GPU, never mapped: its pages could be taken away under a
//! mapping. Only the target, which the store made and whose size is sealed, is mapped.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpuvol_memory::cuda::{Piece, Staging};
use gpuvol_memory::{
    Access, Allocation as _, CudaMapping, CudaMemory, HostAllocation, HostMemory, Memory as _, MemoryError,
};
use gpuvol_protocol::message::{Allocation, AllocationKind, Segment};
use gpuvol_protocol::{Code, DeviceUuid};

use super::failure::{Failure, name};
use super::wire::{Copy, Ended};

/// What a host-to-host copy has in hand at a time, in bytes: within the cache of a core.
const STEP: usize = 1 << 20;

/// The GPUs that this process has opened, each with its buffers. A GPU stays open until the process ends.
#[derive(Debug, Default)]
pub struct Gpus(Mutex<BTreeMap<[u8; 16], Arc<Gpu>>>);

#[derive(Debug)]
struct Gpu {
    memory: CudaMemory,
    staging: Staging,
}

impl Gpus {
    fn open(&self, uuid: [u8; 16]) -> Result<Arc<Gpu>, MemoryError> {
        if let Some(gpu) = self.table().get(&uuid) {
            return Ok(Arc::clone(gpu));
        }
        // Outside the lock: the context takes 100 ms and more. Two that come here at once share it, by the driver's
        // own count.
        let memory = CudaMemory::open(uuid)?;
        let gpu = Arc::new(Gpu { staging: Staging::new(&memory), memory });
        Ok(Arc::clone(self.table().entry(uuid).or_insert(gpu)))
    }

    fn table(&self) -> MutexGuard<'_, BTreeMap<[u8; 16], Arc<Gpu>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies, and says how it went.
pub fn copy(gpus: &Gpus, copy: &Copy, fds: Vec<OwnedFd>, target: OwnedFd) -> Ended {
    match run(gpus, copy, fds, target) {
        Ok(bytes) => Ended { bytes, ..Ended::default() },
        Err(failure) => failure.ended(&copy.object),
    }
}

fn run(gpus: &Gpus, copy: &Copy, fds: Vec<OwnedFd>, target: OwnedFd) -> Result<u64, Failure> {
    let len = check(copy, fds.len())?;
    if len == 0 {
        return Ok(0);
    }
    let sources = Sources::open(gpus, copy, fds)?;
    let target = HostMemory.import(target, len).map_err(|e| Failure::of("the memory for the replica", &e))?;
    match &sources.gpu {
        Some(gpu) => {
            let mut mapping =
                target.map(Access::ReadWrite).map_err(|e| Failure::of("the memory for the replica", &e))?;
            let pieces: Vec<Piece<'_>> = copy.segments.iter().map(|segment| sources.piece(segment)).collect();
            gpu.staging
                .fill(&mut mapping, &pieces)
                .map_err(|failed| Failure::in_copy(copy, failed.piece, &failed.error))
        }
        None => write_all(copy, &sources, &target),
    }
}

/// The object's length, once its description has been found to be sound.
fn check(copy: &Copy, fds: usize) -> Result<u64, Failure> {
    let wrong = |message: String| Failure::new(Code::InvalidArgument, message);
    if fds != copy.allocations.len() {
        return Err(wrong(format!("{fds} descriptors came for {} allocations", copy.allocations.len())));
    }
    let mut total = 0_u64;
    for (index, segment) in copy.segments.iter().enumerate() {
        let inside = match copy.allocations.get(segment.allocation as usize) {
            _ if !segment.inline.is_empty() => segment.len == segment.inline.len() as u64,
            Some(allocation) => segment.offset.checked_add(segment.len).is_some_and(|end| end <= allocation.len),
            None => segment.len == 0,
        };
        total = match total.checked_add(segment.len) {
            Some(total) if inside => total,
            _ => {
                let Segment { allocation, offset, len, .. } = segment;
                return Err(wrong(format!(
                    "segment {index} ({len} bytes at {offset} of allocation {allocation}) is not inside its memory"
                )));
            }
        };
    }
    Ok(total)
}

/// One source of bytes, opened.
enum Source {
    Host(HostAllocation),
    Device(CudaMapping),
    /// No segment has bytes in it.
    Unused,
}

struct Sources {
    all: Vec<Source>,
    /// The GPU that device memory is on; the first one, should it be on several.
    gpu: Option<Arc<Gpu>>,
}

impl Sources {
    fn open(gpus: &Gpus, copy: &Copy, fds: Vec<OwnedFd>) -> Result<Self, Failure> {
        let mut used = vec![false; copy.allocations.len()];
        for segment in copy.segments.iter().filter(|segment| segment.inline.is_empty() && segment.len > 0) {
            used[segment.allocation as usize] = true;
        }
        let mut sources = Self { all: Vec::with_capacity(fds.len()), gpu: None };
        for ((allocation, fd), used) in copy.allocations.iter().zip(fds).zip(used) {
            let opened = match used {
                true => sources.open_one(gpus, allocation, fd)?,
                false => Source::Unused,
            };
            sources.all.push(opened);
        }
        Ok(sources)
    }

    fn open_one(&mut self, gpus: &Gpus, allocation: &Allocation, fd: OwnedFd) -> Result<Source, Failure> {
        let fail = |error| Failure::of(&name(allocation), &error);
        if allocation.kind() == AllocationKind::Memfd {
            return Ok(Source::Host(HostMemory.import(fd, allocation.len).map_err(fail)?));
        }
        let uuid = DeviceUuid::try_from(allocation.device.as_slice())
            .map_err(|error| Failure::new(Code::InvalidArgument, error.to_string()))?;
        let gpu = gpus.open(uuid.0).map_err(fail)?;
        let mapping = gpu.memory.import(fd, allocation.len).and_then(|a| a.map(Access::ReadOnly)).map_err(fail)?;
        self.gpu.get_or_insert(gpu);
        Ok(Source::Device(mapping))
    }

    fn piece<'a>(&'a self, segment: &'a Segment) -> Piece<'a> {
        let (offset, len) = (segment.offset, segment.len);
        match self.all.get(segment.allocation as usize) {
            _ if !segment.inline.is_empty() => Piece::Bytes(&segment.inline),
            Some(Source::Host(memory)) => Piece::Host { memory, offset, len },
            Some(Source::Device(mapping)) => Piece::Device { mapping, offset, len },
            // `check` and `open` let only segments without bytes come here.
            Some(Source::Unused) | None => Piece::Bytes(&[]),
        }
    }
}

/// An object without a byte on a GPU.
fn write_all(copy: &Copy, sources: &Sources, target: &HostAllocation) -> Result<u64, Failure> {
    let mut buffer = vec![0; STEP];
    let mut at = 0;
    for (index, segment) in copy.segments.iter().enumerate() {
        let fail = |error| Failure::in_copy(copy, Some(index), &error);
        match sources.piece(segment) {
            Piece::Bytes(bytes) => target.write_at(at, bytes).map_err(fail)?,
            Piece::Host { memory, offset, len } => {
                let mut done = 0;
                while done < len {
                    let now = usize::try_from(len - done).map_or(STEP, |left| left.min(STEP));
                    memory.read_at(offset + done, &mut buffer[..now]).map_err(fail)?;
                    target.write_at(at + done, &buffer[..now]).map_err(fail)?;
                    done += now as u64;
                }
            }
            Piece::Device { .. } => return Err(Failure::new(Code::Internal, "device memory without a GPU")),
        }
        at += segment.len;
    }
    Ok(at)
}
