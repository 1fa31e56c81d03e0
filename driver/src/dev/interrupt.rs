//! Being asked to end: Ctrl-C, SIGTERM, or a terminal that went away.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Error, Result};

/// From its making on these signals no longer end the process.
#[derive(Debug)]
pub struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Interrupts {
    /// Needs a runtime's context.
    pub fn listen() -> Result<Self> {
        let of = |kind| signal(kind).map_err(Error::system("listen for signals"));
        Ok(Self {
            interrupt: of(SignalKind::interrupt())?,
            terminate: of(SignalKind::terminate())?,
            hangup: of(SignalKind::hangup())?,
        })
    }

    /// Waits until one of them comes.
    pub async fn any(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hangup.recv() => {}
        }
    }

    /// The work's result, or [`Error::Interrupted`]; the work is dropped then.
    pub async fn or<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        tokio::select! {
            result = work => result,
            () = self.any() => Err(Error::Interrupted),
        }
    }
}
