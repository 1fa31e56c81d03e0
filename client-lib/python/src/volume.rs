//! Names and numbers of a volume. Each call answers `None` for a path that is on no volume.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gpuvol_client::{DeviceUuid, Entry, ObjectPath, Result, Volume, volume_at};
use pyo3::prelude::*;

use crate::error::raised;

/// An entry as a Python dictionary.
#[derive(Debug, IntoPyObject)]
pub struct Facts {
    /// The last component of its path, as the operating system encodes it.
    name: std::ffi::OsString,
    kind: &'static str,
    size: u64,
    version: u64,
    tier: &'static str,
    device: Option<String>,
    /// Seconds since the epoch.
    modified: f64,
    producer: String,
    attributes: BTreeMap<String, String>,
}

impl Facts {
    pub fn of(entry: &Entry) -> Self {
        use std::os::unix::ffi::OsStringExt;
        Self {
            name: std::ffi::OsString::from_vec(entry.name.clone()),
            kind: if entry.directory { "directory" } else { entry.kind().name() },
            size: entry.size,
            version: entry.version,
            tier: entry.tier().name(),
            device: uuid_text(&entry.device),
            modified: std::time::Duration::from_millis(entry.time_ms).as_secs_f64(),
            producer: entry.producer.clone(),
            attributes: entry.attributes.iter().map(|a| (a.name.clone(), a.value.clone())).collect(),
        }
    }
}

fn uuid_text(device: &[u8]) -> Option<String> {
    DeviceUuid::try_from(device).ok().map(|uuid| uuid.to_string())
}

/// Asks the volume that a path is on, without the interpreter's lock.
fn asked<T: Send>(
    py: Python<'_>,
    path: &Path,
    ask: impl FnOnce(&Volume, &ObjectPath) -> Result<T> + Send,
) -> PyResult<Option<T>> {
    let answer = py.detach(|| volume_at(path)?.map(|(volume, inside)| ask(&volume, &inside)).transpose());
    answer.map_err(|error| raised(py, path, &error))
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn stat(py: Python<'_>, path: PathBuf) -> PyResult<Option<Facts>> {
    asked(py, &path, |volume, inside| Ok(Facts::of(&volume.stat(inside)?)))
}

/// A directory's entries, in byte order of their names.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn entries(py: Python<'_>, path: PathBuf) -> PyResult<Option<Vec<Facts>>> {
    asked(py, &path, |volume, inside| Ok(volume.list(inside)?.iter().map(Facts::of).collect()))
}

/// True where the path was on a volume, and is gone from it.
#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn unlink(py: Python<'_>, path: PathBuf) -> PyResult<bool> {
    Ok(asked(py, &path, Volume::unlink)?.is_some())
}

/// A volume's numbers as a Python dictionary; sizes in bytes.
#[derive(Debug, IntoPyObject)]
pub struct Numbers {
    volume: String,
    capacity: u64,
    used: u64,
    gpu: u64,
    pinned: u64,
    reserved: u64,
    entries: u64,
    max_entries: u64,
    leases: u64,
    tier: &'static str,
    device: Option<String>,
    read_only: bool,
}

#[pyfunction]
#[expect(clippy::needless_pass_by_value, reason = "arguments of Python arrive as values")]
pub fn usage(py: Python<'_>, path: PathBuf) -> PyResult<Option<Numbers>> {
    asked(py, &path, |volume, _| {
        let usage = volume.usage()?;
        Ok(Numbers {
            volume: volume.id(),
            capacity: usage.capacity,
            used: usage.used,
            gpu: usage.gpu,
            pinned: usage.pinned,
            reserved: usage.reserved,
            entries: usage.entries,
            max_entries: usage.max_entries,
            leases: usage.leases,
            tier: usage.tier().name(),
            device: uuid_text(&usage.device),
            read_only: volume.read_only(),
        })
    })
}
