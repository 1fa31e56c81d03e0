//! A store, a mount and a mounter.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::view_mount::{Mount, Starter, can_run};
use crate::view_store::ViewStore;

pub struct Rig {
    // Dropped in this order: what hangs in the mount is let go first.
    pub mount: Mount,
    starter: Starter,
    mounter: Option<u32>,
    pub store: ViewStore,
    pub dir: TempDir,
}

impl Rig {
    /// `None`, with a line that says so, where it cannot run.
    pub fn new() -> Option<Self> {
        Self::with(true)
    }

    pub fn with(passthrough: bool) -> Option<Self> {
        let mut rig = Self::without_mounter(passthrough)?;
        rig.succeed();
        Some(rig)
    }

    pub fn without_mounter(passthrough: bool) -> Option<Self> {
        if !can_run() {
            return None;
        }
        let starter = Starter::new();
        let dir = tempfile::Builder::new().prefix("gpuvol-mounter-").tempdir().unwrap();
        let store = ViewStore::new(dir.path());
        let mount = Mount::new(&dir.path().join("mnt"), passthrough);
        let (session, fuse, journal) = mount.session("p1");
        store.publish(session, fuse, journal);
        Some(Self { mount, starter, mounter: None, store, dir })
    }

    pub fn state(&self) -> &Path {
        self.dir.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.mount.join(name)
    }

    /// Kills the mounter, as the kernel does.
    pub fn kill(&mut self) {
        if let Some(mounter) = self.mounter.take() {
            self.starter.kill(mounter);
        }
    }

    /// Starts another. Answers its process id.
    pub fn succeed(&mut self) -> u32 {
        self.start("10s")
    }

    pub fn start(&mut self, deadline: &str) -> u32 {
        let pid = self.starter.start(self.dir.path(), deadline);
        self.mounter = Some(pid);
        pid
    }
}
