//! Unpublishing: everything that a publish left is removed, and what is not there counts as removed.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::types::SOCKET_NAME;
use rustix::io::Errno;

use super::home::remove_target_directory;
use super::steps::Step;
use super::{MountMode, PublishError, Publisher, failed};
use crate::listener;
use crate::mount::{self, Found, Root, fuse};
use crate::target::{Target, TargetError, TargetPath};
use crate::undo::Undo;

/// Most mounts that are taken off one target.
pub(super) const MOST_LAYERS: usize = 32;

impl Publisher {
    /// Ends the publish of a volume at a target. A pod must never hang in `Terminating` because there is nothing to
    /// end, so an unknown volume, a target that was never published and one that is gone are all fine.
    pub fn unpublish(&self, volume: &str, path: &TargetPath) -> Result<(), PublishError> {
        let id = path.publish_id();
        let known = self.store.publishes()?.publishes.into_iter().find(|publish| publish.publish == id);
        if let Some(other) = known.as_ref().filter(|publish| publish.volume != volume) {
            tracing::warn!(volume, target_path = %path, other = other.volume, "another volume is published there: left");
            return Ok(());
        }
        match self.roots.open(path) {
            Ok(target) => self.clear(&Arc::new(target), known.as_ref())?,
            Err(TargetError::NoParent { .. }) => {}
            Err(error) if known.is_some() => return Err(PublishError::Unreachable(error)),
            Err(error) => {
                tracing::warn!(volume, %error, "never published, and not looked at");
                return Ok(());
            }
        }
        let failed = |doing, source| PublishError::System { doing, target: path.to_string(), source };
        self.retract_step(Step::StoreUnpublish, path)?;
        if known.is_some() {
            self.store.unpublish(&id)?;
        }
        self.retract_step(Step::RemoveHome, path)?;
        match fs::remove_dir_all(self.homes.join(&id)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(failed("remove the publish directory", e)),
            _ => Ok(()),
        }
    }

    /// Takes mounts, socket and directory away from the target.
    fn clear(&self, target: &Arc<Target>, publish: Option<&Publish>) -> Result<(), PublishError> {
        let failed = failed(target);
        let known = publish.is_some();
        let view = publish.and_then(|publish| publish.mount).map(|mount| mount.connection);
        if let (Some(publish), Some(_)) = (publish, view) {
            self.retract_step(Step::CloseListener, target.path())?;
            self.store.close_listener(&publish.publish)?;
        }
        self.retract_step(Step::Unmount, target.path())?;
        let mut layers = 0;
        let left = loop {
            // What was published here is taken off whatever it is like, so it is not asked.
            let found = if known { mount::look(target) } else { mount::inspect(target, self.patience) };
            match found.map_err(|e| failed("look at the target", e))? {
                // What somebody else has mounted at a target that was never published stays.
                Found::Mounted(root) if !known && layers == 0 && !self.is_ours(target, &root) => return Ok(()),
                Found::Mounted(root) if layers < MOST_LAYERS => {
                    layers += 1;
                    match view.filter(|_| root.connection() == view) {
                        Some(connection) => self.unmount_view(target, connection),
                        None => mount::unmount(target, self.patience),
                    }
                    .map_err(|e| failed("unmount", e))?;
                }
                Found::Silent(_) | Found::Dead(_) if layers < MOST_LAYERS => {
                    layers += 1;
                    mount::unmount(target, self.patience).map_err(|e| failed("unmount", e))?;
                }
                other => break other,
            }
        };
        self.retract_step(Step::RemoveTarget, target.path())?;
        match left {
            Found::Nothing => return Ok(()),
            Found::Directory => {}
            Found::Mounted(_) | Found::Silent(_) | Found::Dead(_) | Found::Other(_) if known => {
                let what = format!("{left:?}");
                return Err(PublishError::Occupied { target: target.path().to_string(), what });
            }
            Found::Mounted(_) | Found::Silent(_) | Found::Dead(_) | Found::Other(_) => return Ok(()),
        }
        if known || self.mode == MountMode::None {
            let directory = target.open_directory().map_err(|e| failed("open the target directory", e))?;
            listener::remove(directory.as_fd(), SOCKET_NAME).map_err(|e| failed("remove the socket", e))?;
        }
        match remove_target_directory(target) {
            Ok(()) => Ok(()),
            Err(Errno::NOTEMPTY) if known => Err(PublishError::NotEmpty { target: target.path().to_string() }),
            // Not made by a publish.
            Err(Errno::NOTEMPTY) => Ok(()),
            Err(e) => Err(failed("remove the target directory", e.into())),
        }
    }

    /// Whether a mount is one that a publish at this target makes.
    fn is_ours(&self, target: &Target, root: &Root) -> bool {
        self.root_of_home(target) == Some(*root) || root.connection().is_some_and(fuse::is_ours)
    }

    /// The directory that a publish at this target mounts there, if it was made.
    pub(super) fn root_of_home(&self, target: &Target) -> Option<Root> {
        let home = fs::File::open(self.homes.join(target.path().publish_id())).ok()?;
        Root::of(home.as_fd()).ok()
    }

    fn retract_step(&self, step: Step, path: &TargetPath) -> Result<(), PublishError> {
        self.named_step(step, path.as_str(), &mut Undo::default())
    }
}
