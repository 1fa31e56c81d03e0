//! The store's hold on one copier process: its start, one copy's way through it, its end.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use gpuvol_protocol::{Channel, Code, Fault, FrameError};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::wire::{Begin, Begun, Copy, Ended, limits};
use super::{Copied, Job};

/// How long a process may take to end after its connections were closed, or after SIGKILL; only one that is stuck in
/// a driver takes longer.
const DYING: Duration = Duration::from_secs(5);

/// What became of a copy.
#[derive(Debug)]
pub(super) enum Outcome {
    Copied(Copied),
    /// The copier's word: asking again, or another process, would not help.
    Refused(Fault),
    /// The GPU failed the process. It says so itself, and must not be asked again.
    Broken(Fault),
    /// The process died over it; how.
    Died(String),
    /// The process ended, by itself or for another copy's sake, and this copy had no part in it.
    Missed,
    /// The copy took longer than it may; the process was killed.
    Late(Fault),
}

/// A copier process. Killed when dropped.
#[derive(Debug)]
pub(super) struct Running {
    pid: u32,
    /// Names the process however late it is, and no other that got its number.
    pidfd: OwnedFd,
    control: Mutex<Channel>,
    end: Arc<End>,
    /// The store has given the process up for a copy that was late.
    killed: AtomicBool,
}

#[derive(Debug, Default)]
struct End {
    status: Mutex<Option<ExitStatus>>,
    changed: Condvar,
}

impl Running {
    pub(super) fn start(program: &Path) -> Result<Self, Fault> {
        let cannot = |error: std::io::Error| {
            let message = format!("the copier cannot be started ({}): {error}", program.display());
            Fault::new(Code::Unavailable, message)
        };
        // Close-on-exec, both: no other process gets the store's end, so the store's death closes it.
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        let mut command = Command::new(program);
        command.stdin(Stdio::from(OwnedFd::from(theirs))).stdout(Stdio::null());
        let end = Arc::new(End::default());
        let (report, reported) = sync_channel(1);
        // A thread of its own waits for the process, so that none is ever left a zombie. It ends with the process,
        // which ends when idle, or with our end of its connection.
        let waiter = end.clone();
        thread::Builder::new()
            .name("gpuvol-copier".to_owned())
            .spawn(move || wait(command, &report, &waiter))
            .map_err(cannot)?;
        let (pid, pidfd) = reported.recv().unwrap_or_else(|e| Err(std::io::Error::other(e))).map_err(cannot)?;
        tracing::info!(pid, program = %program.display(), "the copier starts");
        let control = Mutex::new(Channel::new(ours, limits()));
        Ok(Self { pid, pidfd, control, end, killed: AtomicBool::new(false) })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn has_ended(&self) -> bool {
        self.end.status.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Takes one copy through the process. When this returns, the process has let go of the job's target, except
    /// after `Late`, where the driver may keep it from ending.
    pub(super) fn copy(&self, job: &Job, patience: Duration, deadline: Duration) -> Outcome {
        let mut channel = match self.begin(job, patience) {
            Ok(Ok(channel)) => channel,
            Ok(Err(fault)) => return Outcome::Refused(fault),
            Err(FrameError::Idle(_)) => return self.late(job, patience),
            Err(error) => return self.lost(&error),
        };
        let request =
            Copy { object: job.object.clone(), allocations: job.allocations.clone(), segments: job.segments.clone() };
        let fds: Vec<_> = job.fds.iter().map(AsFd::as_fd).collect();
        match channel.send(&request, &fds) {
            Ok(()) => {}
            Err(error @ FrameError::Outgoing { .. }) => {
                let message = format!("{}: too many segments for the copier: {error}", job.object);
                return Outcome::Refused(Fault::new(Code::LimitExceeded, message));
            }
            Err(error) => return self.lost(&error),
        }
        drop(request);
        match channel.receive::<Ended>(Some(deadline)) {
            Ok(Some((Ended { fault: None, bytes, micros, .. }, _))) => {
                Outcome::Copied(Copied { bytes, time: Duration::from_micros(micros) })
            }
            Ok(Some((Ended { fault: Some(fault), broken: true, .. }, _))) => Outcome::Broken(fault),
            Ok(Some((Ended { fault: Some(fault), .. }, _))) => Outcome::Refused(fault),
            Ok(None) => self.lost(&FrameError::Cut { got: 0 }),
            Err(FrameError::Idle(_)) => self.late(job, deadline),
            Err(error) => self.lost(&error),
        }
    }

    /// Announces a copy, and answers its connection. Others wait here for a moment: the copier only takes it in.
    fn begin(&self, job: &Job, patience: Duration) -> Result<Result<Channel, Fault>, FrameError> {
        let (ours, theirs) = match UnixStream::pair() {
            Ok(pair) => pair,
            Err(error) => {
                let message = format!("{}: no connection for its copy: {error}", job.object);
                return Ok(Err(Fault::new(Code::LimitExceeded, message)));
            }
        };
        let mut control = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        control.send(&Begin {}, &[theirs.as_fd(), job.target.as_fd()])?;
        let begun = control.receive::<Begun>(Some(patience))?;
        drop(control);
        match begun {
            Some((Begun { fault: None }, _)) => Ok(Ok(Channel::new(ours, limits()))),
            Some((Begun { fault: Some(fault) }, _)) => Ok(Err(fault)),
            None => Err(FrameError::Cut { got: 0 }),
        }
    }

    /// A connection broke. The process has ended, or is of no use any more.
    fn lost(&self, error: &FrameError) -> Outcome {
        let for_another = self.killed.load(Ordering::Relaxed);
        let status = match self.wait_end(DYING) {
            Some(status) => status,
            None => {
                self.kill();
                match self.wait_end(DYING) {
                    Some(_) => return Outcome::Died(format!("copier process {} left it: {error}", self.pid)),
                    None => return Outcome::Died(format!("copier process {} hangs: {error}", self.pid)),
                }
            }
        };
        // It ends well only without a copy: it had not seen this one yet.
        match for_another || status.success() {
            true => Outcome::Missed,
            false => Outcome::Died(format!("copier process {} ended with {status}", self.pid)),
        }
    }

    fn late(&self, job: &Job, deadline: Duration) -> Outcome {
        self.kill();
        let stuck = match self.wait_end(DYING) {
            Some(_) => "was killed",
            None => "was killed and still hangs in the driver",
        };
        let message = format!(
            "{}: its copy to host memory was not done within {deadline:?}; copier process {} {stuck}; is {} well?",
            job.object,
            self.pid,
            job.place()
        );
        Outcome::Late(Fault::new(Code::DeadlineExceeded, message))
    }

    fn wait_end(&self, patience: Duration) -> Option<ExitStatus> {
        let status = self.end.status.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.end.changed.wait_timeout_while(status, patience, |status| status.is_none());
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    fn kill(&self) {
        self.killed.store(true, Ordering::Relaxed);
        // One that has ended already needs none.
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

type Started = std::io::Result<(u32, OwnedFd)>;

/// Starts the process, reports it, and waits for its end.
fn wait(mut command: Command, report: &SyncSender<Started>, end: &End) {
    let child = command.spawn();
    // Holds the child's end of the connection, whose closing is the sign of the child's death.
    drop(command);
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return drop(report.send(Err(error))),
    };
    let named = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    if let Err(error) = named {
        let _ = child.kill();
        let _ = child.wait();
        return drop(report.send(Err(error.into())));
    }
    let _ = report.send(named.map(|pidfd| (child.id(), pidfd)).map_err(Into::into));
    let status = wait_for(&mut child);
    tracing::info!(pid = child.id(), %status, "the copier ended");
    *end.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    end.changed.notify_all();
}

/// `wait` is interrupted by nothing that std does not handle, and only this thread waits for the child.
fn wait_for(child: &mut Child) -> ExitStatus {
    loop {
        match child.wait() {
            Ok(status) => return status,
            Err(error) => {
                tracing::error!(%error, "waiting for the copier failed");
                thread::sleep(DYING);
            }
        }
    }
}
