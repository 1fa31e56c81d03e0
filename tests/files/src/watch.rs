//! Children with deadlines. A child that does not move is killed; one that cannot be killed is left behind and reported
//! with what the kernel says about it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::progress;

const POLL: Duration = Duration::from_millis(50);
/// From SIGKILL to the end of a process that is not stuck in the kernel.
const DEATH: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Between two steps of the child.
    pub step: Duration,
    /// For all of it.
    pub whole: Duration,
}

#[derive(Debug)]
pub struct Watched {
    child: Child,
    note: PathBuf,
    name: String,
    last: (u64, Instant),
    begun: Instant,
    limits: Limits,
}

#[derive(Debug)]
pub enum Verdict {
    Running,
    Ended(ExitStatus),
    /// Stopped by a deadline, in words.
    Stuck(String),
}

impl Watched {
    /// Starts `command`, which finds its progress file in the environment. `name` is for messages.
    pub fn start(mut command: Command, name: &str, limits: Limits) -> Self {
        let unique = format!("gpuvol-tests-{}-{}", std::process::id(), name.replace(['/', ' '], "-"));
        let note = std::env::temp_dir().join(unique);
        std::fs::write(&note, "").expect("progress file");
        // The child may be somebody else.
        std::fs::set_permissions(&note, std::fs::Permissions::from_mode(0o666)).expect("progress file");
        let child = command.env(progress::VARIABLE, &note).spawn().unwrap_or_else(|error| panic!("{name}: {error}"));
        let begun = Instant::now();
        Self { child, note, name: name.to_owned(), last: (0, begun), begun, limits }
    }

    /// This program again, with other arguments.
    pub fn myself(arguments: &[String], name: &str, limits: Limits) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(arguments);
        Self::start(command, name, limits)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it does now.
    pub fn doing(&self) -> String {
        progress::read(&self.note).1
    }

    pub fn stdout(&mut self) -> Option<std::process::ChildStdout> {
        self.child.stdout.take()
    }

    /// Looks once, and ends it where a deadline has passed.
    pub fn look(&mut self) -> Verdict {
        if let Some(status) = self.child.try_wait().expect("wait") {
            return Verdict::Ended(status);
        }
        let count = progress::read(&self.note).0;
        if count != self.last.0 {
            self.last = (count, Instant::now());
        }
        let limits = self.limits;
        if self.last.1.elapsed() > limits.step {
            Verdict::Stuck(self.stop(&format!("no step for {} s", limits.step.as_secs())))
        } else if self.begun.elapsed() > limits.whole {
            Verdict::Stuck(self.stop(&format!("not ready after {} s", limits.whole.as_secs())))
        } else {
            Verdict::Running
        }
    }

    /// Until its end, or a deadline's: the status, or what is wrong.
    pub fn wait(mut self) -> Result<ExitStatus, String> {
        loop {
            match self.look() {
                Verdict::Running => std::thread::sleep(POLL),
                Verdict::Ended(status) => return Ok(status),
                Verdict::Stuck(why) => return Err(why),
            }
        }
    }

    fn stop(&mut self, why: &str) -> String {
        let doing = self.doing();
        let pid = self.child.id();
        let before = in_kernel(pid);
        let _ = self.child.kill();
        let deadline = Instant::now() + DEATH;
        let mut dead = false;
        while !dead && Instant::now() < deadline {
            dead = self.child.try_wait().expect("wait").is_some();
            std::thread::sleep(POLL);
        }
        let end = match dead {
            true => "killed".to_owned(),
            false => format!("CANNOT BE KILLED for {} s, left behind", DEATH.as_secs()),
        };
        format!("{} (pid {pid}): {why} while doing: {doing}; {end}; {before}", self.name)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            let _ = self.child.kill();
        }
        let _ = std::fs::remove_file(&self.note);
    }
}

/// In words where it is not 0.
pub fn status_of(status: ExitStatus, name: &str) -> Result<(), String> {
    if status.success() { Ok(()) } else { Err(format!("{name} ended with {status}")) }
}

/// The state and the place in the kernel of a process and of its threads.
fn in_kernel(pid: u32) -> String {
    let root = Path::new("/proc").join(pid.to_string());
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let status = read("status");
    let state = status.lines().find(|line| line.starts_with("State")).unwrap_or("State: unknown").to_owned();
    let stack: Vec<String> = read("stack").lines().take(6).map(|line| line.trim().to_owned()).collect();
    format!("{state}; wchan {}; stack {}", read("wchan"), stack.join(" < "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_that_does_not_move_is_ended() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let limits = Limits { step: Duration::from_millis(200), whole: Duration::from_secs(10) };
        let why = Watched::start(command, "sleeper", limits).wait().unwrap_err();
        assert!(why.contains("no step for 0 s"), "{why}");
        assert!(why.contains("killed"), "{why}");
    }

    #[test]
    fn the_end_of_a_child_is_its_status() {
        let mut command = Command::new("sh");
        command.args(["-c", "exit 3"]);
        let limits = Limits { step: Duration::from_secs(5), whole: Duration::from_secs(10) };
        assert_eq!(Watched::start(command, "ender", limits).wait().unwrap().code(), Some(3));
    }
}
