//! The nodes of this user on this machine: by their records, and by their processes where the state is elsewhere.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::process;
use super::record::Record;
use super::{Error, Result, place};

/// A node that was found.
#[derive(Debug, Clone)]
pub struct Found {
    pub state: PathBuf,
    pub record: Record,
}

/// All of them, by state directory. A record that cannot be read is skipped; `--state` names it in its error.
pub fn all() -> Vec<Found> {
    // What others wrote there is not believed.
    let root = Some(place::default_root()).filter(|root| place::is_own(root));
    let below = root.and_then(|root| fs::read_dir(root).ok()).into_iter().flatten().flatten().map(|entry| entry.path());
    let serving = process::members().into_iter().map(|member| member.state);
    let states: BTreeSet<PathBuf> = below.chain(serving).collect();
    let read = |state: PathBuf| Record::read(&state).ok().flatten().map(|record| Found { state, record });
    states.into_iter().filter_map(read).collect()
}

/// The node whose volume is at this mount.
pub fn by_mount(mount: &Path) -> Result<Option<Found>> {
    let mount = place::one_spelling(mount)?;
    Ok(all().into_iter().find(|found| found.record.mount == mount))
}

/// The node of a state directory.
pub fn by_state(state: &Path) -> Result<Option<Found>> {
    let state = place::one_spelling(state)?;
    Ok(Record::read(&state)?.map(|record| Found { state, record }))
}

/// Holds a state directory against other `up` and `down` calls, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    _directory: File,
}

impl Lock {
    /// `None` where the directory is gone, or went while this waited.
    pub fn take(state: &Path, patience: Duration) -> Result<Option<Self>> {
        let until = Instant::now() + patience;
        let directory = match File::open(state) {
            Ok(directory) => directory,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Error::file("open", state)(e)),
        };
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => break,
                Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                Err(Errno::WOULDBLOCK) => {
                    let what = format!("another `gpuvol dev` at {}", state.display());
                    return Err(Error::Late { what, after: patience, logs: state.join("log") });
                }
                Err(e) => return Err(Error::file("lock", state)(e.into())),
            }
        }
        let held = directory.metadata().map_err(Error::file("look at", state))?.ino();
        let same = fs::metadata(state).is_ok_and(|now| now.ino() == held);
        Ok(same.then_some(Self { _directory: directory }))
    }
}
