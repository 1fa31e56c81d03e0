//! The directory in which a publish's socket lives, and the target directory.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use gpuvol_protocol::types::SOCKET_NAME;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::Errno;

use super::steps::Step;
use super::{MountMode, PublishError, Publisher, failed};
use crate::mount::Found;
use crate::target::Target;
use crate::undo::Undo;

/// Pods of any uid pass through it to the socket.
const OPEN_TO_ALL: u32 = 0o755;

impl Publisher {
    /// Makes or opens the directory for the socket, and the target directory.
    pub(super) fn make_home(
        &self,
        target: &Arc<Target>,
        found: &Found,
        form: MountMode,
        undo: &mut Undo<'_>,
    ) -> Result<Arc<File>, PublishError> {
        let failed = failed(target);
        let directory = if form == MountMode::Bind {
            self.step(Step::Home, target, undo)?;
            let path = self.homes.join(target.path().publish_id());
            let made = make(&self.homes, &path).map_err(|e| failed("make the publish directory", e))?;
            if made {
                let path = path.clone();
                undo.push(move || {
                    if let Err(error) = fs::remove_dir(&path) {
                        tracing::warn!(path = %path.display(), %error, "a directory is left after a failed publish");
                    }
                });
            }
            Some(open(&path).map_err(|e| failed("open the publish directory", e))?)
        } else {
            None
        };
        self.make_target(target, found, undo)?;
        let directory = match directory {
            Some(directory) => directory,
            None => target.open_directory().map_err(|e| failed("open the target directory", e))?,
        };
        Ok(Arc::new(directory))
    }

    /// Makes the target directory, unless it is there and has nothing in it that is somebody else's.
    pub(super) fn make_target(
        &self,
        target: &Arc<Target>,
        found: &Found,
        undo: &mut Undo<'_>,
    ) -> Result<(), PublishError> {
        let failed = failed(target);
        if *found == Found::Directory && !is_empty(target).map_err(|e| failed("list the target directory", e))? {
            // Unpublish removes the target, and must not have to refuse.
            return Err(PublishError::NotEmpty { target: target.path().to_string() });
        }
        if *found != Found::Nothing {
            return Ok(());
        }
        self.step(Step::TargetDirectory, target, undo)?;
        rustix::fs::mkdirat(target.parent(), target.name(), Mode::from_raw_mode(OPEN_TO_ALL))
            .map_err(|e| failed("make the target directory", e.into()))?;
        let target = Arc::clone(target);
        undo.push(move || {
            if let Err(error) = remove_target_directory(&target) {
                tracing::warn!(target_path = %target.path(), %error, "a directory is left after a failed publish");
            }
        });
        Ok(())
    }
}

/// Is nothing in the target directory but a socket of ours?
fn is_empty(target: &Target) -> io::Result<bool> {
    let directory = target.open_directory()?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(&directory, ".", flags, Mode::empty())?)? {
        let entry = entry?;
        if ![".", "..", SOCKET_NAME].iter().any(|known| entry.file_name().to_bytes() == known.as_bytes()) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Makes the directory of one publish; `false` where it is there.
fn make(homes: &Path, path: &Path) -> io::Result<bool> {
    DirBuilder::new().recursive(true).mode(0o700).create(homes)?;
    match fs::create_dir(path) {
        // By chmod, because a umask would take bits from a mode given to mkdir.
        Ok(()) => fs::set_permissions(path, Permissions::from_mode(OPEN_TO_ALL)).map(|()| true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(e),
    }
}

fn open(path: &Path) -> io::Result<File> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Removes an empty target directory; a missing one is fine.
pub(super) fn remove_target_directory(target: &Target) -> Result<(), Errno> {
    match rustix::fs::unlinkat(target.parent(), target.name(), AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(e) => Err(e),
    }
}
