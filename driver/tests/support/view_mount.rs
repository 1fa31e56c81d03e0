//! A published mount as the plugin makes one, and a mounter process that can be killed.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
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
    /// Closed when the mount is gone in time.
    _in_time: mpsc::Sender<()>,
}

/// A test that hangs in a mount could not even be killed.
const LONGEST: Duration = Duration::from_secs(90);

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
        let connection = stat.stx_dev_minor;
        let (in_time, over) = mpsc::channel::<()>();
        std::thread::spawn(move || {
            if over.recv_timeout(LONGEST) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("a test hangs in its mount, which is ended");
                let _ = Connections::open().and_then(|connections| connections.abort(connection));
            }
        });
        Self { path: path.to_owned(), connection, agreed, fuse, journal: journal.into(), _in_time: in_time }
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

    /// The connection, as a mounter gets it.
    pub fn fuse(&self) -> &OwnedFd {
        &self.fuse
    }

    /// The journal, as a mounter gets it.
    pub fn journal(&self) -> &OwnedFd {
        &self.journal
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

/// Starts and kills mounters from a process that has no file of a mount open. One that has cannot: the child closes its
/// copy before it becomes the mounter, and waits for a mounter to take note of that.
pub struct Starter {
    shell: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

const STARTER: &str = r#"
all=
while read -r what rest; do
    case "$what" in
        start) "$MOUNTER" $rest </dev/null 1>&2 & all="$all $!"; echo $! ;;
        kill) kill -9 $rest; wait $rest 2>/dev/null; echo dead ;;
    esac
done
kill -9 $all 2>/dev/null
wait
"#;

impl Starter {
    pub fn new() -> Self {
        let mut shell = Command::new("/bin/sh")
            .args(["-c", STARTER])
            .env("MOUNTER", env!("CARGO_BIN_EXE_gpuvol-mounter"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (shell.stdin.take().unwrap(), BufReader::new(shell.stdout.take().unwrap()));
        Self { shell, to, from }
    }

    /// Answers the process's id.
    pub fn start(&mut self, state: &Path, deadline: &str) -> u32 {
        let log = std::env::var("GPUVOL_TEST_LOG").unwrap_or_else(|_| "warn".into());
        let state = state.display();
        self.ask(&format!("start --state {state} --log {log} --deadline {deadline}")).parse().unwrap()
    }

    /// As SIGKILL does.
    pub fn kill(&mut self, pid: u32) {
        assert_eq!(self.ask(&format!("kill {pid}")), "dead");
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.to, "{line}").unwrap();
        let mut answer = String::new();
        self.from.read_line(&mut answer).unwrap();
        answer.trim().to_owned()
    }
}

impl Drop for Starter {
    fn drop(&mut self) {
        // At the end of its input it kills what it started.
        let (to, _) = UnixStream::pair().unwrap();
        drop(std::mem::replace(&mut self.to, ChildStdin::from(OwnedFd::from(to))));
        let _ = self.shell.wait();
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
