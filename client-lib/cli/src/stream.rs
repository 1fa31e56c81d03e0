//! Content from where it is to a file or a pipe, in bounded pieces: an object of many GiB in GPU memory passes through
//! a few MiB of host memory.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gpuvol_client::{Code, Object, OpenOptions};

use crate::failure::{Failure, Result};
use crate::location::{Location, Place};
use crate::progress::Progress;

/// Bytes of one piece: large enough that a copy out of a GPU is at its full speed.
const PIECE: u64 = 16 << 20;

#[derive(Debug)]
pub enum Source {
    Object(Box<Object>),
    File(PathBuf, File),
}

impl Source {
    /// Opens what is at a location, once it is there.
    pub fn open(location: &Location, wait: Duration) -> Result<Self> {
        match &location.place {
            Place::Volume(volume, path) => {
                Ok(Source::Object(Box::new(volume.open(path, &OpenOptions { wait, ..OpenOptions::default() })?)))
            }
            Place::File => {
                let path = &location.typed;
                wait_for_file(path, wait)?;
                let file = File::open(path).map_err(Failure::file(path))?;
                if file.metadata().map_err(Failure::file(path))?.is_dir() {
                    return Err(Failure::path(path, Code::IsADirectory, "is a directory"));
                }
                Ok(Source::File(path.clone(), file))
            }
        }
    }

    /// Bytes, where that is known beforehand.
    pub fn size(&self) -> Option<u64> {
        match self {
            Source::Object(object) => Some(object.size()),
            Source::File(_, file) => file.metadata().ok().filter(std::fs::Metadata::is_file).map(|m| m.len()),
        }
    }

    /// Writes all of it; `failed` makes the error of a write.
    pub fn copy_to(
        &mut self,
        target: &mut impl Write,
        progress: &mut Progress,
        failed: impl Fn(std::io::Error) -> Failure,
    ) -> Result<()> {
        match self {
            Source::Object(object) => {
                let mut at = 0;
                while at < object.size() {
                    let end = object.size().min(at + PIECE);
                    let piece = object.read(at..end)?;
                    target.write_all(&piece).map_err(&failed)?;
                    progress.advance(piece.len());
                    at = end;
                }
                Ok(())
            }
            Source::File(path, file) => {
                let mut piece = vec![0; 1 << 20];
                loop {
                    match file.read(&mut piece) {
                        Ok(0) => return Ok(()),
                        Ok(n) => {
                            target.write_all(&piece[..n]).map_err(&failed)?;
                            progress.advance(n);
                        }
                        Err(error) if error.kind() == ErrorKind::Interrupted => {}
                        Err(error) => return Err(Failure::file(path)(error)),
                    }
                }
            }
        }
    }

    /// Writes a file that is there whole or not at all: beside its path, then renamed to it.
    pub fn save(&mut self, path: &Path, no_replace: bool) -> Result<()> {
        let Some(name) = path.file_name() else {
            return Err(Failure::path(path, Code::InvalidArgument, "has no file name"));
        };
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            // A device or a pipe is written to, not replaced.
            let mut file = File::options().write(true).open(path).map_err(Failure::file(path))?;
            let mut progress = Progress::new(crate::escape::shown(name.as_encoded_bytes()), self.size());
            return self.copy_to(&mut file, &mut progress, |source| Failure::File { path: path.to_owned(), source });
        }
        let mut hidden = std::ffi::OsString::from(".");
        // A file name may have 255 bytes, and this one needs some itself.
        let start = name.as_encoded_bytes().utf8_chunks().next().map_or("", |chunk| chunk.valid());
        hidden.push(start.chars().take(40).collect::<String>());
        hidden.push(format!(".{}.gpuvol", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let mut progress = Progress::new(crate::escape::shown(name.as_encoded_bytes()), self.size());
        let mut file = File::options().write(true).create_new(true).open(&temporary).map_err(Failure::file(path))?;
        let written = self
            .copy_to(&mut file, &mut progress, |source| Failure::File { path: path.to_owned(), source })
            .and_then(|()| {
                let placed = if no_replace {
                    // Unlike a rename, a link never replaces.
                    std::fs::hard_link(&temporary, path)
                } else {
                    std::fs::rename(&temporary, path)
                };
                placed.map_err(Failure::file(path))
            });
        if written.is_err() || no_replace {
            // Best effort: the error to tell, if any, is the other one.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }
}

fn wait_for_file(path: &Path, wait: Duration) -> Result<()> {
    let start = Instant::now();
    while !wait.is_zero() && !path.exists() {
        if start.elapsed() >= wait {
            return Err(Failure::path(path, Code::DeadlineExceeded, format!("was not there within {wait:?}")));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
