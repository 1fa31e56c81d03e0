//! What both binaries do at their start: logs, descriptor limit, socket.

use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Logs to standard error; `filter` as in `RUST_LOG`, which wins where it is set.
pub fn start_logging(filter: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(filter));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_ansi(false).init();
}

/// Raises the descriptor limit as far as it goes without privilege; answers it.
pub fn raise_descriptor_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = setrlimit(Resource::Nofile, raised);
    let now = getrlimit(Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(now).unwrap_or(usize::MAX)
}

/// Makes sure that one process of a kind serves a state directory: two stores would give the same ids to different memory.
/// Waits up to `patience` for one that is just ending. The lock lasts as long as the file is open.
pub fn claim(directory: &Path, patience: Duration) -> io::Result<File> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join("lock");
    let file = File::options().create(true).append(true).open(&path)?;
    let start = Instant::now();
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK | Errno::INTR) if start.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(Errno::WOULDBLOCK) => {
                let message = format!("another process serves this state directory: it has locked {}", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A listening socket that only this user reaches. One that a process before this one left is replaced.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    let directory = path.parent().unwrap_or(Path::new("."));
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(|e| {
        io::Error::new(e.kind(), format!("no socket at {}: {e} (paths of sockets end at 107 bytes)", path.display()))
    })?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}
