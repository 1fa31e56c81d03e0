//! `gpuvol mkdir`.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Result, each};
use crate::location::Location;

/// Makes directories on a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol mkdir /data/run-7
  gpuvol mkdir -p /data/run-7/shards

A put makes the directories above it by itself.")]
pub struct Mkdir {
    /// Directories above too; one that exists is fine
    #[arg(short, long)]
    parents: bool,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Mkdir {
    pub fn run(self) -> Result<()> {
        each(&self.paths, |path| {
            let location = Location::of(path)?;
            let (volume, inside) = location.on_volume("mkdir")?;
            Ok(volume.mkdir(inside, self.parents)?)
        })
    }
}
