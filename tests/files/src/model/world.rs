//! One directory with the handles and mappings that a sequence has open in it.

use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec, Timestamps, Uid,
    XattrFlags,
};
use rustix::io::{self, Errno};

use super::op::{From, RenameHow, Room, XattrHow};
use super::seen::{Attributes, Outcome, Seen};
use super::step::{Below, Step};
use super::versions::again;
use crate::mapping::Mapping;
use crate::size::{bytes, index, of_stat, signed};

pub const PAGE: u64 = 4096;

#[derive(Debug)]
pub struct World {
    root: PathBuf,
    pub handles: Vec<Handle>,
    pub maps: Vec<Map>,
    next_description: u64,
}

#[derive(Debug)]
pub struct Handle {
    pub fd: OwnedFd,
    /// The same for all that were made from it by dup.
    pub description: u64,
    pub writable: bool,
    pub directory: bool,
}

#[derive(Debug)]
pub struct Map {
    pub mapping: Mapping,
    pub description: u64,
    pub offset: u64,
    /// Of the handle that it was made with.
    pub writable_handle: bool,
    pub inode: u64,
    /// Keeps the file's size askable: an own description of nothing but the path, by which nothing is read or written.
    pub looker: OwnedFd,
}

impl World {
    pub fn new(root: PathBuf) -> Self {
        Self { root, handles: Vec::new(), maps: Vec::new(), next_description: 0 }
    }

    pub fn root(&self) -> &Path {
        &self.root
    }

    pub fn path(&self, below: &Below) -> PathBuf {
        if below.0.is_empty() { self.root.clone() } else { self.root.join(below.to_os()) }
    }

    /// Does one step.
    #[allow(clippy::too_many_lines, reason = "one arm for each step")]
    pub fn apply(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Open { at, flags, mode } => return self.open(at, *flags, *mode),
            Step::Close { handle } => drop(self.handles.remove(*handle)),
            Step::Dup { handle } => {
                let from = &self.handles[*handle];
                let handle = Handle { fd: io::dup(&from.fd)?, ..*from };
                self.handles.push(handle);
            }
            Step::Write { handle, data } => {
                return write_all(|rest, _| io::write(self.fd(*handle), rest), &data.bytes());
            }
            Step::WriteAt { handle, offset, data } => {
                return write_all(|rest, done| io::pwrite(self.fd(*handle), rest, offset + done), &data.bytes());
            }
            Step::Read { handle, length } => return read_all(|rest, _| io::read(self.fd(*handle), rest), *length),
            Step::ReadAt { handle, offset, length } => return self.read_at(*handle, *offset, *length),
            Step::Seek { handle, from, offset } => {
                let to = match from {
                    From::Start => SeekFrom::Start(offset.unsigned_abs()),
                    From::Current => SeekFrom::Current(*offset),
                    From::End => SeekFrom::End(*offset),
                };
                return Ok(Seen::Number(fs::seek(self.fd(*handle), to)?));
            }
            Step::Holes { handle } => return self.holes(*handle),
            Step::Truncate { handle, size } => fs::ftruncate(self.fd(*handle), *size)?,
            Step::TruncatePath { at, size } => truncate(&self.path(at), *size)?,
            Step::Allocate { handle, offset, length, room } => {
                let mode = match room {
                    Room::Extend => FallocateFlags::empty(),
                    Room::KeepSize => FallocateFlags::KEEP_SIZE,
                    Room::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                };
                fs::fallocate(self.fd(*handle), mode, *offset, *length)?;
            }
            Step::CopyRange { from, to, from_offset, to_offset, length } => {
                return self.copy_range(*from, *to, (*from_offset, *to_offset), *length);
            }
            Step::Sync { handle, data_only: true } => fs::fdatasync(self.fd(*handle))?,
            Step::Sync { handle, data_only: false } => fs::fsync(self.fd(*handle))?,
            Step::StatHandle { handle } => return attributes(fs::fstat(self.fd(*handle))),
            Step::ChmodHandle { handle, mode } => fs::fchmod(self.fd(*handle), Mode::from_raw_mode(*mode))?,
            Step::TimesHandle { handle, atime, mtime } => fs::futimens(self.fd(*handle), &timestamps(*atime, *mtime))?,
            Step::Map { handle, writable, page, pages } => return self.map(*handle, *writable, *page, *pages),
            Step::MapRead { map, offset, length } => {
                let (start, length) = self.maps[*map].within(*offset, *length)?;
                return Ok(Seen::Bytes(self.maps[*map].mapping.read(start, index(length))));
            }
            Step::MapWrite { map, offset, data } => {
                let map = &mut self.maps[*map];
                let (start, length) = map.within(*offset, u64::from(data.length))?;
                if !map.mapping.writable() {
                    return Err(Errno::ACCESS);
                }
                map.mapping.write(start, &data.bytes()[..index(length)]);
                map.mapping.sync()?;
                return Ok(Seen::Number(length));
            }
            Step::Unmap { map } => drop(self.maps.remove(*map)),
            Step::Stat { at, follow: true } => return attributes(fs::stat(self.path(at))),
            Step::Stat { at, follow: false } => return attributes(fs::lstat(self.path(at))),
            Step::List { at } => return Ok(Seen::Names(list(&self.path(at))?)),
            Step::MakeDirectory { at, mode } => fs::mkdir(self.path(at), Mode::from_raw_mode(*mode))?,
            Step::RemoveDirectory { at } => fs::rmdir(self.path(at))?,
            Step::Unlink { at } => fs::unlink(self.path(at))?,
            Step::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                fs::renameat_with(CWD, self.path(from), CWD, self.path(to), flags)?;
            }
            Step::Symlink { at, target } => fs::symlink(target.to_os(), self.path(at))?,
            Step::ReadLink { at } => return Ok(Seen::Bytes(fs::readlink(self.path(at), Vec::new())?.into_bytes())),
            Step::HardLink { from, to } => fs::link(self.path(from), self.path(to))?,
            Step::MakeFile { at, mode } => {
                fs::mknodat(CWD, self.path(at), FileType::RegularFile, Mode::from_raw_mode(*mode), 0)?;
            }
            Step::Chmod { at, mode } => fs::chmod(self.path(at), Mode::from_raw_mode(*mode))?,
            Step::Chown { at, uid, gid } => {
                fs::chown(self.path(at), uid.map(Uid::from_raw), gid.map(Gid::from_raw))?;
            }
            Step::Times { at, atime, mtime, follow } => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                fs::utimensat(CWD, self.path(at), &timestamps(*atime, *mtime), flags)?;
            }
            Step::SetXattr { at, name, data, how } => {
                let flags = match how {
                    XattrHow::Either => XattrFlags::empty(),
                    XattrHow::Create => XattrFlags::CREATE,
                    XattrHow::Replace => XattrFlags::REPLACE,
                };
                fs::lsetxattr(self.path(at), *name, &data.bytes(), flags)?;
            }
            Step::GetXattr { at, name } => return Ok(Seen::Bytes(xattr(&self.path(at), name.as_bytes())?)),
            Step::ListXattrs { at } => return Ok(Seen::Bytes(xattr_names(&self.path(at))?.join(&b' '))),
            Step::RemoveXattr { at, name } => fs::lremovexattr(self.path(at), *name)?,
        }
        Ok(Seen::Done)
    }

    pub fn fd(&self, handle: usize) -> &OwnedFd {
        &self.handles[handle].fd
    }

    fn open(&mut self, at: &Below, flags: OFlags, mode: u32) -> Outcome {
        let fd = fs::open(self.path(at), flags, Mode::from_raw_mode(mode))?;
        self.next_description += 1;
        let writable = flags.intersects(OFlags::WRONLY | OFlags::RDWR);
        let directory = FileType::from_raw_mode(fs::fstat(&fd)?.st_mode) == FileType::Directory;
        self.handles.push(Handle { fd, description: self.next_description, writable, directory });
        Ok(Seen::Done)
    }

    fn read_at(&self, handle: usize, offset: u64, length: u64) -> Outcome {
        read_all(|rest, done| io::pread(self.fd(handle), rest, offset + done), length)
    }

    fn map(&mut self, handle: usize, writable: bool, page: u64, pages: u64) -> Outcome {
        let fd = self.fd(handle);
        let stat = fs::fstat(fd)?;
        let mapping = Mapping::new(fd, page * PAGE, index(pages * PAGE), writable)?;
        let looker = again(fd, OFlags::PATH)?;
        let Handle { description, writable: writable_handle, .. } = self.handles[handle];
        self.maps.push(Map { mapping, description, offset: page * PAGE, writable_handle, inode: stat.st_ino, looker });
        Ok(Seen::Done)
    }

    fn copy_range(&self, from: usize, to: usize, offsets: (u64, u64), length: u64) -> Outcome {
        let (mut from_offset, mut to_offset) = offsets;
        let mut done = 0;
        while done < length {
            let rest = index(length - done);
            let moved =
                fs::copy_file_range(self.fd(from), Some(&mut from_offset), self.fd(to), Some(&mut to_offset), rest);
            match moved {
                Ok(0) => break,
                Ok(moved) => done += bytes(moved),
                Err(_) if done > 0 => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(Seen::Number(done))
    }

    /// What every answer of SEEK_DATA and SEEK_HOLE must keep to: in order, and zeros in the holes.
    fn holes(&self, handle: usize) -> Outcome {
        let fd = self.fd(handle);
        let before = fs::tell(fd)?;
        let size = of_stat(fs::fstat(fd)?.st_size);
        let content = match self.read_at(handle, 0, size) {
            Ok(Seen::Bytes(content)) => content,
            other => return other,
        };
        let wrong = walk_holes(fd, size, &content)?;
        fs::seek(fd, SeekFrom::Start(before))?;
        Ok(wrong.map_or(Seen::Done, Seen::Nonsense))
    }
}

fn walk_holes(fd: &OwnedFd, size: u64, content: &[u8]) -> io::Result<Option<String>> {
    let mut at = 0;
    while at < size {
        let data = match fs::seek(fd, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => size,
            other => other?,
        };
        if data < at || content[index(at)..index(data.min(size))].iter().any(|&byte| byte != 0) {
            return Ok(Some(format!("SEEK_DATA from {at} gives {data}: not all zeros between")));
        }
        if data >= size {
            break;
        }
        let hole = fs::seek(fd, SeekFrom::Hole(data))?;
        if hole <= data || hole > size {
            return Ok(Some(format!("SEEK_HOLE from {data} gives {hole} of {size}")));
        }
        at = hole;
    }
    match fs::seek(fd, SeekFrom::Data(size)) {
        Err(Errno::NXIO) => Ok(None),
        other => Ok(Some(format!("SEEK_DATA from the end gives {other:?}"))),
    }
}

impl Map {
    /// The part of a range that the file has, in the mapping; EFAULT where there is none.
    fn within(&self, offset: u64, length: u64) -> io::Result<(u64, u64)> {
        let size = of_stat(fs::fstat(&self.looker)?.st_size);
        let end = size.saturating_sub(self.offset).min(bytes(self.mapping.length()));
        if end == 0 {
            return Err(Errno::FAULT);
        }
        let start = offset % end;
        Ok((start, length.min(end - start)))
    }
}

fn attributes(stat: io::Result<fs::Stat>) -> Outcome {
    Ok(Seen::Attributes(Attributes::of(&stat?)))
}

/// Short writes are legal: until the end, or an error or nothing after a part.
fn write_all(mut write: impl FnMut(&[u8], u64) -> io::Result<usize>, data: &[u8]) -> Outcome {
    let mut done = write(data, 0)?;
    while done < data.len() {
        match write(&data[done..], bytes(done)) {
            Ok(0) | Err(_) => break,
            Ok(more) => done += more,
        }
    }
    Ok(Seen::Number(bytes(done)))
}

fn read_all(mut read: impl FnMut(&mut [u8], u64) -> io::Result<usize>, length: u64) -> Outcome {
    let mut data = vec![0; index(length)];
    let mut done = read(&mut data, 0)?;
    while done < data.len() && done > 0 {
        match read(&mut data[done..], bytes(done))? {
            0 => break,
            more => done += more,
        }
    }
    data.truncate(done);
    Ok(Seen::Bytes(data))
}

/// Names in order, without `.` and `..`.
pub fn list(path: &Path) -> io::Result<Vec<(Vec<u8>, FileType)>> {
    let directory = fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let mut names = Vec::new();
    for entry in fs::Dir::new(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push((name.to_vec(), entry.file_type()));
        }
    }
    names.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(names)
}

/// `user.*` names in order, without those that gpuvol answers itself.
pub fn xattr_names(path: &Path) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; 128 * 1024];
    let length = fs::llistxattr(path, &mut list[..])?;
    let mut names: Vec<Vec<u8>> = list[..length]
        .split(|&byte| byte == 0)
        .filter(|name| name.starts_with(b"user.") && !name.starts_with(b"user.gpuvol."))
        .map(<[u8]>::to_vec)
        .collect();
    names.sort_unstable();
    Ok(names)
}

pub fn xattr(path: &Path, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut value = vec![0; 64 * 1024];
    let length = fs::lgetxattr(path, name, &mut value[..])?;
    value.truncate(length);
    Ok(value)
}

fn timestamps(atime: i64, mtime: i64) -> Timestamps {
    let time = |ns: i64| Timespec { tv_sec: ns.div_euclid(1_000_000_000), tv_nsec: ns.rem_euclid(1_000_000_000) };
    Timestamps { last_access: time(atime), last_modification: time(mtime) }
}

/// truncate(2), which rustix does not have.
pub fn truncate(path: &Path, size: u64) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    // SAFETY: `path` is a C string that outlives the call.
    if unsafe { libc::truncate(path.as_ptr(), signed(size)) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))
    }
}
