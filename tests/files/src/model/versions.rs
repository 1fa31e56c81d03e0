//! Old versions in the reference. In the directory under test a file that nobody is writing becomes a new version when it
//! is opened for writing; what had it open for reading keeps the old bytes. The reference has one version, so its readers
//! are moved to a copy, made before the change. The inode numbers of the directory under test say who is to be moved: a
//! reader that is still on the file's inode must see what the writer does.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{self, FileType, Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io;

use super::step::Step;
use super::world::{Map, World};
use crate::mapping::Mapping;
use crate::size::{bytes, index, of_stat};

/// Descriptions that have the file open that a step may make a new version of.
#[derive(Debug, Default)]
pub struct Holders {
    handles: Vec<usize>,
    maps: Vec<usize>,
}

/// Before the step: who has its file open.
pub fn holders(step: &Step, reference: &World) -> Holders {
    let mut found = Holders::default();
    let Some(at) = step.begins_version() else { return found };
    let Ok(stat) = fs::stat(reference.path(at)) else { return found };
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return found;
    }
    let on_file = |fd: &OwnedFd| fs::fstat(fd).is_ok_and(|own| own.st_ino == stat.st_ino);
    found.handles = (0..reference.handles.len()).filter(|&n| on_file(&reference.handles[n].fd)).collect();
    found.maps = (0..reference.maps.len()).filter(|&n| reference.maps[n].inode == stat.st_ino).collect();
    found
}

/// After the step in the directory under test and before it in the reference: moves readers that were left on an old
/// version. Returns their descriptions.
pub fn part(step: &Step, holders: &Holders, subject: &World, reference: &mut World) -> Result<HashSet<u64>, String> {
    let mut parted = HashSet::new();
    let Some(at) = step.begins_version() else { return Ok(parted) };
    if holders.handles.is_empty() && holders.maps.is_empty() {
        return Ok(parted);
    }
    let inode = fs::stat(subject.path(at)).map_err(|errno| format!("stat after it: {errno:?}"))?.st_ino;
    let writer = "a file that is open for writing got a new version: its writer is left on the old one";
    for &n in &holders.handles {
        let own = fs::fstat(&subject.handles[n].fd).map_err(|errno| format!("fstat of handle {n}: {errno:?}"))?;
        if own.st_ino != inode {
            if reference.handles[n].writable {
                return Err(format!("{writer} (handle {n})"));
            }
            parted.insert(reference.handles[n].description);
        }
    }
    for &n in &holders.maps {
        if subject.maps[n].inode != inode {
            if reference.maps[n].writable_handle {
                return Err(format!("{writer} (mapping {n})"));
            }
            parted.insert(reference.maps[n].description);
        }
    }
    move_to_copy(reference, &parted).map_err(|errno| format!("the reference's copy: {errno:?}"))?;
    Ok(parted)
}

/// All of them to one copy, as they were on one file.
fn move_to_copy(reference: &mut World, parted: &HashSet<u64>) -> io::Result<()> {
    let aside = reference.root().with_extension("old-version");
    let of_handle = reference.handles.iter().find(|handle| parted.contains(&handle.description));
    let of_map = reference.maps.iter().find(|map| parted.contains(&map.description));
    match (of_handle, of_map) {
        (Some(handle), _) => copy_to(&handle.fd, &aside)?,
        (None, Some(map)) => copy_to(&again(&map.looker, OFlags::RDONLY)?, &aside)?,
        (None, None) => return Ok(()),
    }
    for &description in parted {
        let copy = fs::open(&aside, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        for (nth, handle) in reference.handles.iter_mut().filter(|of| of.description == description).enumerate() {
            if nth == 0 {
                fs::seek(&copy, SeekFrom::Start(fs::tell(&handle.fd)?))?;
            }
            handle.fd = io::dup(&copy)?;
        }
        let inode = fs::fstat(&copy)?.st_ino;
        for map in reference.maps.iter_mut().filter(|of| of.description == description) {
            let mapping = Mapping::new(&copy, map.offset, map.mapping.length(), false)?;
            *map = Map { mapping, inode, looker: again(&copy, OFlags::PATH)?, ..*map };
        }
    }
    fs::unlink(&aside)
}

/// The same file in a description of its own.
pub fn again(fd: &OwnedFd, how: OFlags) -> io::Result<OwnedFd> {
    let own = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    fs::open(own, how | OFlags::CLOEXEC, Mode::empty())
}

/// Content and attributes.
fn copy_to(file: &OwnedFd, aside: &Path) -> io::Result<()> {
    let stat = fs::fstat(file)?;
    let mut content = vec![0; index(of_stat(stat.st_size))];
    let mut done = 0;
    while done < content.len() {
        match io::pread(file, &mut content[done..], bytes(done))? {
            0 => break,
            more => done += more,
        }
    }
    let create = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let copy = fs::open(aside, create, Mode::RUSR | Mode::WUSR)?;
    let mut written = 0;
    while written < content.len() {
        written += io::write(&copy, &content[written..])?;
    }
    fs::fchown(&copy, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    fs::fchmod(&copy, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let time = |tv_sec: i64, more: u64| Timespec { tv_sec, tv_nsec: more.cast_signed() };
    let last_access = time(stat.st_atime, stat.st_atime_nsec);
    let last_modification = time(stat.st_mtime, stat.st_mtime_nsec);
    fs::futimens(&copy, &Timestamps { last_access, last_modification })
}
