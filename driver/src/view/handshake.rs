//! What is agreed with the kernel when a FUSE connection begins.
//!
//! The plugin agrees once, for every mounter that will ever serve the connection: a mounter may be replaced, and the
//! kernel asks only the first time.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use fuser::InitFlags;
use gpuvol_protocol::view::Agreed;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// `FUSE_INIT` of `linux/fuse.h`.
const INIT: u32 = 26;
const MAJOR: u32 = 7;
/// The newest protocol whose requests fuser 0.18 reads; features beyond it are told by flags alone.
const MINOR: u32 = 40;
/// `struct fuse_in_header`, `fuse_init_in`, `fuse_out_header` and `fuse_init_out`.
const IN_HEADER: usize = 40;
const INIT_IN: usize = 64;
const OUT_HEADER: usize = 16;
const INIT_OUT: usize = 64;
/// More than the least that the kernel reads into (`FUSE_MIN_READ_BUFFER`, 8 KiB).
const READ_BUFFER: usize = 64 * 1024;

const MAX_WRITE: u32 = 1024 * 1024;
/// The most pages of one request: `MAX_WRITE` of them.
const MAX_PAGES: u16 = 256;
const MIN_READAHEAD: u32 = 1024 * 1024;
/// Requests that the kernel sends without anybody waiting for them, at once: readahead.
const MAX_BACKGROUND: u16 = 64;
/// Our file system may be one layer over another: what passthrough needs.
const STACK_DEPTH: u32 = 1;

/// What we want, as far as the kernel has it. Not among it: the writeback cache (it excludes passthrough, and would
/// take quota errors from the writer), locks (the kernel keeps them, for each mount by itself), export over NFS.
fn wanted(passthrough: bool) -> InitFlags {
    let always = InitFlags::FUSE_ASYNC_READ
        | InitFlags::FUSE_BIG_WRITES
        | InitFlags::FUSE_ATOMIC_O_TRUNC
        | InitFlags::FUSE_MAX_PAGES
        | InitFlags::FUSE_DO_READDIRPLUS
        | InitFlags::FUSE_READDIRPLUS_AUTO
        | InitFlags::FUSE_PARALLEL_DIROPS
        | InitFlags::FUSE_HAS_RESEND
        | InitFlags::FUSE_ALLOW_IDMAP
        | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
        | InitFlags::FUSE_INIT_EXT;
    if passthrough { always | InitFlags::FUSE_PASSTHROUGH } else { always }
}

/// Answers the kernel's first request on a connection whose file system was just made with `default_permissions`
/// (without that option the kernel refuses idmapped mounts, and with them the whole answer). `passthrough`: reads may go
/// to the kernel's own files, for which a mounter needs `CAP_SYS_ADMIN` in the first user namespace.
pub fn answer(fuse: BorrowedFd<'_>, passthrough: bool, timeout: Duration) -> io::Result<Agreed> {
    let mut buffer = vec![0; READ_BUFFER];
    let got = read_request(fuse, &mut buffer, timeout)?;
    let request = Request::parse(&buffer[..got])?;
    let agreed = request.agree(wanted(passthrough));
    let reply = request.reply(&agreed);
    let sent = rustix::io::write(fuse, &reply)?;
    if sent == reply.len() { Ok(agreed) } else { Err(invalid("the kernel took a part of the answer to INIT")) }
}

fn read_request(fuse: BorrowedFd<'_>, buffer: &mut [u8], timeout: Duration) -> io::Result<usize> {
    let start = Instant::now();
    loop {
        let left = Timespec::try_from(timeout.saturating_sub(start.elapsed())).map_err(io::Error::other)?;
        let mut set = [PollFd::from_borrowed_fd(fuse.as_fd(), PollFlags::IN)];
        match rustix::event::poll(&mut set, Some(&left)) {
            Ok(0) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, format!("no INIT request within {timeout:?}")));
            }
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(e) => return Err(e.into()),
        }
        match rustix::io::read(fuse, &mut *buffer) {
            Ok(got) => return Ok(got),
            Err(Errno::INTR | Errno::AGAIN | Errno::NOENT) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The kernel's INIT request.
#[derive(Debug, PartialEq, Eq)]
struct Request {
    unique: u64,
    minor: u32,
    max_readahead: u32,
    flags: InitFlags,
}

impl Request {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        // Kernels before 7.36 end the request after its first flags.
        if bytes.len() < IN_HEADER + 4 * size_of::<u32>() {
            return Err(invalid("the first request is shorter than an INIT request"));
        }
        if word(bytes, 4) != INIT {
            return Err(invalid("the first request is not INIT: this connection was answered before"));
        }
        if word(bytes, IN_HEADER) != MAJOR {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel speaks another FUSE protocol than 7"));
        }
        let low = u64::from(word(bytes, IN_HEADER + 12));
        let extended = low & InitFlags::FUSE_INIT_EXT.bits() != 0 && bytes.len() >= IN_HEADER + 20;
        let high = if extended { u64::from(word(bytes, IN_HEADER + 16)) } else { 0 };
        Ok(Self {
            unique: u64::from(word(bytes, 8)) | u64::from(word(bytes, 12)) << 32,
            minor: word(bytes, IN_HEADER + 4),
            max_readahead: word(bytes, IN_HEADER + 8),
            flags: InitFlags::from_bits_retain(low | high << 32),
        })
    }

    fn agree(&self, wanted: InitFlags) -> Agreed {
        Agreed {
            minor: self.minor.min(MINOR),
            flags: (self.flags & wanted).bits(),
            max_readahead: self.max_readahead.max(MIN_READAHEAD),
            max_write: MAX_WRITE,
        }
    }

    fn reply(&self, agreed: &Agreed) -> Vec<u8> {
        let (low, high) = halves(agreed.flags);
        let stacked = agreed.flags & InitFlags::FUSE_PASSTHROUGH.bits() != 0;
        let mut reply = Vec::with_capacity(OUT_HEADER + INIT_OUT);
        put(&mut reply, &[80, 0]);
        reply.extend(self.unique.to_ne_bytes());
        put(&mut reply, &[MAJOR, agreed.minor, agreed.max_readahead, low]);
        // The queue counts as congested from three quarters, as in the kernel's own default.
        reply.extend(MAX_BACKGROUND.to_ne_bytes());
        reply.extend((MAX_BACKGROUND / 4 * 3).to_ne_bytes());
        // Times are exact to 1 ns.
        put(&mut reply, &[agreed.max_write, 1]);
        reply.extend(MAX_PAGES.to_ne_bytes());
        reply.extend(0u16.to_ne_bytes());
        put(&mut reply, &[high, if stacked { STACK_DEPTH } else { 0 }]);
        reply.resize(OUT_HEADER + INIT_OUT, 0);
        reply
    }
}

/// The INIT request that a kernel would have sent for what was agreed; a file system library takes it for the kernel's.
pub(super) fn replay(agreed: &Agreed) -> Vec<u8> {
    let (low, high) = halves(agreed.flags);
    let mut request = Vec::with_capacity(IN_HEADER + INIT_IN);
    put(&mut request, &[104, INIT]);
    // The request's id, which is answered to nobody.
    request.extend(1u64.to_ne_bytes());
    request.resize(IN_HEADER, 0);
    put(&mut request, &[MAJOR, agreed.minor, agreed.max_readahead, low, high]);
    request.resize(IN_HEADER + INIT_IN, 0);
    request
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_ne_bytes(word)
}

fn put(to: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| to.extend(word.to_ne_bytes()));
}

#[expect(clippy::cast_possible_truncation, reason = "the halves of a word")]
fn halves(flags: u64) -> (u32, u32) {
    (flags as u32, (flags >> 32) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(flags: InitFlags) -> Agreed {
        Agreed { minor: 45, flags: flags.bits(), max_readahead: 128 * 1024, max_write: 0 }
    }

    #[test]
    fn what_is_agreed_is_wanted_and_offered() {
        let kernel = InitFlags::FUSE_INIT_EXT
            | InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_WRITEBACK_CACHE
            | InitFlags::FUSE_POSIX_LOCKS
            | InitFlags::FUSE_PASSTHROUGH
            | InitFlags::FUSE_HAS_RESEND;
        let request = Request::parse(&replay(&offered(kernel))).unwrap();
        let agreed = request.agree(wanted(true));
        let flags = InitFlags::from_bits_retain(agreed.flags);
        let want = InitFlags::FUSE_INIT_EXT
            | InitFlags::FUSE_ASYNC_READ
            | InitFlags::FUSE_PASSTHROUGH
            | InitFlags::FUSE_HAS_RESEND;
        assert_eq!(flags, want);
        assert_eq!((agreed.minor, agreed.max_readahead, agreed.max_write), (40, 1 << 20, 1 << 20));
        let plain = request.agree(wanted(false));
        assert_eq!(InitFlags::from_bits_retain(plain.flags), want - InitFlags::FUSE_PASSTHROUGH);
    }

    #[test]
    fn the_answer_has_the_kernels_layout() {
        let request = Request::parse(&replay(&offered(InitFlags::all()))).unwrap();
        let reply = request.reply(&request.agree(wanted(true)));
        assert_eq!(reply.len(), OUT_HEADER + INIT_OUT);
        assert_eq!(word(&reply, 0) as usize, reply.len());
        assert_eq!(reply[OUT_HEADER + 16..OUT_HEADER + 20], [64, 0, 48, 0]);
        assert_eq!(word(&reply, OUT_HEADER + 20), MAX_WRITE);
        assert_eq!(word(&reply, OUT_HEADER + 36), STACK_DEPTH);
    }

    #[test]
    fn a_connection_that_was_answered_is_an_error() {
        let mut request = replay(&offered(InitFlags::all()));
        request[4] = 3;
        assert_eq!(Request::parse(&request).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(Request::parse(&request[..50]).is_err());
    }
}
