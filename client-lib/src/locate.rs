//! Which volume a path is on: the nearest directory above it where a store's socket answers.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::types::{MAX_PATH, SOCKET_NAME};

use crate::error::{Error, Result};

/// The attribute by which a mounted view tells a directory's path in its volume.
const PATH_ATTRIBUTE: &str = "user.gpuvol.path";

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
/// `..` is resolved by name, before links: the file need not exist, so there is nothing to ask the kernel about. Links
/// above the path's last name are followed; a link that the path itself is, is not.
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
    let Some(nearest) = clean.ancestors().find(|directory| is_socket(&directory.join(SOCKET_NAME))) else {
        return Ok(Place::File(clean));
    };
    let below = clean.strip_prefix(nearest).unwrap_or(Path::new(""));
    let real = nearest.canonicalize().unwrap_or_else(|_| nearest.to_owned());
    let mount = top(&real);
    let mut inside = path_of(&mount);
    for part in [real.strip_prefix(&mount).unwrap_or(Path::new("")), below] {
        if !inside.is_empty() && !part.as_os_str().is_empty() {
            inside.push(b'/');
        }
        inside.extend_from_slice(part.as_os_str().as_bytes());
    }
    let path = ObjectPath::new(inside).map_err(|source| Error::Path { path: clean.display().to_string(), source })?;
    Ok(Place::Volume { mount, path })
}

/// In a mounted view the socket is in every directory: the topmost one of the same mount is where it is mounted.
fn top(directory: &Path) -> PathBuf {
    let device = |path: &Path| std::fs::metadata(path).map(|meta| meta.dev()).ok();
    let same = device(directory);
    let above = directory.ancestors().skip(1);
    let inside = above.take_while(|path| device(path) == same && is_socket(&path.join(SOCKET_NAME)));
    inside.last().unwrap_or(directory).to_owned()
}

/// Where in its volume a mounted directory is: a subPath mount shows only a part of the volume.
fn path_of(mount: &Path) -> Vec<u8> {
    let mut path = vec![0; MAX_PATH];
    match rustix::fs::getxattr(mount, PATH_ATTRIBUTE, path.as_mut_slice()) {
        Ok(len) => path.truncate(len),
        // No view is mounted there: it holds the socket and nothing else.
        Err(_) => path.clear(),
    }
    path
}

fn is_socket(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
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
