//! Files that are named by the SHA-256 of their content.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::stale;
use crate::content::content;
use crate::mapping::Mapping;
use crate::rng::Rng;
use crate::size::index;

const DIRECTORIES: u64 = 16;
/// Contents that several processes write, so that names are replaced by the same bytes.
const SHARED_SEEDS: u64 = 40;

/// Where objects are in a mount.
#[derive(Debug, Clone)]
pub struct Objects {
    root: PathBuf,
}

impl Objects {
    pub fn new(within: &Path) -> Self {
        Self { root: within.join("objects") }
    }

    pub fn prepare(&self) -> Result<(), String> {
        for n in 0..DIRECTORIES {
            let directory = self.directory(n);
            std::fs::create_dir_all(&directory).map_err(|error| format!("mkdir {}: {error}", directory.display()))?;
        }
        Ok(())
    }

    /// Writes one under another name, by any of the ways programs have, and renames it. Returns its path and size.
    pub fn put(&self, rng: &mut Rng, unique: &str) -> Result<(PathBuf, u64), String> {
        let shared = rng.once_in(5);
        let seed = if shared { rng.below(SHARED_SEEDS) } else { rng.next() };
        let length = if shared { 1000 + seed * 997 } else { length(rng) };
        let bytes = content(seed, index(length));
        let name = hash(&bytes);
        let directory = self.directory(u64::from(name.as_bytes()[0]));
        let beside = directory.join(format!(".{unique}"));
        let path = directory.join(name);
        write(&beside, &bytes, rng).map_err(|error| format!("writing {}: {error}", beside.display()))?;
        std::fs::rename(&beside, &path)
            .map_err(|error| format!("rename {} to {}: {error}", beside.display(), path.display()))?;
        Ok((path, length))
    }

    /// Reads a random one that is there. Whether one was read: it may be gone before it is opened.
    pub fn get(&self, rng: &mut Rng) -> Result<bool, String> {
        let names = self.names(rng.below(DIRECTORIES))?;
        if names.is_empty() {
            return Ok(false);
        }
        verify(rng.pick(&names[..]).as_path(), rng.once_in(3))
    }

    pub fn all(&self) -> Result<Vec<PathBuf>, String> {
        let mut all = Vec::new();
        for n in 0..DIRECTORIES {
            all.extend(self.names(n)?);
        }
        Ok(all)
    }

    /// Final names only.
    fn names(&self, directory: u64) -> Result<Vec<PathBuf>, String> {
        let directory = self.directory(directory);
        let failed = |error| format!("listing {}: {error}", directory.display());
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            if !name.as_encoded_bytes().starts_with(b".") {
                names.push(directory.join(name));
            }
        }
        Ok(names)
    }

    fn directory(&self, n: u64) -> PathBuf {
        self.root.join(format!("{:x}", n % DIRECTORIES))
    }
}

/// Takes it away; somebody else may have.
pub fn remove(path: &Path) -> Result<(), String> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(format!("unlink {}: {error}", path.display())),
        _ => Ok(()),
    }
}

/// Whether it was there; an error where its bytes are not those of its name.
pub fn verify(path: &Path, mapped: bool) -> Result<bool, String> {
    let failed = |doing: &str, error: &dyn std::fmt::Display| format!("{doing} {}: {error}", path.display());
    let mut file = match stale::through(|| File::open(path)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        other => other.map_err(|error| failed("open", &error))?,
    };
    let size = file.metadata().map_err(|error| failed("fstat", &error))?.len();
    let bytes = if mapped && size > 0 {
        Mapping::new(&file, 0, index(size), false).map_err(|error| failed("mmap", &error))?.read(0, index(size))
    } else {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|error| failed("read", &error))?;
        bytes
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let got = hash(&bytes);
    if got == *name {
        return Ok(true);
    }
    let zeros = bytes.iter().filter(|&&byte| byte == 0).count();
    Err(format!(
        "{} has other bytes than its name says: {} bytes ({zeros} of them zero), size by fstat {size}, hash {got}, {}",
        path.display(),
        bytes.len(),
        if mapped { "mapped" } else { "read" },
    ))
}

fn write(path: &Path, bytes: &[u8], rng: &mut Rng) -> std::io::Result<()> {
    let open = || File::options().read(true).write(true).create(true).truncate(true).open(path);
    let mut file = stale::through(open)?;
    match rng.below(4) {
        0 => file.write_all(bytes)?,
        1 => bytes.chunks(4096).try_for_each(|chunk| file.write_all(chunk))?,
        2 if !bytes.is_empty() => {
            file.set_len(bytes.len() as u64)?;
            let mut map = Mapping::new(&file, 0, bytes.len(), true)?;
            map.write(0, bytes);
            map.sync()?;
        }
        _ => {
            let half = bytes.len() / 2;
            file.write_all(&bytes[..half])?;
            // A descriptor of the same file that is closed early.
            drop(file.try_clone()?);
            file.write_all(&bytes[half..])?;
        }
    }
    if rng.once_in(3) { file.sync_all() } else { Ok(()) }
}

fn length(rng: &mut Rng) -> u64 {
    match rng.below(40) {
        0 => 0,
        1 => rng.between(1 << 20, 4 << 20),
        2..20 => rng.below(8000),
        _ => rng.below(200_000),
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
