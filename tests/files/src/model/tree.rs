//! A whole directory as it can be seen: names, attributes, content, links, extended attributes.

use std::path::Path;

use rustix::fs::{self, FileType, Mode, OFlags};
use rustix::io;

use super::resolve::There;
use super::seen::Attributes;
use super::step::Below;
use super::world::{list, xattr, xattr_names};
use crate::size::{index, of_stat};

#[derive(Debug)]
pub struct Entry {
    pub path: Below,
    pub listed: FileType,
    pub attributes: Attributes,
    /// Of a file its bytes, of a link its target.
    pub content: Vec<u8>,
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// Everything below `root`, parents before children, and `root` itself first.
pub fn read(root: &Path) -> Result<Vec<Entry>, String> {
    let mut entries = vec![entry(root, Below::of_case(), FileType::Directory)?];
    let mut next = 0;
    while next < entries.len() {
        if entries[next].attributes.kind == FileType::Directory {
            let path = entries[next].path.clone();
            let names = list(&at(root, &path)).map_err(|errno| format!("listing {path}: {errno:?}"))?;
            for (name, listed) in names {
                entries.push(entry(root, path.child(&name), listed)?);
            }
        }
        next += 1;
    }
    Ok(entries)
}

/// Only the names, for picking.
pub fn names(root: &Path, handles: usize, maps: usize) -> There {
    let mut there = There { directories: vec![Below::of_case()], files: Vec::new(), links: Vec::new(), handles, maps };
    let mut next = 0;
    while next < there.directories.len() {
        let path = there.directories[next].clone();
        for (name, kind) in list(&at(root, &path)).unwrap_or_default() {
            let of_kind = match kind {
                FileType::Directory => &mut there.directories,
                FileType::Symlink => &mut there.links,
                _ => &mut there.files,
            };
            of_kind.push(path.child(&name));
        }
        next += 1;
    }
    there
}

fn at(root: &Path, below: &Below) -> std::path::PathBuf {
    if below.0.is_empty() { root.to_owned() } else { root.join(below.to_os()) }
}

fn entry(root: &Path, below: Below, listed: FileType) -> Result<Entry, String> {
    let path = at(root, &below);
    let failed = |doing: &str| {
        let below = below.clone();
        let doing = doing.to_owned();
        move |errno: io::Errno| format!("{doing} {below}: {errno:?}")
    };
    let attributes = Attributes::of(&fs::lstat(&path).map_err(failed("lstat"))?);
    let content = match attributes.kind {
        FileType::RegularFile => content_of(&path).map_err(failed("reading"))?,
        FileType::Symlink => fs::readlink(&path, Vec::new()).map_err(failed("readlink"))?.into_bytes(),
        _ => Vec::new(),
    };
    let mut xattrs = Vec::new();
    for name in xattr_names(&path).map_err(failed("listing xattrs of"))? {
        let value = xattr(&path, &name).map_err(failed("reading an xattr of"))?;
        xattrs.push((name, value));
    }
    Ok(Entry { path: below, listed, attributes, content, xattrs })
}

fn content_of(path: &Path) -> io::Result<Vec<u8>> {
    let file = fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let size = of_stat(fs::fstat(&file)?.st_size);
    // One more, to see that nothing comes after the end.
    let mut content = vec![0; index(size) + 1];
    let mut done = 0;
    loop {
        match io::read(&file, &mut content[done..])? {
            0 => break,
            more => done += more,
        }
        if done == content.len() {
            break;
        }
    }
    content.truncate(done);
    Ok(content)
}
