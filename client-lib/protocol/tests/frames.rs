//! Frames against hostile and broken peers, over real sockets.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Answer, Hello, MAGIC, Op, Open, Reply, Request, Stat};
use gpuvol_protocol::{Channel, FrameError, Limits, Version};
use prost::Message;

fn limits() -> Limits {
    Limits { max_frame: 64 * 1024, max_fds: 4, frame_deadline: Duration::from_millis(200) }
}

fn pair() -> (Channel, UnixStream) {
    let (a, b) = UnixStream::pair().unwrap();
    (Channel::new(a, limits()), b)
}

#[test]
fn messages_and_descriptors_arrive_together() {
    let (mut a, b) = pair();
    let mut b = Channel::new(b, limits());
    let (mut read, write) = std::io::pipe().unwrap();
    let request = Request { id: 7, released: vec![1, 2], op: Some(Op::Stat(Stat { path: b"a/b".to_vec() })) };
    a.send(&request, &[write.as_fd()]).unwrap();
    drop(write);
    let (received, fds) = b.receive::<Request>(None).unwrap().unwrap();
    assert_eq!(received, request);
    assert_eq!(fds.len(), 1);
    let mut write = std::fs::File::from(fds.into_iter().next().unwrap());
    write.write_all(b"hello").unwrap();
    drop(write);
    let mut text = String::new();
    read.read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}

#[test]
fn a_large_message_crosses_in_pieces() {
    let (a, b) = UnixStream::pair().unwrap();
    let big = Limits { max_frame: 8 << 20, ..Limits::default() };
    let (mut a, mut b) = (Channel::new(a, big), Channel::new(b, big));
    let request = Request { id: 1, released: (0..2_000_000).map(|i| i % 100).collect(), op: None };
    std::thread::scope(|s| {
        s.spawn(|| a.send(&request, &[]).unwrap());
        assert_eq!(b.receive::<Request>(None).unwrap().unwrap().0, request);
    });
}

#[test]
fn the_end_of_the_stream_is_not_an_error_between_frames_and_is_one_inside() {
    let (mut a, b) = pair();
    drop(b);
    assert!(a.receive::<Request>(None).unwrap().is_none());

    let (mut a, mut b) = pair();
    b.write_all(&[10, 0, 0, 0, 1, 2]).unwrap();
    drop(b);
    assert!(matches!(a.receive::<Request>(None), Err(FrameError::Cut { got: 6 })));
}

#[test]
fn a_claimed_size_is_never_allocated() {
    let (mut a, mut b) = pair();
    b.write_all(&u32::MAX.to_le_bytes()).unwrap();
    assert!(matches!(a.receive::<Request>(None), Err(FrameError::TooLarge { claimed: u32::MAX, .. })));
}

#[test]
fn a_stalled_frame_ends_at_its_deadline() {
    for part in [&[1u8][..], &[100, 0, 0, 0, 9]] {
        let (mut a, mut b) = pair();
        b.write_all(part).unwrap();
        let start = Instant::now();
        assert!(matches!(a.receive::<Request>(None), Err(FrameError::Stalled { .. })));
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}

#[test]
fn silence_has_a_deadline_of_its_own() {
    let (mut a, _b) = pair();
    let patience = Duration::from_millis(20);
    assert!(matches!(a.receive::<Request>(Some(patience)), Err(FrameError::Idle(p)) if p == patience));
}

#[test]
fn bytes_after_a_frame_are_refused() {
    let (mut a, mut b) = pair();
    b.write_all(&[0, 0, 0, 0, 0]).unwrap();
    assert!(matches!(a.receive::<Request>(None), Err(FrameError::Trailing(1))));
}

#[test]
fn descriptors_close_on_exec() {
    let (mut a, b) = pair();
    let mut b = Channel::new(b, limits());
    b.send(&Request::default(), &[std::io::stdin().as_fd()]).unwrap();
    let (_, fds): (Request, Vec<OwnedFd>) = a.receive(None).unwrap().unwrap();
    let flags = rustix::io::fcntl_getfd(&fds[0]).unwrap();
    assert!(flags.contains(rustix::io::FdFlags::CLOEXEC), "fd {}", fds[0].as_raw_fd());
}

#[test]
fn garbage_is_a_typed_error() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..2000 {
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        };
        let len = usize::try_from(next() % 200).unwrap();
        let body: Vec<u8> = (0..len).map(|_| next().to_le_bytes()[0]).collect();
        let (mut a, mut b) = pair();
        b.write_all(&u32::try_from(len).unwrap().to_le_bytes()).unwrap();
        b.write_all(&body).unwrap();
        // Either it decodes to some message or it is a typed error; it never panics or waits.
        let _ = a.receive::<Request>(Some(Duration::from_millis(100)));
    }
}

/// The handshake's bytes are frozen: a peer of any later version must still understand them.
#[test]
fn the_handshake_bytes_never_change() {
    let hello = Hello {
        magic: MAGIC,
        min_version: Version::OLDEST.number(),
        max_version: Version::NEWEST.number(),
        lease: vec![],
        client: "t".into(),
    };
    assert_eq!(hello.encode_to_vec(), b"\x0dGPVL\x10\x01\x18\x01\x2a\x01t");
    let reply = Reply { id: 3, answer: Some(Answer::Done(gpuvol_protocol::message::Done {})) };
    assert_eq!(reply.encode_to_vec(), b"\x08\x03\x82\x01\x00");
    let open = Request {
        id: 1,
        released: vec![],
        op: Some(Op::Open(Open { path: b"x".to_vec(), version: 0, wait_ms: 5, host_only: false })),
    };
    assert_eq!(open.encode_to_vec(), b"\x08\x01\x72\x05\x0a\x01x\x18\x05");
}
