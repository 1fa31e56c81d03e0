//! Frames: a 4-byte little-endian length, then that many bytes of one protobuf message; descriptors on the first byte.
//!
//! A [`Channel`] carries strictly alternating requests and replies, so at most one frame is under way in a direction
//! and bytes after a frame's end are a protocol error. The receive buffer grows with the bytes that have arrived, never
//! with the length that the peer claims. Once a frame's first byte is there, the rest has a deadline.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::fdpass;

const HEADER: usize = 4;
/// What one receive takes at most; an inline object and its envelope fit in one.
const CHUNK: usize = 72 * 1024;

/// What a channel accepts from its peer.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Largest message, in bytes.
    pub max_frame: u32,
    /// Most descriptors in one frame, at most [`fdpass::MAX_FDS`].
    pub max_fds: usize,
    /// How long a frame may take from its first byte to its last, and how long a send may take.
    pub frame_deadline: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_frame: 1024 * 1024, max_fds: fdpass::MAX_FDS, frame_deadline: Duration::from_secs(10) }
    }
}

/// Why a frame could not be sent or received. After any of these but `Idle` the channel is unusable.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the connection broke: {0}")]
    Io(#[from] io::Error),
    #[error("the peer closed the connection inside a frame, after {got} bytes")]
    Cut { got: usize },
    #[error("the peer announced a frame of {claimed} bytes, more than the limit of {limit} bytes")]
    TooLarge { claimed: u32, limit: u32 },
    #[error("a frame of {want} bytes stalled after {got} bytes, past the deadline of {deadline:?}")]
    Stalled { got: usize, want: usize, deadline: Duration },
    #[error("the peer sent more than {limit} file descriptors in one frame")]
    TooManyFds { limit: usize },
    #[error("{0} bytes follow the end of a frame before its reply was sent")]
    Trailing(usize),
    #[error("a frame is not a valid message: {0}")]
    Decode(#[from] prost::DecodeError),
    #[error("the message of {len} bytes is larger than the limit of {limit} bytes")]
    Outgoing { len: usize, limit: u32 },
    #[error("nothing arrived within {0:?}")]
    Idle(Duration),
}

/// One end of a connection.
#[derive(Debug)]
pub struct Channel {
    socket: UnixStream,
    limits: Limits,
    buffer: Vec<u8>,
    spin: Spin,
}

impl Channel {
    pub fn new(socket: UnixStream, limits: Limits) -> Self {
        Self { socket, limits, buffer: Vec::new(), spin: Spin::new() }
    }

    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Sends one message with its descriptors.
    pub fn send<M: Message>(&mut self, message: &M, fds: &[BorrowedFd<'_>]) -> Result<(), FrameError> {
        let len = message.encoded_len();
        let limit = self.limits.max_frame;
        let claimed = u32::try_from(len).ok().filter(|len| *len <= limit).ok_or(FrameError::Outgoing { len, limit })?;
        let mut frame = Vec::with_capacity(HEADER + len);
        frame.extend_from_slice(&claimed.to_le_bytes());
        message.encode_raw(&mut frame);
        self.send_raw(&frame, fds)
    }

    fn send_raw(&mut self, frame: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), FrameError> {
        let start = Instant::now();
        let mut sent = 0;
        while sent < frame.len() {
            let fds = if sent == 0 { fds } else { &[] };
            match fdpass::send(&self.socket, &frame[sent..], fds) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let left = self.limits.frame_deadline.saturating_sub(start.elapsed());
                    if left.is_zero() || !wait(&self.socket, PollFlags::OUT, Some(left))? {
                        let deadline = self.limits.frame_deadline;
                        return Err(FrameError::Stalled { got: sent, want: frame.len(), deadline });
                    }
                }
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    /// Receives one message; `None` when the peer closed the connection between frames. `patience` bounds the wait for
    /// the first byte ([`FrameError::Idle`], after which the channel is still usable).
    pub fn receive<M: Message + Default>(
        &mut self,
        patience: Option<Duration>,
    ) -> Result<Option<(M, Vec<OwnedFd>)>, FrameError> {
        let mut fds = Vec::new();
        let mut got = match self.first_bytes(patience, &mut fds)? {
            0 => return Ok(None),
            n => n,
        };
        let start = Instant::now();
        loop {
            if let Some(end) = self.frame_end(got)? {
                if got > end {
                    return Err(FrameError::Trailing(got - end));
                }
                if got == end {
                    let message = M::decode(&self.buffer[HEADER..end])?;
                    if self.buffer.len() > CHUNK {
                        self.buffer = Vec::new();
                    }
                    return Ok(Some((message, fds)));
                }
            }
            let deadline = self.limits.frame_deadline;
            let left = deadline.saturating_sub(start.elapsed());
            let want = self.frame_end(got)?.unwrap_or(HEADER);
            if left.is_zero() || !wait(&self.socket, PollFlags::IN, Some(left))? {
                return Err(FrameError::Stalled { got, want, deadline });
            }
            match self.receive_some(got, &mut fds)? {
                Some(0) => return Err(FrameError::Cut { got }),
                Some(n) => got += n,
                None => {}
            }
        }
    }

    /// Where the frame that begins the buffer ends, once its header is there.
    fn frame_end(&self, got: usize) -> Result<Option<usize>, FrameError> {
        let Some(header) = self.buffer[..got].first_chunk::<HEADER>() else { return Ok(None) };
        let claimed = u32::from_le_bytes(*header);
        let limit = self.limits.max_frame;
        if claimed > limit {
            return Err(FrameError::TooLarge { claimed, limit });
        }
        // A u32 fits a usize on every platform with a 64-bit Linux.
        Ok(Some(HEADER + claimed as usize))
    }

    /// Waits for the first bytes of a frame; spins for a moment first, because a wake-up costs most of a round trip.
    fn first_bytes(&mut self, patience: Option<Duration>, fds: &mut Vec<OwnedFd>) -> Result<usize, FrameError> {
        let start = Instant::now();
        let mut spin = self.spin.begin();
        loop {
            if let Some(n) = self.receive_some(0, fds)? {
                self.spin.end(spin.is_some());
                return Ok(n);
            }
            if let Some(until) = spin {
                if Instant::now() < until {
                    std::hint::spin_loop();
                    continue;
                }
                spin = None;
            }
            let left = patience.map(|p| p.saturating_sub(start.elapsed()));
            if left == Some(Duration::ZERO) || !wait(&self.socket, PollFlags::IN, left)? {
                return Err(FrameError::Idle(patience.unwrap_or_default()));
            }
        }
    }

    /// One receive to the buffer's position `at`; `None` when nothing is there yet.
    fn receive_some(&mut self, at: usize, fds: &mut Vec<OwnedFd>) -> Result<Option<usize>, FrameError> {
        if self.buffer.len() - at.min(self.buffer.len()) < CHUNK / 2 {
            self.buffer.resize(at + CHUNK, 0);
        }
        let received = match fdpass::receive(&self.socket, &mut self.buffer[at..]) {
            Ok(received) => received,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(None),
            // A peer that died with our bytes unread resets the connection: between frames that is an end like any.
            Err(e) if at == 0 && e.kind() == io::ErrorKind::ConnectionReset => return Ok(Some(0)),
            Err(e) => return Err(e.into()),
        };
        fds.extend(received.fds);
        let limit = self.limits.max_fds;
        if received.truncated || fds.len() > limit {
            return Err(FrameError::TooManyFds { limit });
        }
        Ok(Some(received.bytes))
    }
}

/// Waits until the socket is ready, or the time is over (`false`). Hang-ups and errors count as ready.
fn wait(socket: &UnixStream, flags: PollFlags, patience: Option<Duration>) -> io::Result<bool> {
    // A patience beyond what a clock can say is none.
    let until = patience.and_then(|p| Instant::now().checked_add(p));
    loop {
        let left = until.map(|u| u.saturating_duration_since(Instant::now()));
        let timeout = left.map(|d| Timespec::try_from(d).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        let mut set = [PollFd::from_borrowed_fd(socket.as_fd(), flags)];
        match rustix::event::poll(&mut set, timeout.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// How long to spin before sleeping: up to [`Spin::MOST`] while answers come that fast, next to nothing when they do not.
#[derive(Debug)]
struct Spin {
    budget: Duration,
    misses: u32,
}

impl Spin {
    const MOST: Duration = Duration::from_micros(50);

    fn new() -> Self {
        let several = std::thread::available_parallelism().is_ok_and(|n| n.get() > 1);
        Self { budget: if several { Self::MOST } else { Duration::ZERO }, misses: 0 }
    }

    fn begin(&mut self) -> Option<Instant> {
        (!self.budget.is_zero()).then(|| Instant::now() + self.budget)
    }

    /// `hit`: the answer came while spinning.
    fn end(&mut self, hit: bool) {
        if self.budget.is_zero() {
            return;
        }
        self.misses = if hit { 0 } else { self.misses.saturating_add(1).min(5) };
        self.budget = Self::MOST / 2u32.pow(self.misses);
    }
}
