//! A mounter that serves one mount with nothing in it but a socket, and files that stay empty.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// What it does with requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Script {
    #[default]
    Serve = 0,
    /// Reads them and never answers.
    Silent = 1,
    /// Refuses to make the socket.
    NoSocket = 2,
}

/// Dropped, its descriptor is closed.
pub struct FakeMounter {
    script: Arc<AtomicU8>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl FakeMounter {
    pub fn start(fuse: OwnedFd, script: Script) -> Self {
        let (script, stop) = (Arc::new(AtomicU8::new(script as u8)), Arc::new(AtomicBool::new(false)));
        let (following, stopping) = (Arc::clone(&script), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let mut files = BTreeMap::new();
            let mut buffer = vec![0; 1 << 21];
            while !stopping.load(Ordering::Relaxed) {
                let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
                let mut set = [PollFd::from_borrowed_fd(fuse.as_fd(), PollFlags::IN)];
                match poll(&mut set, Some(&timeout)) {
                    Ok(0) => continue,
                    Ok(_) => {}
                    Err(_) => return,
                }
                // An error is a connection that has ended.
                let Ok(got) = rustix::io::read(&fuse, &mut buffer) else { return };
                let script = following.load(Ordering::Relaxed);
                if script == Script::Silent as u8 {
                    continue;
                }
                if let Some(reply) = answer(&buffer[..got], &mut files, script == Script::NoSocket as u8) {
                    // Whoever asked may have gone.
                    let _ = rustix::io::write(&fuse, &reply);
                }
            }
        });
        Self { script, stop, thread: Some(thread) }
    }

    pub fn follow(&self, script: Script) {
        self.script.store(script as u8, Ordering::Relaxed);
    }
}

impl Drop for FakeMounter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Names in the root directory, with their nodes and modes.
type Files = BTreeMap<Vec<u8>, (u64, u32)>;

const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const MKNOD: u32 = 8;
const OPEN: u32 = 14;
const READ: u32 = 15;
const STATFS: u32 = 17;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const OPENDIR: u32 = 27;
const READDIR: u32 = 28;
const RELEASEDIR: u32 = 29;
const ACCESS: u32 = 34;
const INTERRUPT: u32 = 36;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;

/// `None` where the kernel wants no answer.
fn answer(request: &[u8], files: &mut Files, no_socket: bool) -> Option<Vec<u8>> {
    let word = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
    let unique = &request[8..16];
    let node = u64::from_ne_bytes(request[16..24].try_into().unwrap());
    let body = &request[40..];
    let name = |from: usize| body[from..].split(|b| *b == 0).next().unwrap().to_vec();
    let result = match word(4) {
        FORGET | INTERRUPT | BATCH_FORGET => return None,
        LOOKUP => files.get(&name(0)).map(|(node, mode)| entry(*node, *mode)).ok_or(libc::ENOENT),
        GETATTR => {
            let mode = files.values().find(|(n, _)| *n == node).map_or(0o40777, |(_, mode)| *mode);
            Ok([vec![0; 16], attributes(node, mode)].concat())
        }
        MKNOD if no_socket => Err(libc::EIO),
        MKNOD => {
            let found = (files.len() as u64 + 2, (word(40) & libc::S_IFMT) | 0o777);
            files.insert(name(16), found);
            Ok(entry(found.0, found.1))
        }
        OPEN | OPENDIR => Ok(vec![0; 16]),
        STATFS => Ok(vec![0; 80]),
        READ | READDIR | READDIRPLUS | RELEASE | RELEASEDIR | FLUSH | ACCESS => Ok(Vec::new()),
        _ => Err(libc::ENOSYS),
    };
    let (error, payload) = result.map_or_else(|error| (-error, Vec::new()), |payload| (0, payload));
    let length = u32::try_from(16 + payload.len()).unwrap();
    Some([&length.to_ne_bytes()[..], &error.to_ne_bytes(), unique, &payload].concat())
}

/// `struct fuse_entry_out`: the name is valid for a minute, the attributes for no time at all.
fn entry(node: u64, mode: u32) -> Vec<u8> {
    let (generation, valid) = (0u64.to_ne_bytes(), 60u64.to_ne_bytes());
    [&node.to_ne_bytes()[..], &generation, &valid, &[0; 16], &attributes(node, mode)].concat()
}

/// `struct fuse_attr`: empty, and root's.
fn attributes(node: u64, mode: u32) -> Vec<u8> {
    let mut all = node.to_ne_bytes().to_vec();
    all.resize(60, 0);
    for word in [mode, 1, 0, 0, 0, 4096, 0] {
        all.extend(word.to_ne_bytes());
    }
    all
}
