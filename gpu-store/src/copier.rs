//! The copier: a process of its own for the store's GPU copies, so that the store needs no CUDA context and a GPU's
//! fault ends nothing but a copy.
//!
//! [`Copier`] is the store's side. It starts `gpuvol-copier` when there is something to copy, gives it each object's
//! memory as descriptors together with a memfd, and waits until the object's bytes are in it. The process ends when
//! it had nothing to do for some seconds, so that the node's GPUs keep none of the 500 MiB that a context takes; it
//! ends too when the store does, because its standard input hangs up.
//!
//! | what goes wrong | what `copy` does |
//! |---|---|
//! | the process dies (`kill -9`, the OOM killer, a driver that aborts) | the copy is done again in a fresh process, once |
//! | the GPU fails a copy (Xid, illegal address, ECC) | the process is not asked again, and as above |
//! | both fail | an error that names the object and both reasons |
//! | the object's GPU is not there, memory cannot be imported, it is not the memory that it was said to be | an error at once |
//! | a copy takes longer than its bytes can explain | the process is killed, an error |
//! | the process ended by itself just then, or was killed for another copy | as if nothing had been |
//!
//! Callers may be many: [`COPIES`] copies are under way at a time, the others wait their turn. A copy that is done again
//! starts from the first byte; what an earlier process wrote is written over, after that process has let go.
//!
//! The parts: `wire` is what the two say to each other, `process` the store's hold on one process; `serve`, `copy`
//! and `failure` run in the copier.

mod copy;
mod failure;
mod process;
mod serve;
mod wire;

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use gpuvol_protocol::message::{Allocation, Segment};
use gpuvol_protocol::types::Bytes;
use gpuvol_protocol::{Code, DeviceUuid, Fault};

use process::{Outcome, Running};
pub use serve::{End, serve};
pub use wire::COPIES;

/// The copier's program, beside the store's own.
pub const PROGRAM: &str = "gpuvol-copier";

/// A patience that suits a node: a process and a context are there within 0.3 s on a quiet machine, but the driver
/// initialises GPUs one after another, and takes seconds for each where nothing keeps it loaded.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The slowest that a copy may be, in bytes a second. A single thread that makes the target's pages on a busy machine
/// does four times that.
const SLOWEST: u64 = 256 << 20;

/// Processes that one copy tries, those included that ended without having seen it.
const MOST_STARTS: usize = 5;

/// An object to copy, and where to.
#[derive(Debug, Clone)]
pub struct Job {
    /// The object's name, for people: `tables/a in volume v`. Errors begin with it.
    pub object: String,
    /// The object's memory, as its segments number it.
    pub allocations: Vec<Allocation>,
    /// One descriptor for each allocation.
    pub fds: Vec<Arc<OwnedFd>>,
    /// Laid end to end they are the object's bytes.
    pub segments: Vec<Segment>,
    /// A memfd of at least as many bytes whose size is sealed, such as [`HostMemory::create_bare`] makes: without
    /// pages, which the copier's threads make faster than one `fallocate`. The store seals its content afterwards.
    ///
    /// [`HostMemory::create_bare`]: gpuvol_memory::HostMemory::create_bare
    pub target: Arc<OwnedFd>,
}

impl Job {
    /// Bytes of the object.
    pub fn len(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.len))
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Where its memory is, for people.
    fn place(&self) -> String {
        let devices = self.allocations.iter().filter_map(|a| DeviceUuid::try_from(a.device.as_slice()).ok());
        let mut names: Vec<String> = devices.map(|uuid| uuid.to_string()).collect();
        names.dedup();
        if names.is_empty() { "the host's memory".to_owned() } else { names.join(" and ") }
    }
}

/// A copy that was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copied {
    pub bytes: u64,
    /// How long it took in the copier, the GPU's context included where it had to be made.
    pub time: Duration,
}

/// The store's copier. There is no process until there is something to copy.
#[derive(Debug)]
pub struct Copier {
    program: PathBuf,
    patience: Duration,
    running: Mutex<Option<Arc<Running>>>,
    /// Copies under way.
    copies: Mutex<usize>,
    left: Condvar,
}

impl Copier {
    /// `patience` is how long a copy may take beside the time for its bytes: the process's start, the GPU's context.
    pub fn new(program: PathBuf, patience: Duration) -> Self {
        Self { program, patience, running: Mutex::default(), copies: Mutex::default(), left: Condvar::new() }
    }

    /// The copier's program where it is installed: beside the program that asks.
    pub fn installed() -> std::io::Result<PathBuf> {
        Ok(std::env::current_exe()?.with_file_name(PROGRAM))
    }

    /// The copier's process id, while there is one.
    pub fn process(&self) -> Option<u32> {
        self.slot().as_ref().filter(|running| !running.has_ended()).map(|running| running.pid())
    }

    /// Fills the job's target with the object's bytes, from its start on. Blocks until it is done or has failed;
    /// the caller holds no lock. After an error the target holds anything.
    pub fn copy(&self, job: &Job) -> Result<Copied, Fault> {
        if job.is_empty() {
            return Ok(Copied { bytes: 0, time: Duration::ZERO });
        }
        let deadline = self.patience + Duration::from_secs(job.len().div_ceil(SLOWEST));
        let _turn = self.turn(job, deadline)?;
        let mut first: Option<Fault> = None;
        for _ in 0..MOST_STARTS {
            let running = self.running()?;
            let outcome = running.copy(job, self.patience, deadline);
            let fault = match outcome {
                Outcome::Copied(copied) => return Ok(copied),
                Outcome::Refused(fault) => return Err(fault),
                Outcome::Missed => {
                    self.retire(&running);
                    continue;
                }
                Outcome::Late(fault) => {
                    self.retire(&running);
                    return Err(fault);
                }
                Outcome::Broken(fault) => fault,
                Outcome::Died(how) => Fault::new(Code::Unavailable, how),
            };
            self.retire(&running);
            match first.take() {
                Some(before) => return Err(twice(job, &before, &fault)),
                None => {
                    tracing::warn!(object = job.object, %fault, "a copy failed; once more in a fresh copier");
                    first = Some(fault);
                }
            }
        }
        let message = format!("{}: the copier ended {MOST_STARTS} times before it could begin the copy", job.object);
        Err(Fault::new(Code::Unavailable, message))
    }

    /// The process there is, or a new one.
    fn running(&self) -> Result<Arc<Running>, Fault> {
        // Held while a process is started (a millisecond, or two): others would only start a second one.
        let mut slot = self.slot();
        match &*slot {
            Some(running) if !running.has_ended() => Ok(Arc::clone(running)),
            _ => {
                let running = Arc::new(Running::start(&self.program)?);
                *slot = Some(Arc::clone(&running));
                Ok(running)
            }
        }
    }

    /// Asks a process for nothing any more. It is killed when the last copy in it has ended.
    fn retire(&self, running: &Arc<Running>) {
        let mut slot = self.slot();
        let retired = slot.take_if(|current| Arc::ptr_eq(current, running));
        drop(slot);
        drop(retired);
    }

    fn slot(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self, job: &Job, deadline: Duration) -> Result<Turn<'_>, Fault> {
        let copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.left.wait_timeout_while(copies, deadline, |copies| *copies >= COPIES);
        let (mut copies, late) = waited.unwrap_or_else(PoisonError::into_inner);
        if late.timed_out() {
            let message = format!(
                "{}: its copy to host memory ({}) did not begin within {deadline:?}: {COPIES} others are under way",
                job.object,
                Bytes(job.len())
            );
            return Err(Fault::new(Code::DeadlineExceeded, message));
        }
        *copies += 1;
        Ok(Turn(self))
    }
}

fn twice(job: &Job, first: &Fault, second: &Fault) -> Fault {
    // The copier's own words begin with the object's name already.
    let prefix = format!("{}: ", job.object);
    let short = |fault: &Fault| fault.message.strip_prefix(&prefix).unwrap_or(&fault.message).to_owned();
    let message = format!(
        "{prefix}it cannot be copied from {} to host memory ({}): {}; once more in a fresh process: {}",
        job.place(),
        Bytes(job.len()),
        short(first),
        short(second)
    );
    Fault::new(second.code(), message)
}

/// One of the copies that may be under way.
#[derive(Debug)]
struct Turn<'a>(&'a Copier);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.copies.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.left.notify_one();
    }
}
