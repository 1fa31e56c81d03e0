//! `gpuvol cp`: between volumes, and between volumes and ordinary files.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gpuvol_client::{Code, Kind, Object, ObjectPath, OpenOptions, PutOptions, Volume};

use crate::failure::{Failure, Result, each};
use crate::item::{Item, What, walk_directory};
use crate::location::{Location, Place};
use crate::put::{Room, Wanted, put_content, read_file};
use crate::stream::Source;

/// The attribute that the client writes for tensors by itself.
const TENSOR_ATTRIBUTE: &str = "gpuvol.tensor";

/// Copies objects, files and directories
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol cp /data/features /scratch/features     between volumes; a table in GPU memory stays in that GPU
  gpuvol cp -r /data/run-7 /mnt/archive/         to ordinary files
  gpuvol cp model.npy /data/                     from an ordinary file, as `gpuvol put` does

An object at DEST is replaced at once when its copy is complete. Tables and tensors in GPU memory are copied within the \
GPU; bytes in GPU memory pass through the host.")]
pub struct Cp {
    /// Directories with all that is in them
    #[arg(short, long)]
    recursive: bool,
    /// Fail where DEST exists
    #[arg(short, long)]
    no_clobber: bool,
    #[arg(required = true, value_name = "SRC")]
    src: Vec<PathBuf>,
    #[arg(value_name = "DEST")]
    dest: PathBuf,
}

impl Cp {
    pub fn run(self) -> Result<()> {
        let dest = Location::of(&self.dest)?;
        if self.src.len() > 1 && !dest.is_directory()? {
            return Err(Failure::path(
                &self.dest,
                Code::NotADirectory,
                "is no directory, and there are several sources",
            ));
        }
        let copying = Copying { recursive: self.recursive, no_clobber: self.no_clobber, keep_going: true };
        each(&self.src, |path| {
            let from = Location::of(path)?;
            // What has no name of its own, as `.` and `/`, is copied into the destination itself.
            let to = match path.file_name() {
                Some(name) => dest.clone().target(Some(name))?,
                None => dest.clone(),
            };
            refuse_same(&from, &to)?;
            copying.copy(&from, &to)
        })
    }
}

/// How a tree is copied.
#[derive(Debug, Clone, Copy)]
pub struct Copying {
    pub recursive: bool,
    pub no_clobber: bool,
    /// What cannot be copied does not keep the rest from it.
    pub keep_going: bool,
}

impl Copying {
    pub fn copy(self, from: &Location, to: &Location) -> Result<()> {
        let item = Item::at(from)?;
        if item.is_directory() || (item.what == What::Symlink && from.typed.is_dir()) {
            return self.directory(from, to);
        }
        self.content(from, to)
    }

    fn directory(self, from: &Location, to: &Location) -> Result<()> {
        if !self.recursive {
            return Err(Failure::path(&from.typed, Code::IsADirectory, "is a directory; cp -r copies it"));
        }
        match &to.place {
            Place::Volume(volume, path) => volume.mkdir(path, true)?,
            Place::File => std::fs::create_dir_all(&to.typed).map_err(Failure::file(&to.typed))?,
        }
        walk_directory(from, |page| {
            let mut one = |item: Item| {
                let (from, to) = (from.child(&item.raw_name)?, to.child(&item.raw_name)?);
                match item.what {
                    What::Directory => self.directory(&from, &to),
                    What::Object | What::File => self.content(&from, &to),
                    What::Symlink | What::Other => {
                        let what = format!("is a {}, which volumes do not have; it is left out", item.what.name());
                        Err(Failure::path(&from.typed, Code::Unsupported, what))
                    }
                }
            };
            if self.keep_going { each(page, one) } else { page.into_iter().try_for_each(&mut one) }
        })
    }

    fn content(self, from: &Location, to: &Location) -> Result<()> {
        let options = PutOptions { exclusive: self.no_clobber, ..PutOptions::default() };
        match (&from.place, &to.place) {
            (_, Place::File) => Source::open(from, Duration::ZERO)?.save(&to.typed, self.no_clobber),
            (Place::File, Place::Volume(volume, path)) => {
                put_content(volume, path, &read_file(&from.typed, Some(&Room::of(volume)?))?, Wanted::Auto, &options)
                    .map(|_| ())
            }
            (Place::Volume(volume, path), Place::Volume(other, target)) => {
                let object = volume.open(path, &OpenOptions::default())?;
                copy_object(&object, other, target, options)
            }
        }
    }
}

/// From volume to volume, where possible within the memory that holds it.
fn copy_object(object: &Object, volume: &Volume, path: &ObjectPath, mut options: PutOptions) -> Result<()> {
    let attributes = object.entry().attributes.iter().filter(|a| a.name != TENSOR_ATTRIBUTE);
    options.attributes = attributes.map(|a| (a.name.clone(), a.value.clone())).collect();
    let gpu = object.device().filter(|_| !object.on_host());
    match (object.kind(), gpu) {
        (Kind::Arrow, Some(gpu)) => volume.put_device_table(path, &*object.device_table(None)?, gpu, &options)?,
        (Kind::Tensor, Some(gpu)) => {
            let view = object.device_tensor()?;
            let (meta, data) = &*view;
            volume.put_device_tensor(path, meta, *data, gpu, &options)?
        }
        (Kind::Bytes, gpu) => {
            options.upload = gpu;
            volume.put_bytes(path, &object.bytes()?, &options)?
        }
        (Kind::Arrow, None) => put_content(volume, path, &object.bytes()?, Wanted::Arrow, &options)?.0,
        (Kind::Tensor, None) => {
            let (meta, data) = object.tensor()?;
            volume.put_tensor(path, &meta, &data, &options)?
        }
    };
    Ok(())
}

/// A copy onto itself would change nothing, and one into itself would not end.
pub fn refuse_same(from: &Location, to: &Location) -> Result<()> {
    let refuse = |what: &str| {
        let what = format!("{what} {}", crate::escape::shown_path(&to.typed));
        Err(Failure::path(&from.typed, Code::InvalidArgument, what))
    };
    match (&from.place, &to.place) {
        (Place::Volume(volume, source), Place::Volume(other, target)) if volume.id() == other.id() => {
            if source == target {
                return refuse("is the same as");
            }
            let inside = target.as_bytes().strip_prefix(source.as_bytes());
            if source.is_root() || inside.is_some_and(|rest| rest.starts_with(b"/")) {
                return refuse("cannot be copied into itself, to");
            }
            Ok(())
        }
        (Place::File, Place::File) => {
            let Ok(source) = from.typed.canonicalize() else { return Ok(()) };
            // The target need not exist; the directory that it comes into does.
            let target = to.typed.canonicalize().ok().or_else(|| {
                let parent = to.typed.parent().map(|p| if p.as_os_str().is_empty() { ".".as_ref() } else { p })?;
                Some(parent.canonicalize().ok()?.join(to.typed.file_name()?))
            });
            match target {
                Some(target) if target == source => refuse("is the same as"),
                Some(target) if target.starts_with(&source) => refuse("cannot be copied into itself, to"),
                _ => Ok(()),
            }
        }
        _ => Ok(()),
    }
}
