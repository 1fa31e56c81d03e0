//! `gpuvol get`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gpuvol_client::Code;

use crate::failure::{Failure, Result};
use crate::location::{Location, Place};
use crate::output::raw_stdout;
use crate::progress::Progress;
use crate::stream::Source;
use crate::text::parse_duration;

/// Copies an object to an ordinary file
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol get /data/features                     to ./features
  gpuvol get /data/features features.arrow
  gpuvol get /data/features - | sha256sum
  gpuvol get --wait 10m /data/model /tmp/

The file is written beside DEST and renamed, so DEST is never half there. For a copy onto a volume use `gpuvol cp`.")]
pub struct Get {
    /// Wait so long for an object that is not there yet, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, default_value = "0")]
    wait: Duration,
    /// Fail where DEST exists
    #[arg(short, long)]
    no_clobber: bool,
    #[arg(value_name = "PATH")]
    path: PathBuf,
    /// A file, a directory to put it into, or - for standard output
    #[arg(value_name = "DEST", default_value = ".")]
    dest: PathBuf,
}

impl Get {
    pub fn run(self) -> Result<()> {
        let location = Location::of(&self.path)?;
        location.on_volume("cp")?;
        let to_stdout = self.dest == Path::new("-");
        let target = if to_stdout { None } else { Some(Location::of(&self.dest)?.target(self.path.file_name())?) };
        if let Some(target) = &target
            && matches!(target.place, Place::Volume(..))
        {
            let what = "is on a gpu-volume; `gpuvol cp` copies from one volume to another";
            return Err(Failure::path(&target.typed, Code::InvalidArgument, what));
        }
        let mut source = Source::open(&location, self.wait)?;
        match target {
            Some(target) => source.save(&target.typed, self.no_clobber),
            None => source.copy_to(&mut raw_stdout()?, &mut Progress::hidden(), Failure::Output),
        }
    }
}
