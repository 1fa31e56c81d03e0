//! A published mount as the plugin makes one, and a mounter process that can be killed.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvol_csi::view::connections::Connections;
use gpuvol_csi::view::handshake;
use gpuvol_protocol::view::{Agreed, JOURNAL_BYTES, Session};
use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags};

/// Mounting and FUSE need root here.
pub fn can_run() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        eprintln!("needs root and /dev/fuse: not run");
    }
    can
}

/// A FUSE mount that is taken away at the end, whatever hangs in it.
pub struct Mount {
    pub path: PathBuf,
    pub connection: u32,
    pub agreed: Agreed,
    fuse: OwnedFd,
    journal: OwnedFd,
}

impl Mount {
    pub fn new(path: &Path, passthrough: bool) -> Self {
        std::fs::create_dir_all(path).unwrap();
        let fuse = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", fuse.as_raw_fd());
        let options = std::ffi::CString::new(options).unwrap();
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount("gpuvol", path, "fuse", flags, options.as_c_str()).unwrap();
        let agreed = handshake::answer(fuse.as_fd(), passthrough, Duration::from_secs(5)).unwrap();
        let journal = File::from(rustix::fs::memfd_create("journal", MemfdFlags::CLOEXEC).unwrap());
        journal.set_len(JOURNAL_BYTES).unwrap();
        // The directory underneath is on another device; statx asks nobody here.
        let flags = rustix::fs::AtFlags::STATX_DONT_SYNC;
        let stat = rustix::fs::statx(rustix::fs::CWD, path, flags, rustix::fs::StatxFlags::BASIC_STATS).unwrap();
        Self { path: path.to_owned(), connection: stat.stx_dev_minor, agreed, fuse, journal: journal.into() }
    }

    pub fn session(&self, publish: &str) -> (Session, OwnedFd, OwnedFd) {
        let session = Session {
            publish: publish.to_owned(),
            volume: "v1".to_owned(),
            connection: self.connection,
            agreed: Some(self.agreed),
            ..Session::default()
        };
        (session, self.fuse.try_clone().unwrap(), self.journal.try_clone().unwrap())
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Ok(connections) = Connections::open() {
            let _ = connections.abort(self.connection);
        }
        let _ = rustix::mount::unmount(&self.path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
    }
}

/// A mounter process, killed at the end.
pub struct Mounter(Child);

impl Mounter {
    pub fn start(state: &Path) -> Self {
        Self::with(state, &[])
    }

    pub fn with(state: &Path, flags: &[&str]) -> Self {
        let log = std::env::var("GPUVOL_TEST_LOG").unwrap_or_else(|_| "warn".into());
        let child = Command::new(env!("CARGO_BIN_EXE_gpuvol-mounter"))
            .arg("--state")
            .arg(state)
            .args(["--log", &log, "--deadline", "10s"])
            .args(flags)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// As SIGKILL does.
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Mounter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until it is so; for what another process does.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(10), "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Which device a directory is on: a mount that is gone shows the one underneath.
pub fn device(path: &Path) -> u64 {
    std::fs::symlink_metadata(path).map(|stat| stat.dev()).unwrap_or(0)
}
