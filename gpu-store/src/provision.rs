//! The list of provisioned volumes, which outlives a reboot: one small JSON file each, replaced by rename.
//!
//! Content is volatile, the promise is not: after a reboot, or after keeper and store died together, the files say which
//! volumes existed and whether anything had ever been put into them, so that none comes back silently empty.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gpuvol_protocol::admin::VolumeSpec;
use gpuvol_protocol::message::Tier;
use serde::{Deserialize, Serialize};

const SUFFIX: &str = ".json";

/// One volume as its file has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Provisioned {
    pub id: String,
    pub name: String,
    /// Bytes.
    pub capacity: u64,
    /// `host` or `gpu`.
    pub tier: String,
    /// The GPU's UUID asked for, as 32 hex digits; empty for the one of the first device put.
    pub device: String,
    pub on_loss_empty: bool,
    /// Something was put into it once.
    pub written: bool,
    /// When its content was lost, in milliseconds since the epoch; 0 where it was not.
    pub lost_ms: u64,
    /// The boot during which it was written last.
    pub boot: String,
}

impl Provisioned {
    pub fn new(spec: &VolumeSpec) -> Self {
        Self {
            id: spec.id.clone(),
            name: spec.name.clone(),
            capacity: spec.capacity,
            tier: spec.tier_or_host().name().to_owned(),
            device: spec.device.iter().map(|b| format!("{b:02x}")).collect(),
            on_loss_empty: spec.on_loss != 0,
            written: false,
            lost_ms: 0,
            boot: boot_id(),
        }
    }

    pub fn spec(&self) -> VolumeSpec {
        let digit = |b: u8| char::from(b).to_digit(16).and_then(|d| u8::try_from(d).ok()).unwrap_or(0);
        VolumeSpec {
            id: self.id.clone(),
            name: self.name.clone(),
            capacity: self.capacity,
            tier: if self.tier == Tier::Gpu.name() { Tier::Gpu.into() } else { Tier::Host.into() },
            device: self.device.as_bytes().chunks_exact(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect(),
            on_loss: i32::from(self.on_loss_empty),
        }
    }
}

#[derive(Debug)]
pub struct Provisions {
    directory: PathBuf,
    /// Held while a file is read and written again.
    writing: Mutex<()>,
}

impl Provisions {
    pub fn open(state: &Path) -> io::Result<Self> {
        let directory = state.join("volumes");
        fs::create_dir_all(&directory)?;
        Ok(Self { directory, writing: Mutex::new(()) })
    }

    fn file(&self, id: &str) -> PathBuf {
        // A volume id has no '/' and does not begin with '.', so it names a file of this directory.
        self.directory.join(format!("{id}{SUFFIX}"))
    }

    pub fn write(&self, volume: &Provisioned) -> io::Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        self.replace(volume)
    }

    fn replace(&self, volume: &Provisioned) -> io::Result<()> {
        let temporary = self.directory.join(format!(".{}.new", volume.id));
        let mut file = fs::File::create(&temporary)?;
        serde_json::to_writer_pretty(&mut file, volume)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&temporary, self.file(&volume.id))?;
        fs::File::open(&self.directory)?.sync_all()
    }

    pub fn read(&self, id: &str) -> io::Result<Provisioned> {
        Ok(serde_json::from_slice(&fs::read(self.file(id))?)?)
    }

    pub fn update(&self, id: &str, change: impl FnOnce(&mut Provisioned)) -> io::Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut volume = self.read(id)?;
        change(&mut volume);
        self.replace(&volume)
    }

    pub fn remove(&self, id: &str) -> io::Result<()> {
        let _one_at_a_time = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        match fs::remove_file(self.file(id)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Every volume, and the ids of those whose file is there and cannot be read: it is left where it is, and says that the
    /// volume exists.
    pub fn all(&self) -> io::Result<(Vec<Provisioned>, Vec<String>)> {
        let (mut volumes, mut unreadable) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.directory)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if name.starts_with('.') || !name.ends_with(SUFFIX) {
                continue;
            }
            match fs::read(&path).and_then(|text| Ok(serde_json::from_slice(&text)?)) {
                Ok(volume) => volumes.push(volume),
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "a volume's file cannot be read");
                    unreadable.push(name.trim_end_matches(SUFFIX).to_owned());
                }
            }
        }
        Ok((volumes, unreadable))
    }
}

/// The kernel's id of this boot.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_back() {
        let state = tempfile::tempdir().unwrap();
        let provisions = Provisions::open(state.path()).unwrap();
        let spec = VolumeSpec {
            id: "gv-1".into(),
            name: "pvc".into(),
            capacity: 7,
            tier: Tier::Gpu.into(),
            device: (0..16).collect(),
            on_loss: 1,
        };
        provisions.write(&Provisioned::new(&spec)).unwrap();
        provisions.update("gv-1", |v| v.written = true).unwrap();
        let (all, _) = provisions.all().unwrap();
        assert_eq!((all.len(), all[0].written, all[0].spec()), (1, true, spec));
        provisions.remove("gv-1").unwrap();
        provisions.remove("gv-1").unwrap();
        assert!(provisions.all().unwrap().0.is_empty());
    }

    #[test]
    fn a_damaged_file_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let provisions = Provisions::open(state.path()).unwrap();
        fs::write(state.path().join("volumes/x.json"), "{").unwrap();
        fs::write(state.path().join("volumes/.y.new"), "{").unwrap();
        assert_eq!(provisions.all().unwrap(), (vec![], vec!["x".to_owned()]));
        assert!(state.path().join("volumes/x.json").exists());
    }
}
