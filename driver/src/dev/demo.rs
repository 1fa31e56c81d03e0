//! `gpuvol-dev demo`: three stages hand a table on, by gpu-volume and by files, as pods on a node would.
//!
//! Every stage is a process of its own, in a mount namespace of its own, which ends before the next one starts. The
//! volume is created, published, unpublished and deleted by real CSI calls.

mod measure;
mod run;
mod site;

use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::device::Wish;
use super::interrupt::Interrupts;
use super::namespace::{self, Isolation};
use super::python::Python;
use super::sweep::left_of;
use super::{Error, Result, table};
pub use measure::{Hop, Outcome};
use site::Site;

/// What the demo was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    pub wish: Wish,
    pub rows: Option<u64>,
    pub python: Option<PathBuf>,
    pub keep_output: Option<PathBuf>,
    pub json: bool,
    pub bin_dir: Option<PathBuf>,
    pub store_flags: Vec<String>,
}

/// The way by gpu-volume, and the ways that it is compared with.
pub const VOLUME: &str = "gpuvol";
pub const FILES: [&str; 3] = ["parquet", "feather", "pickle"];
pub const STAGES: [&str; 3] = ["read", "clean", "train"];

/// What is printed.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Where the table was handed over by gpu-volume.
    pub device: String,
    /// The file system of the ways by file.
    pub disk: String,
    pub isolation: String,
    pub ways: Vec<Outcome>,
    /// The classifier says the same whichever way its input came.
    pub scores_agree: bool,
}

/// Runs the demo in this process, which must have one thread still.
pub fn run(request: &Request) -> Result<()> {
    let python = Python::find(request.python.as_deref())?;
    let isolation = Isolation::find();
    match &isolation {
        Isolation::Mounts => namespace::enter(false).map_err(Error::system("enter a mount namespace"))?,
        Isolation::User => namespace::enter(true).map_err(Error::system("enter a user namespace"))?,
        Isolation::None(_) => {}
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Error::system("start the runtime"))?;
    // Before there is anything to clean up.
    let mut interrupts = runtime.block_on(async { Interrupts::listen() })?;
    let site = Site::make()?;
    let result = runtime.block_on(run::all(request, &python, &isolation, &site, &mut interrupts));
    runtime.shutdown_timeout(Duration::from_secs(1));
    // What a stage said is its error; why a node does not work is in its logs.
    if let (Err(error), Some(log)) = (&result, site.log_tails())
        && !matches!(error, Error::Interrupted | Error::Stage { .. } | Error::Measurement { .. })
    {
        eprintln!("{log}");
    }
    let kept = match &request.keep_output {
        Some(to) if result.is_ok() => site.keep(to),
        _ => Ok(()),
    };
    let directory = site.directory().to_owned();
    site.remove();
    let left = left_of(&directory);
    let report = result?;
    kept?;
    if request.json {
        let text = serde_json::to_string_pretty(&report).map_err(|e| Error::system("write JSON")(e.into()))?;
        show(&format!("{text}\n"));
    } else {
        show(&table::print(&report));
    }
    if !left.is_empty() {
        return Err(Error::Left(left));
    }
    if !request.json {
        show("nothing left behind: no mount, no process, no file\n");
    }
    if report.scores_agree { Ok(()) } else { Err(Error::Scores) }
}

/// A reader that is gone has no use for it.
fn show(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().write_all(text.as_bytes());
}
