//! Whether a publish still works, without changing anything.

use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::types::SOCKET_NAME;

use super::{MountMode, Publisher};
use crate::listener;
use crate::mount::{self, Found};
use crate::target::TargetPath;

impl Publisher {
    /// What is wrong with the publish at a target; `None` where it works.
    pub fn fault(&self, path: &TargetPath) -> Option<String> {
        let target = match self.roots.open(path) {
            Ok(target) => Arc::new(target),
            Err(error) => return Some(error.to_string()),
        };
        match mount::inspect(&target, self.patience) {
            Ok(Found::Mounted(_)) => {}
            Ok(Found::Directory) if self.mode == MountMode::None => {}
            Ok(Found::Dead(why)) => return Some(format!("the mount at {path} is dead: {why}")),
            Ok(_) => return Some(format!("nothing is mounted at {path}; delete the pod, and it is published again")),
            Err(error) => return Some(format!("cannot look at {path}: {error}")),
        }
        let directory = match target.open_directory() {
            Ok(directory) => directory,
            Err(error) => return Some(format!("cannot open {path}: {error}")),
        };
        match listener::answers(directory.as_fd(), SOCKET_NAME) {
            Ok(true) => None,
            Ok(false) => Some(format!("nobody listens on {path}/{SOCKET_NAME}; is the store running?")),
            Err(error) => Some(format!("cannot connect to {path}/{SOCKET_NAME}: {error}")),
        }
    }
}
