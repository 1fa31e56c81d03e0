//! Imitates in an ordinary directory what a volume does on purpose: a file that nobody writes becomes a new inode when it
//! is opened for writing. For the tests of these tests.

use std::path::Path;

use rustix::fs::{self, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io;

use super::step::Step;
use super::world::{World, xattr, xattr_names};

/// Called before the step: puts a copy in the place of its file, where nobody in this world writes it.
pub fn new_version(world: &World, step: &Step) -> io::Result<()> {
    let Some(at) = step.begins_version() else { return Ok(()) };
    let Ok(stat) = fs::stat(world.path(at)) else { return Ok(()) };
    let exclusive = matches!(step, Step::Open { flags, .. } if flags.intersects(OFlags::EXCL | OFlags::NOFOLLOW));
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile || exclusive || at.0.ends_with(b"/") {
        return Ok(());
    }
    let written = world
        .handles
        .iter()
        .any(|handle| handle.writable && fs::fstat(&handle.fd).is_ok_and(|own| own.st_ino == stat.st_ino))
        || world.maps.iter().any(|map| map.writable_handle && map.inode == stat.st_ino);
    if written { Ok(()) } else { replace(&std::fs::canonicalize(world.path(at)).map_err(|_| io::Errno::IO)?, &stat) }
}

fn replace(path: &Path, stat: &fs::Stat) -> io::Result<()> {
    let directory = path.parent().expect("a file is in a directory");
    let of_directory = fs::stat(directory)?;
    let copy = directory.join(".imitation");
    std::fs::copy(path, &copy).map_err(|_| io::Errno::IO)?;
    for name in xattr_names(path)? {
        fs::lsetxattr(&copy, &name[..], &xattr(path, &name)?, XattrFlags::empty())?;
    }
    fs::chown(&copy, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fs::chmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    set_times(&copy, stat)?;
    // The copying has read it.
    set_times(path, stat)?;
    fs::rename(&copy, path)?;
    set_times(directory, &of_directory)
}

fn set_times(path: &Path, like: &fs::Stat) -> io::Result<()> {
    let time = |tv_sec: i64, more: u64| Timespec { tv_sec, tv_nsec: more.cast_signed() };
    let last_access = time(like.st_atime, like.st_atime_nsec);
    let last_modification = time(like.st_mtime, like.st_mtime_nsec);
    fs::utimensat(CWD, path, &Timestamps { last_access, last_modification }, fs::AtFlags::empty())
}
