//! Append-only, checksummed records in a memfd.
//!
//! The memfd is held by the keeper, so the log lives exactly as long as the data that it describes. A record is
//! written with one `pwrite` of length, checksum and payload: a store killed in the middle leaves a tail that fails its
//! checksum, and the next store cuts it off. Compaction writes a whole new log (the next generation) whose header is
//! marked complete last; of several logs the highest complete generation counts.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use prost::Message;
use rustix::fs::{MemfdFlags, SealFlags};

use super::record::Record;

const MAGIC: &[u8; 8] = b"GPVLOG\0\x01";
/// Magic, generation, completeness.
const HEADER_BYTES: usize = 24;
const HEADER: u64 = HEADER_BYTES as u64;
/// Length and checksum before each record.
const PREFIX_BYTES: usize = 8;
const PREFIX: u64 = PREFIX_BYTES as u64;
/// Larger records are never written; a length beyond it is a torn tail.
const MAX_RECORD: u64 = 4 * 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("the catalogue log cannot be read or written: {0}")]
    Io(#[from] io::Error),
    #[error("the descriptor that the keeper holds as {0} is not a catalogue log of this version")]
    Foreign(String),
    #[error("a catalogue record of {0} bytes is larger than the limit of {MAX_RECORD} bytes")]
    TooLarge(u64),
    #[error(
        "the catalogue record at offset {at} is of a kind that this store does not know: run the version that wrote it"
    )]
    Unknown { at: u64 },
    #[error("the catalogue record at offset {at} contradicts the records before it: {why}")]
    Contradiction { at: u64, why: String },
}

#[derive(Debug)]
pub struct Log {
    file: Arc<File>,
    generation: u64,
    end: u64,
}

impl Log {
    /// A new, empty log. It does not count before [`Log::complete`].
    pub fn create(generation: u64) -> Result<Self, LogError> {
        let fd = rustix::fs::memfd_create("gpuvol-log", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(io::Error::from)?;
        // Nobody can shrink it under a reader, whoever gets hold of the descriptor.
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK).map_err(io::Error::from)?;
        let file = File::from(fd);
        let mut header = [0; HEADER_BYTES];
        header[..8].copy_from_slice(MAGIC);
        header[8..16].copy_from_slice(&generation.to_le_bytes());
        file.write_all_at(&header, 0)?;
        Ok(Self { file: Arc::new(file), generation, end: HEADER })
    }

    /// Marks the log complete: from here on it is the one that counts.
    pub fn complete(&self) -> Result<(), LogError> {
        Ok(self.file.write_all_at(&1u64.to_le_bytes(), 16)?)
    }

    /// A log from the keeper; `None` where it was never completed.
    pub fn open(key: &str, fd: OwnedFd) -> Result<Option<Self>, LogError> {
        let file = File::from(fd);
        let mut header = [0; HEADER_BYTES];
        let whole = file.read_exact_at(&mut header, 0);
        if whole.is_err() || &header[..8] != MAGIC {
            return Err(LogError::Foreign(key.to_owned()));
        }
        let field = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&header[at..at + 8]);
            u64::from_le_bytes(number)
        };
        if field(16) != 1 {
            return Ok(None);
        }
        Ok(Some(Self { file: Arc::new(file), generation: field(8), end: HEADER }))
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The keeper's name for a log of this generation.
    pub fn key(generation: u64) -> String {
        format!("log/{generation:020}")
    }

    /// Bytes written.
    pub fn size(&self) -> u64 {
        self.end
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn append(&mut self, record: &Record) -> Result<(), LogError> {
        let len = record.encoded_len();
        let size = u32::try_from(len).ok().filter(|len| u64::from(*len) <= MAX_RECORD);
        let size = size.ok_or(LogError::TooLarge(len as u64))?;
        let mut bytes = vec![0; PREFIX_BYTES];
        record.encode_raw(&mut bytes);
        let sum = crc32fast::hash(&bytes[PREFIX_BYTES..]);
        bytes[..4].copy_from_slice(&size.to_le_bytes());
        bytes[4..8].copy_from_slice(&sum.to_le_bytes());
        self.file.write_all_at(&bytes, self.end)?;
        self.end += bytes.len() as u64;
        Ok(())
    }

    /// Takes back what was appended after the log was `len` bytes long.
    pub fn rewind(&mut self, len: u64) -> Result<(), LogError> {
        let end = std::mem::replace(&mut self.end, len);
        self.cut_tail(end)
    }

    /// Hands every whole record to `each`, oldest first, and places the end after the last one.
    pub fn replay(&mut self, mut each: impl FnMut(Record) -> Result<(), String>) -> Result<u64, LogError> {
        let total = self.file.metadata()?.len();
        let mut count = 0;
        self.end = HEADER;
        while let Some(payload) = self.record_at(self.end, total)? {
            // A whole record that says nothing known is no torn tail: it was written by a newer store.
            let record = Record::decode(payload.as_slice()).ok().filter(|r| r.fact.is_some());
            let record = record.ok_or(LogError::Unknown { at: self.end })?;
            each(record).map_err(|why| LogError::Contradiction { at: self.end, why })?;
            self.end += PREFIX + payload.len() as u64;
            count += 1;
        }
        self.cut_tail(total)?;
        Ok(count)
    }

    /// The payload at an offset, if it is whole.
    fn record_at(&self, at: u64, total: u64) -> Result<Option<Vec<u8>>, LogError> {
        if at + PREFIX > total {
            return Ok(None);
        }
        let mut prefix = [0; PREFIX_BYTES];
        self.file.read_exact_at(&mut prefix, at)?;
        let [l0, l1, l2, l3, s0, s1, s2, s3] = prefix;
        let len = u64::from(u32::from_le_bytes([l0, l1, l2, l3]));
        if len == 0 || len > MAX_RECORD || at + PREFIX + len > total {
            return Ok(None);
        }
        let mut payload = vec![0; usize::try_from(len).unwrap_or_default()];
        self.file.read_exact_at(&mut payload, at + PREFIX)?;
        let whole = crc32fast::hash(&payload) == u32::from_le_bytes([s0, s1, s2, s3]);
        Ok(whole.then_some(payload))
    }

    /// Zeroes what follows the last whole record, so that a shorter record written there is not followed by the rest
    /// of an older, torn one.
    fn cut_tail(&self, total: u64) -> Result<(), LogError> {
        let mut at = self.end;
        let zeros = [0; 4096];
        while at < total {
            let n = usize::try_from((total - at).min(zeros.len() as u64)).unwrap_or(zeros.len());
            self.file.write_all_at(&zeros[..n], at)?;
            at += n as u64;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::{Fact, VolumeExpanded};
    use super::*;

    fn record(n: u64) -> Record {
        let volume = "v".repeat(usize::try_from(n % 50).unwrap() + 1);
        Record { fact: Some(Fact::VolumeExpanded(VolumeExpanded { volume, capacity: n })) }
    }

    fn reopen(log: &Log) -> Option<Log> {
        Log::open("log/1", log.fd().try_clone_to_owned().unwrap()).unwrap()
    }

    fn read_all(log: &mut Log) -> Vec<Record> {
        let mut all = Vec::new();
        log.replay(|r| {
            all.push(r);
            Ok(())
        })
        .unwrap();
        all
    }

    #[test]
    fn what_was_appended_is_replayed_in_order() {
        let mut log = Log::create(3).unwrap();
        log.complete().unwrap();
        let written: Vec<_> = (0..500).map(record).collect();
        for r in &written {
            log.append(r).unwrap();
        }
        let mut again = reopen(&log).unwrap();
        assert_eq!((read_all(&mut again), again.generation()), (written, 3));
        assert_eq!(again.size(), log.size());
    }

    #[test]
    fn a_log_counts_only_when_complete() {
        let log = Log::create(1).unwrap();
        assert!(reopen(&log).is_none());
        log.complete().unwrap();
        assert!(reopen(&log).is_some());
    }

    #[test]
    fn a_torn_tail_is_cut_and_writing_goes_on() {
        for torn in 1..20 {
            let mut log = Log::create(1).unwrap();
            log.complete().unwrap();
            log.append(&record(1)).unwrap();
            let good = log.size();
            log.append(&record(49)).unwrap();
            // The last bytes of the second record never arrived.
            let end = log.size();
            log.file.write_all_at(&vec![0; torn], end - torn as u64).unwrap();
            let mut again = reopen(&log).unwrap();
            assert_eq!(read_all(&mut again), [record(1)]);
            assert_eq!(again.size(), good);
            again.append(&record(0)).unwrap();
            assert_eq!(read_all(&mut reopen(&again).unwrap()), [record(1), record(0)]);
        }
    }

    #[test]
    fn other_descriptors_are_not_logs() {
        let fd = rustix::fs::memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
        assert!(matches!(Log::open("log/9", fd), Err(LogError::Foreign(_))));
    }

    #[test]
    fn nobody_can_shrink_it() {
        let log = Log::create(1).unwrap();
        assert!(log.file.set_len(0).is_err());
    }
}
