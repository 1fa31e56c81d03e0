//! Why a development node could not be brought up, looked at or ended.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gpuvol_protocol::types::Bytes;

use crate::store_client::StoreError;

pub type Result<T> = std::result::Result<T, Error>;

/// Messages leave out the source; [`chain`] adds it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot {doing} {}", path.display())]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error(
        "the state directory {} has {} bytes; a socket's path ends at 107, and the longest below it adds {}: {hint}",
        state.display(), state.as_os_str().len(), crate::dev::place::LONGEST_SOCKET.len() + 1
    )]
    LongState { state: PathBuf, hint: &'static str },
    #[error("the path {} is not UTF-8, which CSI asks for; choose another one", .0.display())]
    NotText(PathBuf),
    #[error("{} belongs to another user or others may write to it; give a directory of your own with --state DIR", .0.display())]
    Insecure(PathBuf),
    #[error("the state directory {} is not empty and holds no node; empty it or give another with --state DIR", .0.display())]
    StateTaken(PathBuf),
    #[error("{} is not empty: it holds {first:?}; empty it, or mount at another directory", mount.display())]
    NotEmpty { mount: PathBuf, first: String },
    #[error("{} is {what}; mount at a directory that is empty or not there yet", mount.display())]
    NoDirectory { mount: PathBuf, what: &'static str },
    #[error(
        "{name} was not found ({looked}); build it with `cargo build -p {package}`, or name its directory with --bin-dir DIR"
    )]
    NoProgram { name: &'static str, package: &'static str, looked: String },
    #[error("{name} does not start ({}); the end of its log {}:\n{tail}", program.display(), log.display())]
    Program { name: &'static str, program: PathBuf, log: PathBuf, tail: String },
    #[error("no GPU is to be had here: {why}; use --device host")]
    NoGpu { why: String },
    #[error("GPU {wanted} is not here; the store sees {have}")]
    OtherGpu { wanted: String, have: String },
    #[error("a volume of {} is more than this machine's memory of {}; give a smaller --capacity", Bytes(*capacity), Bytes(*memory))]
    Capacity { capacity: u64, memory: u64 },
    #[error("the store does not answer")]
    Store(#[source] StoreError),
    #[error("the plugin answered {call} for {subject} with {code:?}: {message}")]
    Call { call: &'static str, subject: String, code: tonic::Code, message: String },
    #[error("cannot reach the plugin at {}", socket.display())]
    Plugin { socket: PathBuf, source: tonic::transport::Error },
    #[error("{what} took longer than {after:?}; look at the logs in {}", logs.display())]
    Late { what: String, after: Duration, logs: PathBuf },
    #[error("{}", mount_answer(mount, why))]
    Mount { mount: PathBuf, why: String },
    #[error("the node did not come up: {why}")]
    Failed { why: String },
    #[error("a node is up at {} with {was}, and now {wanted} is asked for; end it first: gpuvol dev down --mount '{}'", mount.display(), mount.display())]
    OtherArguments { mount: PathBuf, was: String, wanted: String },
    #[error("a node at {} is there without its supervisor (state {}); what is left of it goes with: gpuvol dev down --mount '{}'", mount.display(), state.display(), mount.display())]
    HalfDead { mount: PathBuf, state: PathBuf },
    #[error("the name {name:?} is taken by the node at {} (state {}); give another with --name", mount.display(), state.display())]
    NameTaken { name: String, mount: PathBuf, state: PathBuf },
    #[error(
        "{name:?} is no name for a node; want 1 to 40 characters of a-z, A-Z, 0-9, '-', '_' and '.', not a dot first"
    )]
    Name { name: String },
    #[error("several nodes are up: {}; say which: --mount DIR, or --all", .0.join(", "))]
    Several(Vec<String>),
    #[error("{} is no record of a node that this version reads; remove {} by hand once nothing uses it", path.display(), path.display())]
    Record { path: PathBuf, source: serde_json::Error },
    #[error("left behind:\n  {}", .0.join("\n  "))]
    Left(Vec<String>),
    #[error("{0}")]
    Python(String),
    #[error(
        "the stage scripts read.py, clean.py and train.py were not found ({looked}); set GPUVOL_DEMO_DIR to their directory"
    )]
    NoScripts { looked: String },
    #[error("stage {stage} by {via} failed ({status}):\n{output}")]
    Stage { stage: String, via: String, status: String, output: String },
    #[error("stage {stage} by {via} printed no measurement that could be read: {what}")]
    Measurement { stage: String, via: String, what: String },
    #[error("the classifier's score depends on the way by which its input came; one of the ways changes the data")]
    Scores,
    #[error("cannot {doing}")]
    System { doing: &'static str, source: io::Error },
    #[error("interrupted")]
    Interrupted,
}

fn mount_answer(mount: &std::path::Path, why: &str) -> String {
    format!("nobody answers at {}: {why}", mount.display())
}

impl Error {
    /// For `map_err` on a file operation.
    pub fn file(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Error::File { doing, path, source }
    }

    /// For `map_err` on a system call without a path.
    pub fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Error::System { doing, source }
    }
}

/// An error and everything under it, as one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(under) = source {
        // Writing to a String cannot fail.
        let _ = write!(text, ": {under}");
        source = under.source();
    }
    text
}
