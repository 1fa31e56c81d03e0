//! `dev.json`: what a node is, who runs it, and what was there before it. Written by rename, by its supervisor only once
//! that runs.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::directory::Before;
use super::process::Identity;
use super::{Error, Result};
use crate::publish::MountMode;

const FILE: &str = "dev.json";
/// Of the file; another one is not read.
const FORMAT: u32 = 2;

/// One node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    format: u32,
    /// The kernel's id of the boot in which it was written: pids of another one mean nothing.
    boot: String,
    pub name: String,
    /// Where the volume is published.
    pub mount: PathBuf,
    pub before: Before,
    /// The state directory was made for this node.
    pub state_made: bool,
    pub wanted: Wanted,
    pub phase: Phase,
    /// The volume's id, once there is one.
    pub volume: Option<String>,
    /// Where its objects live, for people.
    pub device: Option<String>,
    pub processes: Vec<Process>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Bytes.
    pub capacity: u64,
    /// `auto`, `host`, `gpu` or a UUID.
    pub device: String,
    /// How the volume appears at its mount.
    pub mode: MountMode,
    /// Why it is not a view; empty where it is one.
    pub why: String,
    pub bin_dir: Option<PathBuf>,
    pub store_flags: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    Starting,
    Up,
    Ending,
    /// It did not come up, and why.
    Failed(String),
}

/// A process of the node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// `supervisor`, or the program's name.
    pub role: String,
    #[serde(flatten)]
    pub identity: Identity,
    /// How often it was started again.
    pub restarts: u32,
}

/// The role of the process that starts the others again.
pub const SUPERVISOR: &str = "supervisor";

impl Record {
    pub fn new(name: String, mount: PathBuf, before: Before, state_made: bool, wanted: Wanted) -> Self {
        let (phase, processes) = (Phase::Starting, Vec::new());
        Self {
            format: FORMAT,
            boot: boot(),
            name,
            mount,
            before,
            state_made,
            wanted,
            phase,
            volume: None,
            device: None,
            processes,
        }
    }

    /// `None` where the directory holds no node.
    pub fn read(state: &Path) -> Result<Option<Self>> {
        let path = state.join(FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(e) => return Err(Error::file("read", path)(e)),
        };
        let mut record: Self =
            serde_json::from_slice(&text).map_err(|source| Error::Record { path: path.clone(), source })?;
        if record.format != FORMAT {
            let source = serde::de::Error::custom(format!("format {}, not {FORMAT}", record.format));
            return Err(Error::Record { path, source });
        }
        if record.boot != boot() {
            record.processes.clear();
        }
        Ok(Some(record))
    }

    pub fn write(&self, state: &Path) -> Result<()> {
        let (path, fresh) = (state.join(FILE), state.join(".dev.json.new"));
        let write = || {
            let mut file = File::create(&fresh)?;
            serde_json::to_writer_pretty(&mut file, self)?;
            file.write_all(b"\n")?;
            fs::rename(&fresh, &path)
        };
        write().map_err(Error::file("write", &path))
    }

    /// A process was started: it takes the place of the one before it in its role.
    pub fn note(&mut self, role: &str, identity: Identity, restarts: u32) {
        self.processes.retain(|process| process.role != role);
        self.processes.push(Process { role: role.to_owned(), identity, restarts });
    }

    pub fn supervisor(&self) -> Option<Identity> {
        self.processes.iter().find(|p| p.role == SUPERVISOR).map(|p| p.identity)
    }

    pub fn supervisor_lives(&self) -> bool {
        self.supervisor().is_some_and(Identity::lives)
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

/// Sockets and logs of a node.
#[derive(Debug, Clone)]
pub struct Layout {
    pub state: PathBuf,
}

impl Layout {
    pub fn plugin_socket(&self) -> PathBuf {
        self.state.join("csi.sock")
    }

    pub fn admin_socket(&self) -> PathBuf {
        self.state.join(crate::store_client::ADMIN_SOCKET)
    }

    pub fn logs(&self) -> PathBuf {
        self.state.join("log")
    }

    pub fn log(&self, name: &str) -> PathBuf {
        self.logs().join(format!("{name}.log"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), None);
        let wanted = Wanted {
            capacity: 7,
            device: "auto".into(),
            mode: MountMode::Bind,
            why: "no /dev/fuse".into(),
            bin_dir: None,
            store_flags: vec![],
        };
        let mut record = Record::new("n".into(), "/m".into(), Before::default(), true, wanted);
        let me = Identity::of(std::process::id()).unwrap();
        record.note("gpuvol-store", me, 0);
        record.note("gpuvol-store", me, 1);
        record.phase = Phase::Failed("why".into());
        record.write(dir.path()).unwrap();
        assert_eq!(Record::read(dir.path()).unwrap(), Some(record.clone()));
        assert_eq!(record.processes.len(), 1);
        record.boot = "another".into();
        record.write(dir.path()).unwrap();
        assert!(Record::read(dir.path()).unwrap().unwrap().processes.is_empty());
        fs::write(dir.path().join(FILE), "{").unwrap();
        assert!(Record::read(dir.path()).is_err());
    }
}
