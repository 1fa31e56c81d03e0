//! `gpuvol wait`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use gpuvol_client::Code;
use serde::Serialize;

use crate::failure::{Failure, Result, each};
use crate::item::Item;
use crate::location::{Location, Place, stat_if_there};
use crate::output::print_json;
use crate::text::parse_duration;

/// Waits until objects are there
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol wait /data/features && python train.py
  gpuvol wait --timeout 1h /data/a /data/b

An object is there when its producer has sealed it, so there is no need to look at its size. Exit code 5 says that the \
time was up. Also for a volume that is not mounted yet, and for ordinary files.")]
pub struct Wait {
    /// For all of them together, such as 30s, 5m or 1h
    #[arg(short, long, value_name = "DURATION", value_parser = parse_duration, default_value = "5m")]
    timeout: Duration,
    /// One JSON document: {"entries": [...]}, as `gpuvol stat` writes it
    #[arg(long)]
    json: bool,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Document {
    entries: Vec<Item>,
}

impl Wait {
    pub fn run(self) -> Result<()> {
        let start = Instant::now();
        let mut entries = Vec::new();
        let outcome = each(&self.paths, |path| {
            self.one(path, start)?;
            if self.json {
                entries.push(Item::at(&Location::of(path)?)?);
            }
            Ok(())
        });
        if self.json {
            print_json(&Document { entries })?;
        }
        outcome
    }

    /// Asks instead of opening with a wait: an open would import the object, and needs its GPU to be visible here.
    fn one(&self, path: &Path, start: Instant) -> Result<()> {
        let mut pause = Duration::from_millis(1);
        loop {
            if is_there(path)? {
                return Ok(());
            }
            let left = self.timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                let what = format!("was not sealed within {:?}; is its producer running?", self.timeout);
                return Err(Failure::path(path, Code::DeadlineExceeded, what));
            }
            std::thread::sleep(pause.min(left));
            pause = (pause * 2).min(Duration::from_millis(50));
        }
    }
}

fn is_there(path: &Path) -> Result<bool> {
    match Location::of(path)?.place {
        Place::File => Ok(path.exists()),
        Place::Volume(volume, inside) => match stat_if_there(&volume, &inside)? {
            Some(entry) if entry.directory => {
                let what = format!("is a directory of volume {}, not an object", volume.id());
                Err(Failure::path(path, Code::IsADirectory, what))
            }
            entry => Ok(entry.is_some()),
        },
    }
}
