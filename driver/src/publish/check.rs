//! Whether a publish still works, without changing anything.

use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::types::SOCKET_NAME;

use super::{MountMode, Publisher};
use crate::listener;
use crate::mount::{self, Found};
use crate::target::TargetPath;

impl Publisher {
    /// What is wrong with a publish at a target; `None` where it works. `served` is the store's word on it: a mount of
    /// ours is never touched to find out, for that may hang.
    pub fn fault(&self, publish: &Publish, path: &TargetPath, served: bool) -> Option<String> {
        let target = match self.roots.open(path) {
            Ok(target) => Arc::new(target),
            Err(error) => return Some(error.to_string()),
        };
        let view = publish.mount.map(|mount| mount.connection);
        let found = if view.is_some() { mount::look(&target) } else { mount::inspect(&target, self.patience) };
        match found {
            Ok(Found::Mounted(root)) if view.is_none_or(|connection| root.connection() == Some(connection)) => {}
            Ok(Found::Directory) if view.is_none() && self.mode == MountMode::None => {}
            Ok(Found::Dead(why)) => return Some(format!("the mount at {path} is dead: {why}")),
            Ok(Found::Silent(_)) => {
                return Some(format!("the mount at {path} is dead: no answer within {:?}", self.patience));
            }
            Ok(_) => return Some(format!("nothing is mounted at {path}; delete the pod, and it is published again")),
            Err(error) => return Some(format!("cannot look at {path}: {error}")),
        }
        if view.is_some() {
            let unserved = "nobody serves it: it has lost its socket, or gpuvol-mounter is not running";
            return (!served).then(|| format!("the mount at {path} is there, but {unserved}"));
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
