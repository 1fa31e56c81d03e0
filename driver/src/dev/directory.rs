//! The directory at which a node's volume appears: fit for it before, and as it was afterwards.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvol_protocol::types::SOCKET_NAME;
use serde::{Deserialize, Serialize};

use super::{Error, Result};
use crate::mount::{self, Found, fuse, table};
use crate::target::{Roots, Target, TargetPath};

/// How long an unmount may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What was there before.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Before {
    /// The directory itself, where it was there: `NodeUnpublish` removes it.
    existed: Option<Attributes>,
    /// Directories above it that were made for it, outermost first.
    made: Vec<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Attributes {
    mode: u32,
    uid: u32,
    gid: u32,
}

/// Checks that a volume can appear at `mount`, an absolute path in its one spelling, and makes what is above it.
pub fn prepare(mount: &Path) -> Result<Before> {
    let refuse = |what| Err(Error::NoDirectory { mount: mount.to_owned(), what });
    let Some(parent) = mount.parent() else { return refuse("the root directory") };
    if mount.to_str().is_none() {
        return Err(Error::NotText(mount.to_owned()));
    }
    if let Ok(Found::Mounted(_) | Found::Silent(_) | Found::Dead(_)) = look(mount) {
        return refuse("a mount point already");
    }
    let existed = match fs::symlink_metadata(mount) {
        Ok(found) if found.is_dir() => {
            Some(Attributes { mode: found.mode() & 0o7777, uid: found.uid(), gid: found.gid() })
        }
        Ok(_) => return refuse("not a directory"),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(Error::file("look at", mount)(e)),
    };
    if existed.is_some() {
        let mut entries = fs::read_dir(mount).map_err(Error::file("list", mount))?;
        if let Some(entry) = entries.next() {
            let first = entry.map(|e| e.file_name().to_string_lossy().into_owned()).unwrap_or_default();
            return Err(Error::NotEmpty { mount: mount.to_owned(), first });
        }
    }
    let mut made: Vec<PathBuf> = parent.ancestors().take_while(|above| !above.exists()).map(Path::to_owned).collect();
    made.reverse();
    DirBuilder::new().recursive(true).create(parent).map_err(Error::file("make", parent))?;
    Ok(Before { existed, made })
}

/// The mount's place as the plugin sees it.
pub fn target(mount: &Path) -> Option<Arc<Target>> {
    let roots = Roots::new(vec![mount.parent()?.to_owned()])?;
    roots.open(&TargetPath::parse(mount.to_str()?).ok()?).ok().map(Arc::new)
}

/// What is at the mount now; no file system's server is asked, for it may hang.
pub fn look(mount: &Path) -> io::Result<Found> {
    target(mount).map_or(Ok(Found::Nothing), |target| mount::look(&target))
}

/// Takes away what a publish left at the mount, whether or not a plugin was there to do it, and puts back what was there.
/// Answers what could not be.
pub fn restore(mount: &Path, before: &Before) -> Vec<String> {
    let mut left = Vec::new();
    if let Some(target) = target(mount) {
        detach(mount, &target, &mut left);
    }
    if left.is_empty() {
        remove_socket(mount, &mut left);
        if let Err(error) = put_back(mount, before.existed) {
            left.push(format!("{}: {error}", mount.display()));
        }
    }
    for made in before.made.iter().rev() {
        match fs::remove_dir(made) {
            // Somebody uses it by now, or it is gone.
            Err(e) if !matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::DirectoryNotEmpty) => {
                left.push(format!("{}: {e}", made.display()));
            }
            _ => {}
        }
    }
    left
}

fn detach(mount: &Path, target: &Arc<Target>, left: &mut Vec<String>) {
    // Bounded: others may mount there meanwhile.
    for _ in 0..8 {
        match mount::look(target) {
            Ok(Found::Mounted(_)) if !is_ours(target) => {
                return left.push(format!("{}: something else is mounted there by now", mount.display()));
            }
            Ok(Found::Mounted(_) | Found::Silent(_) | Found::Dead(_)) => {
                if let Err(error) = mount::unmount(target, PATIENCE) {
                    return left.push(format!("the mount at {}: {error}", mount.display()));
                }
            }
            Ok(_) => return,
            Err(error) => return left.push(format!("cannot look at {}: {error}", mount.display())),
        }
    }
    left.push(format!("several mounts at {}", mount.display()));
}

/// The topmost mount there is a view, or of this publish's directory: its root in the file system is named after the
/// publish.
fn is_ours(target: &Target) -> bool {
    let publish = format!("/publish/{}", target.path().publish_id());
    let path = Path::new(target.path().as_str());
    table::read()
        .iter()
        .rev()
        .find(|m| m.at == path)
        .is_some_and(|m| m.kind == fuse::KIND || m.root.trim_end_matches("//deleted").ends_with(&publish))
}

/// The socket of a publish without a mount, if nobody listens on it any more.
fn remove_socket(mount: &Path, left: &mut Vec<String>) {
    use std::os::unix::fs::FileTypeExt;
    let path = mount.join(SOCKET_NAME);
    if fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket())
        && let Err(error) = fs::remove_file(&path)
    {
        left.push(format!("{}: {error}", path.display()));
    }
}

fn put_back(mount: &Path, existed: Option<Attributes>) -> io::Result<()> {
    let Some(before) = existed else {
        return match fs::remove_dir(mount) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        };
    };
    match fs::create_dir(mount) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    fs::set_permissions(mount, Permissions::from_mode(before.mode))?;
    let now = fs::metadata(mount)?;
    if (now.uid(), now.gid()) != (before.uid, before.gid) {
        chown(mount, Some(before.uid), Some(before.gid))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_removed_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a/b/c d");
        let before = prepare(&deep).unwrap();
        assert!(deep.parent().unwrap().is_dir() && !deep.exists());
        fs::create_dir(&deep).unwrap();
        assert_eq!(restore(&deep, &before), Vec::<String>::new());
        assert!(!dir.path().join("a").exists());

        let there = dir.path().join("there");
        fs::create_dir(&there).unwrap();
        fs::set_permissions(&there, Permissions::from_mode(0o711)).unwrap();
        let before = prepare(&there).unwrap();
        fs::remove_dir(&there).unwrap();
        assert_eq!(restore(&there, &before), Vec::<String>::new());
        assert_eq!(fs::metadata(&there).unwrap().mode() & 0o7777, 0o711);
    }

    #[test]
    fn what_cannot_be_a_mount_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("kept.txt"), "x").unwrap();
        let error = prepare(dir.path()).unwrap_err().to_string();
        assert!(error.contains("kept.txt") && error.contains(dir.path().to_str().unwrap()), "{error}");
        assert!(matches!(prepare(&dir.path().join("kept.txt")), Err(Error::NoDirectory { .. })));
        assert!(matches!(prepare(Path::new("/")), Err(Error::NoDirectory { .. })));
        assert!(matches!(prepare(Path::new("/proc")), Err(Error::NoDirectory { .. })));
    }
}
