//! Other processes for tests: the test program itself, run again with one test.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

/// How long one process of a test waits for another.
pub const DEADLINE: Duration = Duration::from_secs(60);

const ALONE: &str = "GPUVOL_CONFORMANCE_ALONE";
const PRODUCER: &str = "GPUVOL_CONFORMANCE_PRODUCER";

/// The test program, to run only `test`.
pub fn only(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("own path"));
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs `body` in a process of its own, so that other tests' descriptors and faults are not in the way.
pub fn alone(test: &str, body: impl FnOnce()) {
    alone_with(test, &[], body);
}

/// As [`alone`], with these variables in the environment.
pub fn alone_with(test: &str, environment: &[(&str, &str)], body: impl FnOnce()) {
    if std::env::var_os(ALONE).is_some_and(|running| running == test) {
        return body();
    }
    let output = only(test)
        .env(ALONE, test)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .expect("test program");
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A name that matches no test would pass without having run.
    assert!(output.status.success() && out.contains("1 passed"), "{test} alone:\n{out}\n{err}");
    print!("{out}");
}

/// This process was started by [`start_producer`].
#[must_use]
pub fn is_producer() -> bool {
    std::env::var_os(PRODUCER).is_some()
}

/// A process that makes memory and sends one descriptor.
#[derive(Debug)]
pub struct Producer {
    child: Child,
    socket: UnixStream,
}

/// Starts the test program as a producer; standard input is its socket.
#[must_use]
pub fn start_producer(test: &str) -> Producer {
    let (socket, theirs) = UnixStream::pair().expect("socket pair");
    socket.set_read_timeout(Some(DEADLINE)).expect("timeout");
    let child = only(test)
        .env(PRODUCER, "1")
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .expect("test program");
    Producer { child, socket }
}

impl Producer {
    /// The descriptor it sends.
    #[must_use]
    pub fn receive(&self) -> OwnedFd {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(&self.socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)
            .expect("the producer's message");
        let fds = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        fds.flatten().next().expect("the producer's descriptor")
    }

    /// SIGKILL, and waits until the process is gone.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill");
        let status = self.child.wait().expect("wait");
        assert_eq!(status.signal(), Some(9), "the producer ended by itself: {status}");
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a descriptor through standard input's socket.
pub fn send_to_parent(fd: &OwnedFd) {
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(std::io::stdin(), &[IoSlice::new(b"m")], &mut ancillary, SendFlags::empty()).expect("send");
}

/// What a leak would add to.
#[derive(Debug, Clone, Copy)]
pub struct Footprint {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mapped address ranges.
    pub ranges: usize,
}

/// This process's footprint now.
#[must_use]
pub fn footprint() -> Footprint {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    Footprint { descriptors: std::fs::read_dir("/proc/self/fd").expect("fd").count(), ranges: maps.lines().count() }
}
