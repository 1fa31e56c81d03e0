//! Before and after: the directories, and what must be there in the end, by every mount.

use std::collections::BTreeMap;
use std::path::Path;

use super::log;
use super::objects::{self, Objects};
use crate::progress::Progress;

pub fn prepare(within: &Path) -> Result<(), String> {
    std::fs::create_dir_all(within).map_err(|error| format!("mkdir {}: {error}", within.display()))?;
    Objects::new(within).prepare()?;
    log::prepare(within)
}

/// Every object has the bytes of its name, and every record of every process is there once.
pub fn verify(within: &Path, written: &BTreeMap<u64, u64>, progress: &mut Progress) -> Result<String, String> {
    let objects = Objects::new(within).all()?;
    for path in &objects {
        progress.at(format_args!("verifying {}", path.display()));
        if !objects::verify(path, false)? {
            return Err(format!("{} is listed but not there, with nobody at work", path.display()));
        }
    }
    let logs = log::all(within)?;
    let mut found = Vec::new();
    for path in &logs {
        progress.at(format_args!("verifying {}", path.display()));
        found.push(log::read(path, false)?);
    }
    log::complete(&found, written)?;
    Ok(format!("{} objects, {} logs", objects.len(), logs.len()))
}

pub fn take_away(within: &Path) -> Result<(), String> {
    std::fs::remove_dir_all(within).map_err(|error| format!("taking {} away: {error}", within.display()))
}
