//! The forms in which a published volume may appear, and which of them this process can make.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::mount::Detached;
use crate::mount::fuse::FuseMount;

/// How a published volume appears at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountMode {
    /// As a file system with the volume's files.
    View,
    /// As a read-only mount with nothing but the store's socket.
    Bind,
    /// As a plain directory, for machines where mounting is not permitted.
    None,
}

/// The most that is permitted here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Best {
    pub mode: MountMode,
    /// Why it is no more; empty for a view.
    pub why: String,
}

impl MountMode {
    /// As the flag has it.
    pub fn name(self) -> &'static str {
        match self {
            MountMode::View => "view",
            MountMode::Bind => "bind",
            MountMode::None => "none",
        }
    }
}

impl fmt::Display for MountMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Best {
    /// Found out by making detached mounts, which nobody sees: a FUSE mount, or one of `directory`.
    pub fn here(directory: &Path) -> Self {
        let fuse = match FuseMount::create() {
            Ok(_) => return Self { mode: MountMode::View, why: String::new() },
            Err(error) => format!("no FUSE mount can be made ({error})"),
        };
        match bind(directory) {
            Ok(()) => Self { mode: MountMode::Bind, why: fuse },
            Err(error) => Self { mode: MountMode::None, why: format!("{fuse}, and no other mount ({error})") },
        }
    }
}

fn bind(directory: &Path) -> io::Result<()> {
    Detached::read_only(File::open(directory)?.as_fd()).map(drop)
}
