//! Processes that are not this one's children: told apart by pid and start time, ended through a pidfd.
//!
//! A pid alone may be somebody else's by now. So a process is known by its pid and the time at which it started, and a
//! signal goes through a descriptor that was opened before the start time was compared: it cannot reach another one.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::deadline::within;

/// A process, whatever happens to its pid later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub pid: u32,
    /// When it started, in clock ticks since the boot.
    pub start: u64,
}

impl Identity {
    /// `None` where it has ended.
    pub fn of(pid: u32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?;
        let start = fields.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, start })
    }

    pub fn lives(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// A descriptor of this very process; `None` where it has ended.
    fn open(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?)?;
        let fd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        self.lives().then_some(fd)
    }

    /// Asks it to end, and kills it after `grace`. `false` where it still lives a while after that.
    pub fn end(self, grace: Duration) -> bool {
        let Some(fd) = self.open() else { return true };
        // It may have ended just now.
        let _ = pidfd_send_signal(&fd, Signal::TERM);
        if ended_within(&fd, grace) {
            return true;
        }
        let _ = pidfd_send_signal(&fd, Signal::KILL);
        ended_within(&fd, Duration::from_secs(5))
    }

    /// Sends SIGTERM and waits; `false` where it still lives then.
    pub fn terminate(self, patience: Duration) -> bool {
        let Some(fd) = self.open() else { return true };
        let _ = pidfd_send_signal(&fd, Signal::TERM);
        ended_within(&fd, patience)
    }
}

fn ended_within(pidfd: &OwnedFd, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) => return true,
            Err(rustix::io::Errno::INTR) if !left.is_zero() => {}
            Err(_) => return false,
        }
    }
}

/// A process of a node, by its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub program: String,
    pub identity: Identity,
    pub state: PathBuf,
}

/// Programs of a node, in the order in which they are ended: the supervisor first, for it starts the others again, and
/// the keeper last.
pub const PROGRAMS: [&str; 5] = ["gpuvol-dev", "gpuvol-csi", "gpuvol-mounter", "gpuvol-store", "gpuvol-keeper"];

/// How long the kernel may take to tell of one process: it waits for one that waits for a file system that hangs.
const PATIENCE: Duration = Duration::from_millis(500);

/// This user's processes that serve a node, by their command lines, this one left out.
pub fn members() -> Vec<Member> {
    let uid = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() || !entry.metadata().is_ok_and(|m| m.uid() == uid) {
            continue;
        }
        // The name first, for which the kernel waits for nobody.
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !PROGRAMS.contains(&name.trim_end()) {
            continue;
        }
        let identity = Identity::of(pid);
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        if let (Some(identity), Some((program, state))) = (identity, parse(&line)) {
            found.push(Member { program, identity, state });
        }
    }
    found.sort_by_key(|member| PROGRAMS.iter().position(|p| *p == member.program));
    found
}

/// Processes of this user with a path on their command lines, this one left out: pid and command line.
pub fn naming(path: &Path) -> Vec<(u32, String)> {
    let uid = rustix::process::geteuid().as_raw();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() || !entry.metadata().is_ok_and(|m| m.uid() == uid) {
            continue;
        }
        let Some(line) = command_line(pid) else { continue };
        if line.contains(&*path.to_string_lossy()) {
            found.push((pid, line));
        }
    }
    found
}

/// What a process was started with; `None` where it has ended, or waits for a file system that hangs.
pub fn command_line(pid: u32) -> Option<String> {
    let read = move || {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        Identity::of(pid).map(|_| String::from_utf8_lossy(&line).replace('\0', " "))
    };
    within(PATIENCE, read).ok().flatten()
}

/// Program and state directory of a command line that serves a node.
fn parse(line: &[u8]) -> Option<(String, PathBuf)> {
    let words: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    let program = Path::new(OsStr::from_bytes(words.first()?)).file_name()?.to_str()?.to_owned();
    // `up`, `down` and `status` name a state directory as well, and serve none.
    if !PROGRAMS.contains(&program.as_str()) || (program == PROGRAMS[0] && words.get(1) != Some(&b"serve".as_slice())) {
        return None;
    }
    let at = words.iter().position(|word| *word == b"--state")?;
    Some((program, PathBuf::from(OsStr::from_bytes(words.get(at + 1)?))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_ended_once_and_no_other_in_its_place() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let identity = Identity::of(child.id()).unwrap();
        assert!(identity.lives());
        let other = Identity { start: identity.start + 1, ..identity };
        assert!(!other.lives() && other.end(Duration::from_secs(1)));
        assert!(identity.lives());
        assert!(identity.end(Duration::from_secs(5)));
        assert!(!identity.lives(), "a zombie counts as ended");
        assert!(!child.wait().unwrap().success());
        assert!(identity.end(Duration::from_secs(1)));
    }

    #[test]
    fn only_servers_are_members() {
        let serves = |line: &str| parse(line.replace(' ', "\0").as_bytes());
        assert_eq!(serves("/x/gpuvol-store --state /s --log info"), Some(("gpuvol-store".into(), "/s".into())));
        assert_eq!(serves("gpuvol-dev serve --state /s"), Some(("gpuvol-dev".into(), "/s".into())));
        assert_eq!(serves("gpuvol-dev down --state /s"), None);
        assert_eq!(serves("vi --state /s"), None);
        assert_eq!(serves("gpuvol-store --state"), None);
    }
}
