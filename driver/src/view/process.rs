//! The mounter as a process: one for a state directory, frugal with memory, never in need of a clean end.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::process::{Resource, Rlimit};

use super::buffers::Buffers;
use super::content::Memories;
use super::draft::Drafts;
use super::heartbeat;
use super::session::Shared;
use super::sessions::Sessions;
use super::store::Store;

/// How long a predecessor may take to end.
const PREDECESSOR: Duration = Duration::from_secs(60);
/// Between two questions to a store that does not answer.
const PAUSE: Duration = Duration::from_millis(200);

/// What a mounter runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The node's state directory.
    pub state: PathBuf,
    /// How long a request may take, a restart of the store included.
    pub deadline: Duration,
    /// Threads of each mount.
    pub threads: usize,
}

/// Serves mounts until the process is killed, which it may be at any moment.
pub fn run(config: &Config) -> io::Result<std::convert::Infallible> {
    let directory = heartbeat::directory(&config.state);
    std::fs::create_dir_all(&directory)?;
    let _alone = alone(&directory)?;
    be_frugal()?;
    let shared = Shared {
        store: Store::new(&config.state, config.deadline),
        drafts: Drafts::default(),
        memories: Memories::default(),
        buffers: Buffers::default(),
    };
    let sessions = Arc::new(Sessions::new(Arc::new(shared), config.threads));
    let (beating, state) = (Arc::clone(&sessions), config.state.clone());
    std::thread::Builder::new().name("heartbeat".into()).spawn(move || beat(&beating, &state))?;
    let mut reachable = true;
    loop {
        match sessions.follow() {
            Ok(()) => reachable = true,
            Err(failure) => {
                if std::mem::take(&mut reachable) {
                    tracing::warn!(%failure, "the store does not say what to serve; what is served goes on");
                }
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn beat(sessions: &Sessions, state: &Path) {
    loop {
        if let Err(error) = heartbeat::write(state, &sessions.beats()) {
            tracing::error!(%error, "no heartbeat: the watchdog will think that nobody works here");
        }
        std::thread::sleep(heartbeat::EVERY);
    }
}

/// Two mounters would answer the same requests. The lock goes with its holder.
fn alone(directory: &Path) -> io::Result<File> {
    let path = directory.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path)?;
    let start = Instant::now();
    let mut told = false;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK | rustix::io::Errno::INTR) if start.elapsed() < PREDECESSOR => {}
            Err(error) => {
                let what = format!("another mounter holds {}: {}", path.display(), io::Error::from(error));
                return Err(io::Error::other(what));
            }
        }
        if !std::mem::replace(&mut told, true) {
            tracing::info!(lock = %path.display(), "waiting for another mounter to end");
        }
        // Successors of killed mounters find it free at once; callers hang until then.
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As many descriptors as may be, and no more pages than are touched: each thread of each mount has a buffer of 16 MiB,
/// of which requests fill one.
fn be_frugal() -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if let Err(error) =
        rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
    {
        tracing::warn!(%error, "the limit of open files stays as it is");
    }
    // Huge pages would make a touched page two mebibytes of each buffer.
    // SAFETY: takes numbers, and changes only what the kernel gives this process later.
    if unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0) } != 0 {
        tracing::warn!(error = %io::Error::last_os_error(), "buffers may be made of huge pages");
    }
    // Buffers that come from a heap, as they would after the first is freed, are cleared by touching them all.
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number; no other thread of ours runs yet.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, 1024 * 1024);
    }
    Ok(())
}
