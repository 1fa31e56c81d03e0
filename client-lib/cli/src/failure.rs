//! What went wrong, as lines on standard error and an exit code.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use gpuvol_client::Code;

use crate::escape::{shown_message, shown_path};

pub type Result<T> = std::result::Result<T, Failure>;

/// The documented exit codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Failed = 1,
    Usage = 2,
    NotFound = 3,
    NoSpace = 4,
    Deadline = 5,
    Unavailable = 6,
}

#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Client(#[from] gpuvol_client::Error),
    #[error("{}", shown_path(.path))]
    File { path: PathBuf, source: io::Error },
    #[error("{}: {what}", shown_path(.path))]
    Path { path: PathBuf, what: String, code: Code },
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    Other(String),
    #[error("cannot write the output")]
    Output(#[source] io::Error),
    /// Everything has been said already.
    #[error("some failed")]
    Reported(Exit),
}

impl Failure {
    /// For `map_err` on calls of the file system.
    pub fn file(path: &Path) -> impl FnOnce(io::Error) -> Failure {
        move |source| Failure::File { path: path.to_owned(), source }
    }

    pub fn path(path: &Path, code: Code, what: impl Into<String>) -> Failure {
        Failure::Path { path: path.to_owned(), what: what.into(), code }
    }

    /// The path is on no volume, and the command only knows volumes; `instead` names the ordinary command.
    pub fn no_volume(path: &Path, instead: &str) -> Failure {
        let what = format!("is on no gpu-volume; for ordinary files use {instead}");
        Failure::path(path, Code::InvalidArgument, what)
    }

    pub fn code(&self) -> Code {
        match self {
            Failure::Client(error) => error.code(),
            Failure::Path { code, .. } => *code,
            Failure::File { source, .. } => match source.kind() {
                io::ErrorKind::NotFound => Code::NotFound,
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Code::QuotaExceeded,
                io::ErrorKind::AlreadyExists => Code::AlreadyExists,
                _ => Code::Internal,
            },
            Failure::Usage(_) => Code::InvalidArgument,
            Failure::Other(_) | Failure::Output(_) | Failure::Reported(_) => Code::Internal,
        }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Failure::Usage(_) => Exit::Usage,
            Failure::Reported(exit) => *exit,
            _ => exit_of(self.code()),
        }
    }

    fn is_broken_pipe(&self) -> bool {
        matches!(self, Failure::Output(source) if source.kind() == io::ErrorKind::BrokenPipe)
    }
}

fn exit_of(code: Code) -> Exit {
    match code {
        Code::NotFound | Code::Stale | Code::NoData => Exit::NotFound,
        Code::QuotaExceeded | Code::OutOfMemory => Exit::NoSpace,
        Code::DeadlineExceeded => Exit::Deadline,
        Code::Unavailable | Code::LeaseEnded => Exit::Unavailable,
        Code::Internal
        | Code::InvalidArgument
        | Code::AlreadyExists
        | Code::NotADirectory
        | Code::IsADirectory
        | Code::NotEmpty
        | Code::ReadOnly
        | Code::LimitExceeded
        | Code::BadMemory
        | Code::DeviceUnknown
        | Code::DeviceMismatch
        | Code::Protocol
        | Code::InUse
        | Code::ContentLost
        | Code::Unsupported
        | Code::NotPermitted => Exit::Failed,
    }
}

/// Does something for each, failures of some notwithstanding; the first of them decides the exit code.
pub fn each<T>(things: impl IntoIterator<Item = T>, mut act: impl FnMut(T) -> Result<()>) -> Result<()> {
    let mut first = None;
    for thing in things {
        match act(thing) {
            Ok(()) => {}
            Err(error @ Failure::Output(_)) => return Err(error),
            Err(error) => {
                report(&error);
                first.get_or_insert(error.exit());
            }
        }
    }
    first.map_or(Ok(()), |exit| Err(Failure::Reported(exit)))
}

/// Ends the program. Who reads the output may stop reading at any time: that is no failure.
pub fn finish(outcome: Result<()>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_broken_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(error.exit() as u8)
        }
    }
}

fn report(error: &Failure) {
    if matches!(error, Failure::Reported(_)) {
        return;
    }
    let mut lines = chain(error).into_iter();
    say("gpuvol", AnsiColor::Red, &lines.next().unwrap_or_default());
    lines.for_each(|line| say("  because", AnsiColor::Red, &line));
}

/// Something to know about a command that goes on.
pub fn note(message: &str) {
    say("gpuvol: note", AnsiColor::Yellow, message);
}

fn say(label: &str, color: AnsiColor, message: &str) {
    let style = Style::new().fg_color(Some(color.into())).bold();
    // Where nobody takes it there is nobody to tell.
    let _ = writeln!(anstream::stderr(), "{style}{label}:{style:#} {}", shown_message(message));
}

/// The error's message and those of its causes, less what an earlier line has said already.
fn chain(error: &Failure) -> Vec<String> {
    let mut lines = vec![error.to_string()];
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let line = error.to_string();
        if !lines.iter().any(|said| said.contains(&line)) {
            lines.push(line);
        }
        cause = error.source();
    }
    // A file's name and what is wrong with it belong on one line.
    if let (Failure::File { .. }, [first, second, ..]) = (error, lines.as_mut_slice()) {
        *first = format!("{first}: {second}");
        lines.remove(1);
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_named_once() {
        let source = io::Error::new(io::ErrorKind::TimedOut, "nobody home");
        let lines = chain(&Failure::Client(gpuvol_client::Error::Connect { path: "/d/s".into(), source }));
        assert_eq!(lines, ["no gpuvol store answers at /d/s: nobody home"]);
        let lines = chain(&Failure::Output(io::Error::other("disk on fire")));
        assert_eq!(lines, ["cannot write the output", "disk on fire"]);
        let lines = chain(&Failure::File { path: "/a\nb".into(), source: io::Error::other("gone") });
        assert_eq!(lines, ["/a\\nb: gone"]);
    }

    #[test]
    fn the_first_failure_decides() {
        let outcome =
            each([Code::NotFound, Code::DeadlineExceeded], |code| Err(Failure::path("p".as_ref(), code, "x")));
        assert_eq!(outcome.unwrap_err().exit(), Exit::NotFound);
        assert!(each([1, 2], |_| Ok(())).is_ok());
    }
}
