//! `gpuvol rm`.

use std::path::PathBuf;

use clap::Args;
use gpuvol_client::{Code, Error};

use crate::failure::{Failure, Result, each};
use crate::item::{Item, walk_directory};
use crate::location::Location;

/// Removes objects and directories from a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol rm /data/features
  gpuvol rm -r /data/run-7

Who has a removed object open keeps it: its memory is free, and back in the volume's quota, when the last reader is gone \
(`gpuvol df` shows it as pinned until then).")]
pub struct Rm {
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// What is not there is fine
    #[arg(short, long)]
    force: bool,
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
}

impl Rm {
    pub fn run(self) -> Result<()> {
        each(&self.paths, |path| {
            let location = Location::of(path)?;
            let (volume, inside) = location.on_volume("rm")?;
            if inside.is_root() {
                let what = format!("is the root of volume {}; name what is in it", volume.id());
                return Err(Failure::path(path, Code::InvalidArgument, what));
            }
            match volume.unlink(inside) {
                Ok(()) => Ok(()),
                Err(error) if self.force && error.code() == Code::NotFound => Ok(()),
                Err(error) if error.code() == Code::IsADirectory && self.recursive => remove_directory(&location),
                Err(error) if error.code() == Code::IsADirectory => {
                    Err(Failure::path(path, Code::IsADirectory, "is a directory; rm -r removes it with all in it"))
                }
                Err(error) => Err(error.into()),
            }
        })
    }
}

/// Removes a directory of a volume and all below it. What others remove meanwhile is fine.
pub fn remove_directory(location: &Location) -> Result<()> {
    let (volume, inside) = location.on_volume("rm -r")?;
    let gone = |outcome: std::result::Result<(), Error>| match outcome {
        Err(error) if error.code() != Code::NotFound => Err(Failure::from(error)),
        _ => Ok(()),
    };
    walk_directory(location, |page| {
        each(page, |item: Item| {
            let child = location.child(&item.raw_name)?;
            if item.is_directory() {
                return remove_directory(&child);
            }
            gone(volume.unlink(child.on_volume("rm")?.1))
        })
    })?;
    gone(volume.rmdir(inside))
}
