//! `gpuvol mv`.

use std::path::PathBuf;

use clap::Args;
use gpuvol_client::Code;

use crate::copy::{Copying, refuse_same};
use crate::failure::{Failure, Result, each};
use crate::location::{Location, Place};
use crate::remove::remove_directory;

/// Moves objects and directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol mv /data/features.tmp /data/features      within a volume: atomic, nothing is copied
  gpuvol mv /data/a /data/b /data/old/
  gpuvol mv /data/result /mnt/archive/result.arrow  to another place: copied, then removed

An object at DEST is replaced.")]
pub struct Mv {
    /// Fail where DEST exists
    #[arg(short, long)]
    no_clobber: bool,
    #[arg(required = true, value_name = "SRC")]
    src: Vec<PathBuf>,
    #[arg(value_name = "DEST")]
    dest: PathBuf,
}

impl Mv {
    pub fn run(self) -> Result<()> {
        let dest = Location::of(&self.dest)?;
        if self.src.len() > 1 && !dest.is_directory()? {
            return Err(Failure::path(
                &self.dest,
                Code::NotADirectory,
                "is no directory, and there are several sources",
            ));
        }
        each(&self.src, |path| {
            let from = Location::of(path)?;
            let to = dest.clone().target(path.file_name())?;
            self.one(&from, &to)
        })
    }

    fn one(&self, from: &Location, to: &Location) -> Result<()> {
        match (&from.place, &to.place) {
            (Place::Volume(volume, inside), Place::Volume(other, target)) if volume.id() == other.id() => {
                return Ok(volume.rename(inside, target, self.no_clobber)?);
            }
            (Place::File, Place::File) => {
                return Err(Failure::path(
                    &from.typed,
                    Code::InvalidArgument,
                    "is on no gpu-volume, nor is the destination; use mv",
                ));
            }
            _ => {}
        }
        refuse_same(from, to)?;
        let copying = Copying { recursive: true, no_clobber: self.no_clobber, keep_going: false };
        copying.copy(from, to)?;
        match &from.place {
            Place::Volume(..) if from.is_directory()? => remove_directory(from),
            Place::Volume(volume, inside) => Ok(volume.unlink(inside)?),
            Place::File if from.typed.is_dir() => {
                std::fs::remove_dir_all(&from.typed).map_err(Failure::file(&from.typed))
            }
            Place::File => std::fs::remove_file(&from.typed).map_err(Failure::file(&from.typed)),
        }
    }
}
