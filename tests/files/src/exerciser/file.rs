//! The file and what it must contain.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::fs::{self, Advice, FallocateFlags, Mode, OFlags};
use rustix::io;

use super::plan::{Act, Plan};
use crate::content::{content, difference};
use crate::mapping::Mapping;
use crate::progress::Progress;
use crate::rng::Rng;
use crate::size::{bytes, index, of_stat};

/// Steps that a report shows.
const REMEMBERED: usize = 40;
/// What O_DIRECT wants memory to be aligned to.
const ALIGNMENT: usize = 4096;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub struct Exerciser {
    path: PathBuf,
    plan: Plan,
    file: OwnedFd,
    expected: Vec<u8>,
    last: VecDeque<String>,
    writes: u64,
}

/// Runs the plan on a new file at `path` and takes it away; in words where something is wrong.
pub fn run(path: PathBuf, plan: Plan, progress: &mut Progress) -> Result<(), String> {
    progress.at("creating the file");
    let file = open(&path, plan, OFlags::CREATE | OFlags::EXCL).map_err(|errno| format!("create: {errno:?}"))?;
    let mut exerciser = Exerciser { path, plan, file, expected: Vec::new(), last: VecDeque::new(), writes: 0 };
    let mut rng = Rng::new(plan.seed);
    for number in 0..plan.operations {
        let act = plan.act(&mut rng, bytes(exerciser.expected.len()));
        progress.at(format_args!("operation {number}: {act:?}"));
        exerciser.remember(format!("{number}: {act:?}, {} bytes before", exerciser.expected.len()));
        exerciser.act(act).and_then(|()| exerciser.check_size()).map_err(|why| exerciser.report(&why))?;
    }
    progress.at("verifying at the end");
    exerciser.act(Act::Reopen).and_then(|()| exerciser.act(Act::VerifyAll)).map_err(|why| exerciser.report(&why))?;
    fs::unlink(&exerciser.path).map_err(|errno| format!("unlink: {errno:?}"))
}

fn open(path: &std::path::Path, plan: Plan, more: OFlags) -> io::Result<OwnedFd> {
    let direct = if plan.direct.is_some() { OFlags::DIRECT } else { OFlags::empty() };
    fs::open(path, OFlags::RDWR | OFlags::CLOEXEC | direct | more, Mode::from_raw_mode(0o644))
}

impl Exerciser {
    fn act(&mut self, act: Act) -> Result<(), String> {
        let said = |what: &'static str| move |errno: io::Errno| format!("{what}: {errno:?}");
        match act {
            Act::Read { offset, length } => self.verify(offset, length),
            Act::Write { offset, length } => self.write(offset, length),
            Act::Append { length } => {
                let end = bytes(self.expected.len());
                self.write(self.plan.direct.map_or(end, |block| end / block * block), length)
            }
            Act::Truncate { size } => {
                fs::ftruncate(&self.file, size).map_err(said("ftruncate"))?;
                self.expected.resize(index(size), 0);
                Ok(())
            }
            Act::MapRead { offset, length } => {
                let (map, start, range) = self.map(offset, length, false)?;
                let got = map.read(start, range.len());
                difference(&self.expected[range], &got).map_or(Ok(()), |why| Err(format!("mapping at {offset}: {why}")))
            }
            Act::MapWrite { offset, length, sync } => {
                let (mut map, start, range) = self.map(offset, length, true)?;
                let data = self.fresh(range.len());
                map.write(start, &data);
                self.expected[range].copy_from_slice(&data);
                if sync { map.sync().map_err(said("msync")) } else { Ok(()) }
            }
            Act::Punch { offset, length } => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fs::fallocate(&self.file, how, offset, length).map_err(said("punching a hole"))?;
                let range = self.inside(offset, length);
                self.expected[range].fill(0);
                Ok(())
            }
            Act::Allocate { offset, length, keep_size } => {
                let how = if keep_size { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                fs::fallocate(&self.file, how, offset, length).map_err(said("fallocate"))?;
                let end = index(offset + length);
                if !keep_size && end > self.expected.len() {
                    self.expected.resize(end, 0);
                }
                Ok(())
            }
            Act::Copy { from, to, length } => self.copy(from, to, length),
            Act::Sync => fs::fsync(&self.file).map_err(said("fsync")),
            Act::Forget => {
                fs::fdatasync(&self.file).map_err(said("fdatasync"))?;
                fs::fadvise(&self.file, 0, None, Advice::DontNeed).map_err(said("fadvise"))
            }
            Act::Reopen => {
                // The old one is closed first: the file is whole and nobody writes it.
                self.file =
                    fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(said("open"))?;
                self.file = open(&self.path, self.plan, OFlags::empty()).map_err(said("open"))?;
                self.verify(0, bytes(self.expected.len()))
            }
            Act::Beside { write } => self.beside(write),
            Act::VerifyAll => self.verify(0, bytes(self.expected.len())),
        }
    }

    fn write(&mut self, offset: u64, length: u64) -> Result<(), String> {
        let data = self.fresh(index(length));
        let (buffer, start) = aligned(&data);
        let mut done = 0;
        while done < data.len() {
            let at = offset + bytes(done);
            match io::pwrite(&self.file, &buffer[start + done..start + data.len()], at) {
                Ok(0) => return Err(format!("pwrite at {at}: nothing was written")),
                Ok(more) => done += more,
                Err(errno) => return Err(format!("pwrite at {at}: {errno:?}")),
            }
        }
        if !data.is_empty() {
            let end = index(offset) + data.len();
            if end > self.expected.len() {
                self.expected.resize(end, 0);
            }
            self.expected[index(offset)..end].copy_from_slice(&data);
        }
        Ok(())
    }

    fn verify(&self, offset: u64, length: u64) -> Result<(), String> {
        verify(&self.file, offset, length, &self.expected)
    }

    fn copy(&mut self, from: u64, to: u64, length: u64) -> Result<(), String> {
        let range = self.inside(from, length);
        // Ranges that overlap are refused.
        let apart = from.abs_diff(to);
        let length = bytes(range.len()).min(apart);
        let (mut from_now, mut to_now, mut left) = (from, to, length);
        while left > 0 {
            let moved =
                fs::copy_file_range(&self.file, Some(&mut from_now), &self.file, Some(&mut to_now), index(left))
                    .map_err(|errno| format!("copy_file_range: {errno:?}"))?;
            if moved == 0 {
                return Err(format!("copy_file_range: nothing copied with {left} left"));
            }
            left -= bytes(moved);
        }
        let data = self.expected[range.start..range.start + index(length)].to_vec();
        if !data.is_empty() {
            let end = index(to) + data.len();
            if end > self.expected.len() {
                self.expected.resize(end, 0);
            }
            self.expected[index(to)..end].copy_from_slice(&data);
        }
        Ok(())
    }

    /// While this one is open for writing, another must see the same file.
    fn beside(&mut self, write: bool) -> Result<(), String> {
        let said = |what: &'static str| move |errno: io::Errno| format!("{what} of another handle: {errno:?}");
        let how = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let other = fs::open(&self.path, how | OFlags::CLOEXEC, Mode::empty()).map_err(said("open"))?;
        verify(&other, 0, bytes(self.expected.len()), &self.expected)
            .map_err(|why| format!("another handle: {why}"))?;
        if write && !self.expected.is_empty() {
            let at = self.expected.len() / 2;
            let data = self.fresh(1);
            io::pwrite(&other, &data, bytes(at)).map_err(said("pwrite"))?;
            self.expected[at] = data[0];
        }
        Ok(())
    }

    fn map(&self, offset: u64, length: u64, writable: bool) -> Result<(Mapping, u64, std::ops::Range<usize>), String> {
        let range = self.inside(offset, length);
        let start = bytes(range.start) / PAGE * PAGE;
        let whole = (range.end - index(start)).max(1);
        let map = Mapping::new(&self.file, start, whole, writable).map_err(|errno| format!("mmap: {errno:?}"))?;
        Ok((map, bytes(range.start) - start, range))
    }

    /// The part of a range that the file has.
    fn inside(&self, offset: u64, length: u64) -> std::ops::Range<usize> {
        let start = index(offset).min(self.expected.len());
        start..index(offset + length).min(self.expected.len()).max(start)
    }

    fn fresh(&mut self, length: usize) -> Vec<u8> {
        self.writes += 1;
        content(self.plan.seed ^ (self.writes << 20), length)
    }

    fn check_size(&self) -> Result<(), String> {
        let size = of_stat(fs::fstat(&self.file).map_err(|errno| format!("fstat: {errno:?}"))?.st_size);
        let expected = bytes(self.expected.len());
        if size == expected { Ok(()) } else { Err(format!("size: expected {expected}, got {size}")) }
    }

    fn remember(&mut self, step: String) {
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back(step);
    }

    fn report(&self, why: &str) -> String {
        let steps: Vec<String> = self.last.iter().cloned().collect();
        format!("seed {}: {why}\nthe last operations:\n  {}", self.plan.seed, steps.join("\n  "))
    }
}

/// A read at `offset` gives what is expected there, and no more than the file has.
fn verify(file: &OwnedFd, offset: u64, length: u64, expected: &[u8]) -> Result<(), String> {
    let start = index(offset).min(expected.len());
    let expected = &expected[start..index(offset + length).min(expected.len()).max(start)];
    let (mut buffer, begin) = aligned(&vec![0; index(length)]);
    let mut done = 0;
    while done < index(length) {
        let at = offset + bytes(done);
        match io::pread(file, &mut buffer[begin + done..begin + index(length)], at) {
            Ok(0) => break,
            Ok(more) => done += more,
            Err(errno) => return Err(format!("pread at {at}: {errno:?}")),
        }
    }
    let got = &buffer[begin..begin + done];
    difference(expected, got).map_or(Ok(()), |why| Err(format!("pread of {length} at {offset}: {why}")))
}

/// A copy of the bytes in memory that O_DIRECT takes, and where in it they begin.
fn aligned(data: &[u8]) -> (Vec<u8>, usize) {
    let mut buffer = vec![0; data.len() + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT);
    buffer[start..start + data.len()].copy_from_slice(data);
    (buffer, start)
}
