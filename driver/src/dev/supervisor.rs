//! A program that is started again whenever it ends.
//!
//! At once the first time, then after a pause that doubles while it keeps ending soon after its start. It is in a process
//! group of its own, so that Ctrl-C on a terminal reaches only who can end the node in order.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::process::Identity;
use super::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A program that ran this long ended for a reason of its own.
const STEADY: Duration = Duration::from_secs(10);
/// Longest log, in bytes; it is kept once under another name.
const MAX_LOG: u64 = 16 << 20;
/// Bytes of a log that an error shows.
const TAIL: usize = 2000;

/// What to run.
#[derive(Debug, Clone)]
pub struct Spec {
    pub role: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub log: PathBuf,
    /// It is killed when this process ends, however that happens.
    pub tied: bool,
}

/// Told of every start: role, process, how many starts there were before.
pub type Observer = Arc<dyn Fn(&'static str, Identity, u32) + Send + Sync>;

/// A program that is kept running. Dropping this leaves it as it is; [`Supervised::stop`] ends it.
#[derive(Debug)]
pub struct Supervised {
    pub role: &'static str,
    log: PathBuf,
    program: PathBuf,
    restarts: Arc<AtomicU32>,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Supervised {
    /// Starts it for the first time.
    pub fn start(spec: Spec, observer: Observer) -> Result<Self> {
        let child = spawn(&spec).map_err(Error::file("start", &spec.program))?;
        let (stop, stopped) = oneshot::channel();
        let restarts = Arc::new(AtomicU32::new(0));
        let (role, log, program) = (spec.role, spec.log.clone(), spec.program.clone());
        observe(&observer, role, &child, 0);
        let task = tokio::spawn(keep(spec, child, observer, stopped, Arc::clone(&restarts)));
        Ok(Self { role, log, program, restarts, stop, task })
    }

    /// An error once it has ended this often, with the end of its log.
    pub fn check(&self, most: u32) -> Result<()> {
        if self.restarts.load(Ordering::Relaxed) < most {
            return Ok(());
        }
        Err(Error::Program {
            name: self.role,
            program: self.program.clone(),
            log: self.log.clone(),
            tail: tail(&self.log),
        })
    }

    /// Asks it to end, kills it after `grace`, and starts it no more.
    pub async fn stop(self, grace: Duration) {
        let _ = self.stop.send(grace);
        // The task cannot hang: it waits for a killed child at most.
        let _ = self.task.await;
    }
}

async fn keep(
    spec: Spec,
    mut child: Child,
    observer: Observer,
    mut stopped: oneshot::Receiver<Duration>,
    restarts: Arc<AtomicU32>,
) {
    let mut pause = Duration::ZERO;
    loop {
        let started = Instant::now();
        let status = tokio::select! {
            grace = &mut stopped => return end(&mut child, grace.ok()).await,
            status = child.wait() => status,
        };
        let count = restarts.fetch_add(1, Ordering::Relaxed) + 1;
        tracing::warn!(role = spec.role, status = ?status.ok(), count, "ended; started again");
        if started.elapsed() >= STEADY {
            pause = Duration::ZERO;
        }
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
            match spawn(&spec) {
                Ok(fresh) => {
                    child = fresh;
                    break;
                }
                Err(error) => tracing::error!(role = spec.role, %error, "cannot be started"),
            }
        }
        observe(&observer, spec.role, &child, count);
    }
}

/// Without a grace somebody dropped the handle: the program is left running.
async fn end(child: &mut Child, grace: Option<Duration>) {
    let (Some(grace), Some(pid)) = (grace, pid(child)) else { return };
    // Not waited for yet, so the pid is the child's.
    let _ = kill_process(pid, Signal::TERM);
    if tokio::time::timeout(grace, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

fn pid(child: &Child) -> Option<Pid> {
    child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
}

fn observe(observer: &Observer, role: &'static str, child: &Child, restarts: u32) {
    if let Some(identity) = child.id().and_then(Identity::of) {
        observer(role, identity, restarts);
    }
}

fn spawn(spec: &Spec) -> io::Result<Child> {
    let mut command = if spec.tied {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("tied").arg("--").arg(&spec.program);
        command
    } else {
        Command::new(&spec.program)
    };
    command
        .args(&spec.arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(open_log(&spec.log)?)
        .process_group(0)
        .spawn()
}

/// For appending; a log that has grown long is kept under another name first.
pub fn open_log(path: &Path) -> io::Result<File> {
    if fs::metadata(path).is_ok_and(|m| m.len() > MAX_LOG) {
        fs::rename(path, path.with_extension("log.old"))?;
    }
    OpenOptions::new().create(true).append(true).open(path)
}

/// The last lines of a log.
pub fn tail(path: &Path) -> String {
    let text = String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let from = text.char_indices().rev().nth(TAIL).map_or(0, |(at, _)| at);
    let lines = &text[from..];
    if lines.trim().is_empty() { "(its log is empty)".into() } else { lines.trim_end().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    fn spec(dir: &Path, script: &str) -> Spec {
        let arguments = vec!["-c".into(), script.into()];
        Spec { role: "test", program: "/bin/sh".into(), arguments, log: dir.join("log"), tied: false }
    }

    #[tokio::test]
    async fn what_ends_is_started_again_until_it_is_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let seen: Arc<Mutex<Vec<Identity>>> = Arc::default();
        let observer: Observer = {
            let seen = Arc::clone(&seen);
            Arc::new(move |_, identity, _| seen.lock().unwrap().push(identity))
        };
        let supervised = Supervised::start(spec(dir.path(), "echo here >&2; exec sleep 60"), observer).unwrap();
        let first = seen.lock().unwrap()[0];
        assert!(first.end(Duration::ZERO));
        let until = Instant::now() + Duration::from_secs(5);
        while seen.lock().unwrap().len() < 2 {
            assert!(Instant::now() < until, "it was not started again");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = seen.lock().unwrap()[1];
        assert!(supervised.check(2).is_ok());
        supervised.stop(Duration::from_secs(5)).await;
        assert!(!second.lives());
        assert_eq!(seen.lock().unwrap().len(), 2);
        assert!(tail(&dir.path().join("log")).contains("here"));
    }

    #[tokio::test]
    async fn what_keeps_ending_is_started_less_often_and_shown() {
        let dir = tempfile::tempdir().unwrap();
        let supervised =
            Supervised::start(spec(dir.path(), "echo out of luck >&2; exit 3"), Arc::new(|_, _, _| {})).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        let restarts = supervised.restarts.load(Ordering::Relaxed);
        assert!((2..=5).contains(&restarts), "{restarts}");
        assert!(supervised.check(2).unwrap_err().to_string().contains("out of luck"));
        supervised.stop(Duration::from_secs(1)).await;
    }
}
