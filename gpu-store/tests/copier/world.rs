//! A copier with an environment of its own, and objects for it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gpuvol_memory::conformance::fake;
use gpuvol_memory::{Access, Allocation as _, CudaMemory, HostAllocation, HostMemory, Mapping as _, Memory as _};
use gpuvol_protocol::message::{Allocation, AllocationKind, Segment};
use gpuvol_protocol::{Code, DeviceUuid, Fault};
use gpuvol_store::copier::{Copied, Copier, Job};
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A copier, started through a script that notes each start.
pub struct World {
    directory: TempDir,
    pub copier: Copier,
}

impl World {
    /// `setup` is shell: it runs before the copier at each start, and `$N` in it is the start's number, from 1.
    pub fn new(setup: &str) -> Self {
        Self::with(setup, "--idle 600", PATIENCE)
    }

    pub fn with(setup: &str, flags: &str, patience: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let starts = directory.path().join("starts");
        std::fs::write(&starts, "").unwrap();
        let script = format!(
            "#!/bin/sh\necho $$ >>{starts}\nN=$(wc -l <{starts})\nexport GPUVOL_LIBCUDA={driver}\n{setup}\nexec {copier} --log error {flags}\n",
            starts = starts.display(),
            driver = fake::driver().display(),
            copier = env!("CARGO_BIN_EXE_gpuvol-copier"),
        );
        let (source, program) = (directory.path().join("source"), directory.path().join("copier"));
        std::fs::write(&source, script).unwrap();
        // By another process: a program that this one has open for writing, forks included, cannot be run.
        assert!(Command::new("install").args([&source, &program]).status().unwrap().success());
        Self { directory, copier: Copier::new(program, patience) }
    }

    /// Process ids of all copiers so far.
    pub fn starts(&self) -> Vec<u32> {
        let text = std::fs::read_to_string(self.directory.path().join("starts")).unwrap();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

/// This process's own view of the fake GPU.
pub fn gpu() -> CudaMemory {
    fake::use_driver();
    CudaMemory::open_ordinal(0).unwrap()
}

pub fn gpu_name() -> String {
    DeviceUuid(gpu().uuid()).to_string()
}

/// Bytes that differ at every offset, for every seed.
pub fn pattern(len: u64, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap() + 8);
    while (bytes.len() as u64) < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(usize::try_from(len).unwrap());
    bytes
}

/// An object under construction: its bytes are known.
#[derive(Default)]
pub struct Object {
    allocations: Vec<Allocation>,
    fds: Vec<Arc<OwnedFd>>,
    contents: Vec<Vec<u8>>,
    segments: Vec<Segment>,
    expected: Vec<u8>,
}

impl Object {
    /// One segment: all of an allocation on the GPU.
    pub fn on_gpu(len: u64) -> Self {
        let mut object = Self::default();
        let allocation = object.device(pattern(len, 1));
        object.segment(allocation, 0, len);
        object
    }

    pub fn device(&mut self, data: Vec<u8>) -> u32 {
        let memory = gpu();
        let allocation = memory.create(data.len() as u64).unwrap();
        allocation.map(Access::ReadWrite).unwrap().copy_in(0, &data).unwrap();
        let (len, device) = (allocation.size(), memory.uuid().to_vec());
        self.allocation(AllocationKind::CudaVmm, len, device, allocation.export().unwrap(), data)
    }

    pub fn host(&mut self, data: Vec<u8>) -> u32 {
        let memory = HostMemory.create(data.len() as u64).unwrap();
        memory.write_at(0, &data).unwrap();
        memory.seal().unwrap();
        self.allocation(AllocationKind::Memfd, data.len() as u64, Vec::new(), memory.into_fd(), data)
    }

    fn allocation(&mut self, kind: AllocationKind, len: u64, device: Vec<u8>, fd: OwnedFd, data: Vec<u8>) -> u32 {
        let id = self.allocations.len() as u64 + 40;
        self.allocations.push(Allocation { id, kind: kind.into(), len, device });
        self.fds.push(Arc::new(fd));
        self.contents.push(data);
        u32::try_from(self.contents.len() - 1).unwrap()
    }

    pub fn segment(&mut self, allocation: u32, offset: u64, len: u64) {
        self.segments.push(Segment { allocation, offset, len, inline: Vec::new() });
        let start = usize::try_from(offset).unwrap();
        let content = &self.contents[allocation as usize];
        self.expected.extend_from_slice(&content[start..][..usize::try_from(len).unwrap()]);
    }

    pub fn inline(&mut self, bytes: &[u8]) {
        let inline = bytes.to_vec();
        self.segments.push(Segment { allocation: u32::MAX, offset: 9, len: bytes.len() as u64, inline });
        self.expected.extend_from_slice(bytes);
    }

    /// No segments; the memory stays.
    pub fn clear(&mut self) {
        self.segments.clear();
        self.expected.clear();
    }

    pub fn len(&self) -> u64 {
        self.expected.len() as u64
    }

    pub fn target(&self) -> HostAllocation {
        HostMemory.create_bare(self.len().max(1)).unwrap()
    }

    pub fn job(&self, target: &HostAllocation) -> Job {
        Job {
            object: "t/a in volume v".to_owned(),
            allocations: self.allocations.clone(),
            fds: self.fds.clone(),
            segments: self.segments.clone(),
            target: Arc::new(target.export().unwrap()),
        }
    }

    /// Copies into fresh memory and compares; the memory can be sealed at once.
    pub fn copy(&self, copier: &Copier) -> Result<Copied, Fault> {
        let target = self.target();
        let copied = copier.copy(&self.job(&target))?;
        self.check(&target, copied);
        Ok(copied)
    }

    pub fn check(&self, target: &HostAllocation, copied: Copied) {
        assert_eq!(copied.bytes, self.len());
        let mut seen = vec![0; self.expected.len()];
        target.read_at(0, &mut seen).unwrap();
        assert!(seen == self.expected, "{} segments, {} bytes", self.segments.len(), self.len());
        target.seal().unwrap();
    }
}

/// What a fault says, with its code.
#[track_caller]
pub fn assert_fault(fault: &Fault, code: Code, parts: &[&str]) {
    assert_eq!(fault.code(), code, "{fault}");
    for part in parts {
        assert!(fault.message.contains(part), "no {part:?} in: {fault}");
    }
}

/// Waits until something holds; panics after a while.
#[track_caller]
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// There is a process of this number that is more than a zombie.
pub fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat"));
    stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| !rest.trim_start().starts_with('Z')))
}

/// There is a process of this number, be it a zombie.
pub fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// For threads that end with the test.
pub fn collect<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let results = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for index in 0..count {
            let (work, results) = (&work, &results);
            scope.spawn(move || {
                let result = work(index);
                results.lock().unwrap().push(result);
            });
        }
    });
    results.into_inner().unwrap()
}
