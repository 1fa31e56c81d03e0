//! Target paths: under an allowed root, through real directories only.
//!
//! A target path comes from kubelet, but pods own directories below kubelet's, so nothing on the way may be a symbolic
//! link. The parent directory is opened once, with `openat2`, and everything later happens relative to that descriptor:
//! a path that changes meanwhile cannot lead elsewhere. A root itself may be a link: that is how nodes move kubelet's
//! directory to another disk.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::topology::hash;

/// Longest path that Linux takes, without its NUL.
const MAX_PATH: usize = 4095;

/// An absolute path without `.`, `..` and doubled slashes; not looked at on disk yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetPath(String);

/// Why a target path cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TargetError {
    #[error("target path {path:?} {why}")]
    Form { path: String, why: &'static str },
    #[error(
        "target path {path} is not below an allowed directory ({roots}); kubelet's directory is set by --kubelet-dir"
    )]
    Outside { path: String, roots: String },
    #[error("target path {path} leads through a symbolic link or out of its directory, which is refused")]
    Link { path: String },
    #[error("the parent directory of target path {path} does not exist; kubelet makes it before it calls")]
    NoParent { path: String },
    #[error("cannot open the parent directory of target path {path}")]
    Open { path: String, source: std::io::Error },
}

impl TargetPath {
    /// Checks the form; nothing on disk is looked at.
    pub fn parse(path: &str) -> Result<Self, TargetError> {
        let refuse = |why| Err(TargetError::Form { path: path.chars().take(200).collect(), why });
        if path.is_empty() {
            return refuse("is missing");
        }
        if path.len() > MAX_PATH {
            return refuse("is longer than 4095 bytes");
        }
        if path.contains('\0') {
            return refuse("has a NUL byte");
        }
        if !path.starts_with('/') {
            return refuse("is not absolute");
        }
        if path.split('/').any(|name| name == "..") {
            return refuse("has a '..' component");
        }
        let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty() && *name != ".").collect();
        if names.is_empty() {
            return refuse("is the root directory");
        }
        if names.iter().any(|name| name.len() > 255) {
            return refuse("has a component longer than 255 bytes");
        }
        Ok(Self(format!("/{}", names.join("/"))))
    }

    /// The path in its one spelling.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The stable name of the publish at this path, on this node.
    pub fn publish_id(&self) -> String {
        hash(&self.0, 32)
    }
}

impl std::fmt::Display for TargetPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The directories below which targets may be.
#[derive(Debug, Clone)]
pub struct Roots(Vec<PathBuf>);

/// A target path whose parent directory is open.
#[derive(Debug)]
pub struct Target {
    parent: OwnedFd,
    name: OsString,
    path: TargetPath,
}

impl Roots {
    /// `None` where a root is relative, has `..`, or there is none.
    pub fn new(roots: Vec<PathBuf>) -> Option<Self> {
        let fine = |root: &PathBuf| root.is_absolute() && !root.components().any(|c| c == Component::ParentDir);
        (!roots.is_empty() && roots.iter().all(fine)).then_some(Self(roots))
    }

    /// Whether a path, in its one spelling and without links, is below a root.
    pub fn hold(&self, path: &Path) -> bool {
        let below = |root: &PathBuf| root.canonicalize().is_ok_and(|root| path.starts_with(root));
        self.0.iter().any(below)
    }

    /// Opens the parent directory of a target.
    pub fn open(&self, path: &TargetPath) -> Result<Target, TargetError> {
        let whole = Path::new(path.as_str());
        let outside = || TargetError::Outside {
            path: path.to_string(),
            roots: self.0.iter().map(|r| r.display().to_string()).collect::<Vec<_>>().join(", "),
        };
        let (root, rest) = self
            .0
            .iter()
            .filter_map(|root| Some((root, whole.strip_prefix(root).ok()?)))
            .find(|(_, rest)| rest.components().next().is_some())
            .ok_or_else(outside)?;
        let name = rest.file_name().ok_or_else(outside)?.to_owned();
        let above = rest.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let parent = open_below(root, above).map_err(|errno| match errno {
            Errno::NOENT => TargetError::NoParent { path: path.to_string() },
            Errno::LOOP | Errno::XDEV => TargetError::Link { path: path.to_string() },
            other => TargetError::Open { path: path.to_string(), source: other.into() },
        })?;
        Ok(Target { parent, name, path: path.clone() })
    }
}

fn open_below(root: &Path, path: &Path) -> Result<OwnedFd, Errno> {
    let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(root, directory, Mode::empty())?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(root, path, directory, Mode::empty(), resolve)
}

impl Target {
    /// The open parent directory.
    pub fn parent(&self) -> BorrowedFd<'_> {
        self.parent.as_fd()
    }

    /// The target's name in its parent.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// The path that was asked for, for people.
    pub fn path(&self) -> &TargetPath {
        &self.path
    }

    /// A path to the target that leads through the open parent, for calls that take no descriptor.
    pub fn proc_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.parent.as_raw_fd())).join(&self.name)
    }

    /// The directory at the target itself; a link there is refused.
    pub fn open_directory(&self) -> std::io::Result<File> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.parent, &self.name, flags, Mode::empty())?.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn equal_paths_have_one_spelling_and_one_id() {
        let plain = TargetPath::parse("/a/b").unwrap();
        for spelling in ["/a//b", "/a/./b/", "//a/b"] {
            assert_eq!(TargetPath::parse(spelling).unwrap(), plain);
        }
        assert_eq!(plain.publish_id().len(), 32);
        assert_ne!(plain.publish_id(), TargetPath::parse("/a/c").unwrap().publish_id());
    }

    #[test]
    fn odd_paths_are_refused() {
        let long = format!("/{}", "a/".repeat(3000));
        let wide = format!("/{}", "a".repeat(256));
        for path in ["", "some/path", "/", "/a/../b", "/..", "/a\0b", &long, &wide] {
            assert!(TargetPath::parse(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn targets_stay_below_the_roots_and_off_links() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("kubelet");
        std::fs::create_dir_all(root.join("pods/1")).unwrap();
        symlink("/etc", root.join("pods/link")).unwrap();
        symlink("1", root.join("pods/alias")).unwrap();
        let alias = dir.path().join("alias");
        symlink(&root, &alias).unwrap();
        let open = |at: &Path, rest: &str| {
            let roots = Roots::new(vec![at.to_owned()]).unwrap();
            roots.open(&TargetPath::parse(at.join(rest).to_str().unwrap()).unwrap())
        };
        assert!(open(&root, "pods/1/mount").is_ok());
        assert!(open(&root, "mount").is_ok());
        assert!(open(&alias, "pods/1/mount").is_ok());
        assert!(matches!(open(&root, "pods/link/mount"), Err(TargetError::Link { .. })));
        assert!(matches!(open(&root, "pods/alias/mount"), Err(TargetError::Link { .. })));
        assert!(matches!(open(&root, "pods/2/mount"), Err(TargetError::NoParent { .. })));
        let through_link = Roots::new(vec![alias]).unwrap();
        let real = root.canonicalize().unwrap();
        assert!(through_link.hold(&real.join("pods/1/mount")) && !through_link.hold(dir.path()));
        let roots = Roots::new(vec![root.clone()]).unwrap();
        for outside in ["/etc/mount", root.to_str().unwrap(), &format!("{}x/mount", root.display())] {
            let path = TargetPath::parse(outside).unwrap();
            assert!(matches!(roots.open(&path), Err(TargetError::Outside { .. })), "{outside}");
        }
        assert!(Roots::new(vec!["kubelet".into()]).is_none());
        assert!(Roots::new(vec![]).is_none());
    }

    proptest::proptest! {
        #[test]
        fn no_spelling_escapes(path in "[/.a\\x00 ]{0,40}") {
            if let Ok(target) = TargetPath::parse(&path) {
                proptest::prop_assert!(target.as_str().starts_with('/'));
                proptest::prop_assert!(target.as_str().split('/').all(|name| name != ".."));
            }
        }
    }
}
