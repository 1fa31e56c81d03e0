//! Logs that many processes append to, each record in one write: who, which, how long, a checksum, and filling.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use super::stale;
use crate::rng::Rng;
use crate::size::index;

/// A log that is longer is renamed, and a new one begun.
const ROTATE_AT: u64 = 512 << 10;

/// Of each process that appended, the numbers of its records in the order of one file.
pub type Numbers = BTreeMap<u64, Vec<u64>>;

#[derive(Debug)]
pub struct Appender {
    directory: PathBuf,
    log: PathBuf,
    process: u64,
    next: u64,
    /// Keeps it open; else it is opened for each record.
    kept: Option<File>,
    rotations: u64,
}

impl Appender {
    pub fn new(within: &Path, name: &str, process: u64) -> Self {
        let directory = within.join("logs");
        let log = directory.join(name);
        Self { directory, log, process, next: 0, kept: None, rotations: 0 }
    }

    pub fn records(&self) -> u64 {
        self.next
    }

    pub fn append(&mut self, rng: &mut Rng, keep_open: bool) -> Result<(), String> {
        let failed = |doing: &str, error: std::io::Error| format!("{doing} {}: {error}", self.log.display());
        let record = record(self.process, self.next, rng);
        let open = || stale::through(|| File::options().append(true).create(true).open(&self.log));
        let mut file = match self.kept.take() {
            Some(file) => file,
            None => open().map_err(|error| failed("open for append", error))?,
        };
        let written = file.write(&record).map_err(|error| failed("append to", error))?;
        if written != record.len() {
            return Err(format!("append to {}: {written} of {} bytes in one write", self.log.display(), record.len()));
        }
        self.next += 1;
        // A kept one is opened again at times, so that a renamed log is left.
        if keep_open && !self.next.is_multiple_of(50) {
            self.kept = Some(file);
            return Ok(());
        }
        let size = file.metadata().map_err(|error| failed("fstat", error))?.len();
        drop(file);
        if size > ROTATE_AT { self.rotate() } else { Ok(()) }
    }

    /// Others may do it at the same time, or append to it still: both leave every record in one of the files.
    fn rotate(&mut self) -> Result<(), String> {
        self.rotations += 1;
        let name =
            format!("{}.{}.{}", self.log.file_name().unwrap_or_default().display(), self.process, self.rotations);
        match std::fs::rename(&self.log, self.directory.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(format!("renaming {}: {error}", self.log.display()))
            }
            _ => Ok(()),
        }
    }
}

pub fn prepare(within: &Path) -> Result<(), String> {
    std::fs::create_dir_all(within.join("logs")).map_err(|error| format!("mkdir logs: {error}"))
}

/// All logs, renamed ones too.
pub fn all(within: &Path) -> Result<Vec<PathBuf>, String> {
    let directory = within.join("logs");
    let failed = |error| format!("listing {}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(&directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    Ok(paths)
}

/// Reads a log: each record right, each process's in order. Only a log that is growing may end in half a record, as a
/// reader may see half of a write.
pub fn read(path: &Path, growing: bool) -> Result<Numbers, String> {
    let bytes = match stale::through(|| std::fs::read(path)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Numbers::new()),
        other => other.map_err(|error| format!("reading {}: {error}", path.display()))?,
    };
    parse(&bytes, growing).map_err(|why| format!("{}: {why}", path.display()))
}

fn record(process: u64, number: u64, rng: &mut Rng) -> Vec<u8> {
    let filling: String = (0..rng.between(4, 120)).map(|_| format!("{:016x}", rng.next())).collect();
    let mut line = format!("{process} {number} {filling}");
    let checksum = crc32fast::hash(line.as_bytes());
    line += &format!(" {checksum:08x}\n");
    line.into_bytes()
}

fn parse(bytes: &[u8], growing: bool) -> Result<Numbers, String> {
    let mut numbers = Numbers::new();
    let mut at = 0;
    for line in bytes.split_inclusive(|&byte| byte == b'\n') {
        if growing && line.last() != Some(&b'\n') {
            break;
        }
        let wrong = |what: &str| {
            let end = line.len().min(60);
            format!("{what} at {at} of {}: {}", bytes.len(), line[..end].escape_ascii())
        };
        let text = std::str::from_utf8(line).map_err(|_| wrong("not a record"))?;
        let text = text.strip_suffix('\n').ok_or_else(|| wrong("half a record"))?;
        let (content, checksum) = text.rsplit_once(' ').ok_or_else(|| wrong("not a record"))?;
        if u32::from_str_radix(checksum, 16) != Ok(crc32fast::hash(content.as_bytes())) {
            return Err(wrong("a mixed or torn record"));
        }
        let mut fields = content.split(' ').map(str::parse::<u64>);
        let (Some(Ok(process)), Some(Ok(number))) = (fields.next(), fields.next()) else {
            return Err(wrong("not a record"));
        };
        let of_process = numbers.entry(process).or_default();
        if of_process.last().is_some_and(|&last| last >= number) {
            return Err(wrong("a record that comes twice or out of order"));
        }
        of_process.push(number);
        at += line.len();
    }
    Ok(numbers)
}

/// What all files have of each process, against how many records each wrote.
pub fn complete(found: &[Numbers], written: &BTreeMap<u64, u64>) -> Result<(), String> {
    for (process, &count) in written {
        let mut seen = vec![0u8; index(count)];
        for number in found.iter().filter_map(|numbers| numbers.get(process)).flatten() {
            let slot = seen.get_mut(index(*number)).ok_or(format!("process {process}: record {number} of {count}"))?;
            *slot = slot.saturating_add(1);
        }
        let lost: Vec<usize> = (0..seen.len()).filter(|&n| seen[n] == 0).collect();
        let twice = seen.iter().filter(|&&times| times > 1).count();
        if !lost.is_empty() || twice > 0 {
            let first = &lost[..lost.len().min(10)];
            return Err(format!(
                "process {process}: {} of {count} records lost (first {first:?}), {twice} twice",
                lost.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_lost_torn_and_doubled_records() {
        let mut rng = Rng::new(1);
        let records: Vec<Vec<u8>> = (0..3).map(|number| record(7, number, &mut rng)).collect();
        let whole = records.concat();
        let numbers = parse(&whole, false).unwrap();
        let written = BTreeMap::from([(7, 3)]);
        complete(std::slice::from_ref(&numbers), &written).unwrap();
        assert!(complete(&[numbers.clone(), numbers], &written).unwrap_err().contains("3 twice"));
        let lost = parse(&[&records[0][..], &records[2]].concat(), false).unwrap();
        assert!(complete(&[lost], &written).unwrap_err().contains("first [1]"));
        parse(&whole[..whole.len() - 5], true).unwrap();
        assert!(parse(&whole[..whole.len() - 5], false).unwrap_err().contains("half a record"));
        let mut torn = whole.clone();
        torn[20] ^= 1;
        assert!(parse(&torn, true).unwrap_err().contains("mixed or torn"));
        assert!(parse(&[&records[1][..], &records[0]].concat(), true).unwrap_err().contains("out of order"));
    }
}
