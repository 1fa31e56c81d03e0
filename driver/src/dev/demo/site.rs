//! The demo's temporary directory: the node's state, what stands in for kubelet's directory, and the files of the ways
//! that are compared.

use std::fs;
use std::path::{Path, PathBuf};

use super::{FILES, Outcome};
use crate::dev::record::Layout;
use crate::dev::supervisor::tail;
use crate::dev::{Error, Result, place, programs};
use crate::topology::hash;

const SHORTER: &str = "set TMPDIR to a shorter one";

#[derive(Debug)]
pub struct Site {
    directory: PathBuf,
}

impl Site {
    /// Makes it, below the directory for temporary files.
    pub fn make() -> Result<Self> {
        let temporary = std::env::temp_dir();
        let temporary = temporary.canonicalize().map_err(Error::file("find", temporary))?;
        let clock = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        for _ in 0..8 {
            let unique = hash(&format!("{} {}", std::process::id(), clock()), 8);
            let site = Self { directory: temporary.join(format!("gpuvol-demo-{unique}")) };
            place::check_length(&site.state(), SHORTER)?;
            if !place::make_private(&site.directory)? {
                continue;
            }
            let mut all = vec![site.state(), site.targets(), site.scratch(), site.temporary(), site.files()];
            all.extend(FILES.iter().map(|via| site.files_of(via)));
            for directory in all {
                fs::create_dir(&directory).map_err(Error::file("make", &directory))?;
            }
            return Ok(site);
        }
        Err(Error::file("make a directory in", temporary)(std::io::ErrorKind::AlreadyExists.into()))
    }

    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn state(&self) -> PathBuf {
        self.directory.join("state")
    }

    /// What volumes are published below.
    pub fn targets(&self) -> PathBuf {
        self.directory.join("kubelet")
    }

    /// Where the root of a stage's view is mounted.
    pub fn scratch(&self) -> PathBuf {
        self.directory.join("scratch")
    }

    /// `TMPDIR` of the stages.
    pub fn temporary(&self) -> PathBuf {
        self.directory.join("tmp")
    }

    /// The files of all ways by file.
    pub fn files(&self) -> PathBuf {
        self.directory.join("files")
    }

    /// The directory of one way by file.
    pub fn files_of(&self, via: &str) -> PathBuf {
        self.files().join(via)
    }

    /// A target path as kubelet makes them, its parent there.
    pub fn target(&self, pod: &str, volume: &str) -> Result<PathBuf> {
        let parent = self.targets().join("pods").join(pod).join("volumes/kubernetes.io~csi").join(volume);
        fs::create_dir_all(&parent).map_err(Error::file("make", &parent))?;
        Ok(parent.join("mount"))
    }

    /// The ends of the node's logs; `None` where there are none.
    pub fn log_tails(&self) -> Option<String> {
        let layout = Layout { state: self.state() };
        let logs = [programs::KEEPER, programs::STORE, programs::MOUNTER, programs::PLUGIN]
            .map(|name| (name, layout.log(name)))
            .into_iter()
            .filter(|(_, log)| log.exists())
            .map(|(name, log)| format!("--- {name}\n{}", tail(&log)))
            .collect::<Vec<_>>();
        (!logs.is_empty()).then(|| logs.join("\n"))
    }

    /// Copies the files of the ways by file to a directory of the user's.
    pub fn keep(&self, to: &Path) -> Result<()> {
        fs::create_dir_all(to).map_err(Error::file("make", to))?;
        for via in FILES {
            let from = self.files_of(via);
            for entry in fs::read_dir(&from).map_err(Error::file("list", &from))?.flatten() {
                let copy = to.join(entry.file_name());
                fs::copy(entry.path(), &copy).map_err(Error::file("write", copy))?;
            }
        }
        Ok(())
    }

    /// Where the files are, and on what file system: on one in memory they are no slower than memory.
    pub fn disk(&self) -> String {
        let magic = rustix::fs::statfs(self.files()).map(|s| s.f_type).unwrap_or_default();
        let kind = match magic {
            0x0102_1994 => "tmpfs, which is memory",
            0xef53 => "ext4",
            0x5846_5342 => "xfs",
            0x9123_683e => "btrfs",
            0x794c_7630 => "overlayfs",
            0x2fc1_2fc1 => "zfs",
            _ => "a file system",
        };
        format!("{kind} at {}", std::env::temp_dir().display())
    }

    /// Removes everything. What cannot be removed is found by the search for remains.
    pub fn remove(self) {
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            tracing::error!(path = %self.directory.display(), %error, "not removed");
        }
    }
}

/// Whether every way led to the same score.
pub fn scores_agree(ways: &[Outcome]) -> bool {
    ways.windows(2).all(|pair| (pair[0].score - pair[1].score).abs() < f64::EPSILON)
}
