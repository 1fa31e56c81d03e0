//! `gpuvol cat`.

use std::io::IsTerminal as _;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use crate::escape::shown_path;
use crate::failure::{Failure, Result, each};
use crate::location::Location;
use crate::output::raw_stdout;
use crate::progress::Progress;
use crate::stream::Source;
use crate::text::parse_duration;

/// Writes objects to standard output
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol cat /data/report.txt
  gpuvol cat /data/features | head -c 64 | xxd
  gpuvol cat --wait 5m /data/features > features.arrow

A table is written as an Arrow IPC file, a tensor as a .npy file. Content in GPU memory comes through a small buffer, \
whatever its size.")]
pub struct Cat {
    /// Wait so long for an object that is not there yet, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    wait: Duration,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Cat {
    pub fn run(self) -> Result<()> {
        let mut out = raw_stdout()?;
        each(&self.paths, |path| {
            let mut source = Source::open(&Location::of(path)?, self.wait)?;
            let mut progress = match std::io::stdout().is_terminal() {
                true => Progress::hidden(),
                false => Progress::new(shown_path(path), source.size()),
            };
            source.copy_to(&mut out, &mut progress, Failure::Output)
        })
    }
}
