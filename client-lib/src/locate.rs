//! Which volume a path is on: the nearest directory above it where a store's socket answers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::types::SOCKET_NAME;

use crate::error::{Error, Result};

/// Where a path leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Into a published volume: the directory that it is mounted at, and the path inside.
    Volume { mount: PathBuf, path: ObjectPath },
    /// To an ordinary file or directory.
    File(PathBuf),
}

/// Finds the volume that a path is on. The path itself need not exist.
///
/// `..` is resolved by name, before links: the file need not exist, so there is nothing to ask the kernel about.
pub fn locate(path: &Path) -> Result<Place> {
    let absolute = std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
    let mut clean = PathBuf::new();
    for part in absolute.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    for mount in clean.ancestors() {
        if !is_socket(&mount.join(SOCKET_NAME)) {
            continue;
        }
        let inside = clean.strip_prefix(mount).unwrap_or(Path::new(""));
        let path = ObjectPath::new(inside.as_os_str().as_bytes())
            .map_err(|source| Error::Path { path: clean.display().to_string(), source })?;
        return Ok(Place::Volume { mount: mount.to_owned(), path });
    }
    Ok(Place::File(clean))
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|m| m.file_type().is_socket())
}

/// A path inside a volume as one of the file system.
pub fn in_mount(mount: &Path, path: &ObjectPath) -> PathBuf {
    mount.join(OsStr::from_bytes(path.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_socket_above_a_path_is_its_volume() {
        let base = tempfile::tempdir().unwrap();
        let mount = base.path().join("data");
        std::fs::create_dir(&mount).unwrap();
        let _listener = std::os::unix::net::UnixListener::bind(mount.join(SOCKET_NAME)).unwrap();
        let volume = |inside: &str| Place::Volume { mount: mount.clone(), path: ObjectPath::new(inside).unwrap() };
        assert_eq!(locate(&mount.join("a/b.arrow")).unwrap(), volume("a/b.arrow"));
        assert_eq!(locate(&mount).unwrap(), volume(""));
        assert_eq!(locate(&mount.join("a/../c")).unwrap(), volume("c"));
        assert_eq!(locate(&mount.join("../x")).unwrap(), Place::File(base.path().join("x")));
        assert!(locate(&mount.join(SOCKET_NAME)).is_err());
    }
}
