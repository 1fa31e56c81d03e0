//! Where nodes keep their state, and what they are called.

use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::{Error, Result};
use crate::topology::hash;

/// Longest path in a socket's address, in bytes, without its NUL.
const MAX_SOCKET: usize = 107;
/// The longest path of a socket below the state directory: the keeper's.
pub const LONGEST_SOCKET: &str = "keeper/keeper.sock";
/// Longest name of a node.
const MAX_NAME: usize = 40;

/// The sockets of a node at this state directory can have addresses.
pub fn check_length(state: &Path, hint: &'static str) -> Result<()> {
    if state.as_os_str().len() + 1 + LONGEST_SOCKET.len() > MAX_SOCKET {
        return Err(Error::LongState { state: state.to_owned(), hint });
    }
    Ok(())
}

/// The directory with one state directory a node; not made yet.
pub fn default_root() -> PathBuf {
    let uid = rustix::process::geteuid();
    if let Some(runtime) = env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from) {
        // Under sudo it may be somebody else's.
        if runtime.is_absolute() && fs::metadata(&runtime).is_ok_and(|m| m.uid() == uid.as_raw() && m.is_dir()) {
            return runtime.join("gpuvol");
        }
    }
    let run = Path::new("/run");
    if uid.is_root() && rustix::fs::access(run, rustix::fs::Access::WRITE_OK).is_ok() {
        return run.join("gpuvol-dev");
    }
    PathBuf::from(format!("/tmp/gpuvol-{}", uid.as_raw()))
}

/// Makes the directory with the nodes' state directories, or checks that it is this user's alone.
pub fn make_root(root: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(root) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::file("make", root)(e)),
    }
    if is_own(root) { Ok(()) } else { Err(Error::Insecure(root.to_owned())) }
}

/// A directory of this user's that nobody else writes to. In /tmp anybody could have made it, a link included.
pub fn is_own(root: &Path) -> bool {
    let uid = rustix::process::geteuid().as_raw();
    fs::symlink_metadata(root).is_ok_and(|found| found.is_dir() && found.uid() == uid && found.mode() & 0o022 == 0)
}

/// Makes a private directory; `false` where it is there.
pub fn make_private(path: &Path) -> Result<bool> {
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(e) => Err(Error::file("make", path)(e)),
    }
}

/// A node's name from its mount: readable, and different for different mounts.
pub fn name_of(mount: &Path) -> String {
    let base = mount.file_name().unwrap_or_default().to_string_lossy();
    let fine = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let base: String = base.chars().map(fine).take(20).collect();
    format!("{}-{}", base.trim_matches('-'), hash(&mount.to_string_lossy(), 8)).trim_start_matches('-').to_owned()
}

/// A name that someone chose becomes a directory's.
pub fn check_name(name: &str) -> Result<()> {
    let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(fine) && !name.starts_with('.') {
        return Ok(());
    }
    Err(Error::Name { name: name.to_owned() })
}

/// The one spelling of a path that need not exist: its parent without links, as far as that is there, and its name.
pub fn one_spelling(path: &Path) -> Result<PathBuf> {
    let absolute = std::path::absolute(path).map_err(Error::file("find", path))?;
    if let Ok(whole) = fs::canonicalize(&absolute) {
        return Ok(whole);
    }
    let mut rest = Vec::new();
    for above in absolute.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            return Ok(rest.iter().rev().fold(real, |path, name| path.join(name)));
        }
        rest.extend(above.file_name().map(ToOwned::to_owned));
    }
    Ok(absolute)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_socket_decides() {
        let state = |len: usize| PathBuf::from(format!("/{}", "s".repeat(len - 1)));
        check_length(&state(88), "x").unwrap();
        let error = check_length(&state(89), "give a shorter one with --state DIR").unwrap_err().to_string();
        assert!(error.contains("107") && error.contains("--state"), "{error}");
    }

    #[test]
    fn mounts_have_different_names() {
        assert_ne!(name_of(Path::new("/a/data")), name_of(Path::new("/b/data")));
        let odd = name_of(Path::new("/a/..My Data! äöü"));
        check_name(&odd).unwrap();
        check_name(&name_of(Path::new("/a/äöü"))).unwrap();
        for wrong in ["", ".x", "a/b", "a b", &"x".repeat(41)] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_path_has_one_spelling_before_and_after_it_exists() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs::canonicalize(dir.path()).unwrap();
        std::os::unix::fs::symlink(&real, real.join("link")).unwrap();
        let before = one_spelling(&real.join("link/a/b")).unwrap();
        assert_eq!(before, real.join("a/b"));
        fs::create_dir_all(real.join("a/b")).unwrap();
        assert_eq!(one_spelling(&real.join("link/a/b")).unwrap(), before);
    }
}
