//! Where a path of the command line leads: into a volume, or to an ordinary file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use gpuvol_client::{Code, Entry, ObjectPath, Volume, volume_at};

use crate::failure::{Failure, Result};

#[derive(Debug, Clone)]
pub struct Location {
    /// The path as it was typed.
    pub typed: PathBuf,
    pub place: Place,
}

#[derive(Debug, Clone)]
pub enum Place {
    Volume(Volume, ObjectPath),
    File,
}

impl Location {
    pub fn of(path: &Path) -> Result<Self> {
        let place = match volume_at(path)? {
            Some((volume, inside)) => Place::Volume(volume, inside),
            None => Place::File,
        };
        Ok(Self { typed: path.to_owned(), place })
    }

    /// What has this name in this directory. Below an ordinary directory a volume may be mounted.
    pub fn child(&self, name: &[u8]) -> Result<Self> {
        let typed = self.typed.join(OsStr::from_bytes(name));
        match &self.place {
            Place::File => Self::of(&typed),
            Place::Volume(volume, path) => {
                let inside = joined(path, name).map_err(|what| Failure::path(&typed, Code::InvalidArgument, what))?;
                Ok(Self { typed, place: Place::Volume(volume.clone(), inside) })
            }
        }
    }

    /// What a copy or a move to this path makes: the path itself, or `name` in the directory that is there.
    pub fn target(self, name: Option<&OsStr>) -> Result<Self> {
        let wants_directory = self.typed.as_os_str().as_bytes().ends_with(b"/");
        let is_directory = self.is_directory()?;
        match name {
            Some(name) if is_directory || wants_directory => self.child(name.as_bytes()),
            None if is_directory || wants_directory => {
                Err(Failure::path(&self.typed, Code::IsADirectory, "is a directory; give the object's name too"))
            }
            _ => Ok(self),
        }
    }

    pub fn is_directory(&self) -> Result<bool> {
        Ok(match &self.place {
            Place::File => self.typed.is_dir(),
            Place::Volume(volume, path) => stat_if_there(volume, path)?.is_some_and(|entry| entry.directory),
        })
    }

    /// The volume and the path inside; the error of a path on none names what to use `instead`.
    pub fn on_volume(&self, instead: &str) -> Result<(&Volume, &ObjectPath)> {
        match &self.place {
            Place::Volume(volume, path) => Ok((volume, path)),
            Place::File => Err(Failure::no_volume(&self.typed, instead)),
        }
    }
}

fn joined(path: &ObjectPath, name: &[u8]) -> std::result::Result<ObjectPath, String> {
    let mut bytes = path.as_bytes().to_vec();
    if !bytes.is_empty() {
        bytes.push(b'/');
    }
    bytes.extend_from_slice(name);
    ObjectPath::new(bytes).map_err(|error| error.to_string())
}

/// What is at a path; `None` where nothing is.
pub fn stat_if_there(volume: &Volume, path: &ObjectPath) -> Result<Option<Entry>> {
    match volume.stat(path) {
        Ok(entry) => Ok(Some(entry)),
        Err(error) if error.code() == Code::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}
