//! Descriptors that came along with what was refused are closed. A test program of its own, because it counts the
//! descriptors of its process.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use gpuvol_protocol::message::Request;
use gpuvol_protocol::{Channel, FrameError, Limits};

fn open_fds() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn more_descriptors_than_allowed_end_the_connection_and_leak_nothing() {
    let file = std::fs::File::open("/dev/null").unwrap();
    let fds = [file.as_fd(); 64];
    let before = open_fds();
    for many in [5, 64] {
        let (a, b) = UnixStream::pair().unwrap();
        let mut a = Channel::new(a, Limits { max_fds: 4, ..Limits::default() });
        let mut b = Channel::new(b, Limits::default());
        b.send(&Request::default(), &fds[..many]).unwrap();
        assert!(matches!(a.receive::<Request>(None), Err(FrameError::TooManyFds { limit: 4 })));
    }
    assert_eq!(open_fds(), before);
}
