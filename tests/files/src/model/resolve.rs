//! Fills in paths and slots: what a pick means in the state that the reference is in.

use rustix::fs::OFlags;

use super::op::{Access, Op, OpenHow, Pick};
use super::step::{Below, Step};

/// Few names, so that operations meet; some that are easily got wrong.
const NAMES: [&[u8]; 10] = [
    b"a",
    b"b",
    b"c",
    b"d",
    b"a.txt",
    b".hidden",
    "\u{fc}ber \u{1f600}".as_bytes(),
    b"not\xffutf8",
    &[b'n'; 255],
    &[b'm'; 256],
];
const XATTRS: [&str; 5] = ["user.a", "user.b", "user.much longer and with spaces", "user.", "unknown.space"];
/// 2001-01-01: times that are set lie before it, times that a file gets by itself lie after it.
pub const SET_TIMES_END: i64 = 978_307_200;

/// What is there to pick from.
#[derive(Debug, Default)]
pub struct There {
    /// All paths, the case's directory first.
    pub directories: Vec<Below>,
    pub files: Vec<Below>,
    pub links: Vec<Below>,
    pub handles: usize,
    pub maps: usize,
}

#[derive(Clone, Copy)]
enum Prefer {
    Anything,
    Files,
    Links,
    Directories,
}

/// None where there is nothing to do it on.
#[allow(clippy::too_many_lines, reason = "one arm for each operation")]
pub fn resolve(op: &Op, there: &There) -> Option<Step> {
    let handle = |n: &u8| slot(*n, there.handles);
    let map = |n: &u8| slot(*n, there.maps);
    let any = |pick: &Pick| there.path(pick, Prefer::Anything);
    let file = |pick: &Pick| there.path(pick, Prefer::Files);
    let directory = |pick: &Pick| there.path(pick, Prefer::Directories);
    let long = |n: &u32| u64::from(*n);
    Some(match op {
        Op::Open { at, access, how, mode } => {
            Step::Open { at: file(at), flags: flags(*access, *how), mode: u32::from(*mode) }
        }
        Op::Close { handle: h } => Step::Close { handle: handle(h)? },
        Op::Dup { handle: h } => Step::Dup { handle: handle(h)? },
        Op::Write { handle: h, data } => Step::Write { handle: handle(h)?, data: data.clone() },
        Op::WriteAt { handle: h, offset, data } => {
            Step::WriteAt { handle: handle(h)?, offset: long(offset), data: data.clone() }
        }
        Op::Read { handle: h, length } => Step::Read { handle: handle(h)?, length: long(length) },
        Op::ReadAt { handle: h, offset, length } => {
            Step::ReadAt { handle: handle(h)?, offset: long(offset), length: long(length) }
        }
        Op::Seek { handle: h, from, offset } => {
            Step::Seek { handle: handle(h)?, from: *from, offset: i64::from(*offset) }
        }
        Op::Holes { handle: h } => Step::Holes { handle: handle(h)? },
        Op::Truncate { handle: h, size } => Step::Truncate { handle: handle(h)?, size: long(size) },
        Op::TruncatePath { at, size } => Step::TruncatePath { at: file(at), size: long(size) },
        Op::Allocate { handle: h, offset, length, room } => {
            Step::Allocate { handle: handle(h)?, offset: long(offset), length: long(length), room: *room }
        }
        Op::CopyRange { from, to, from_offset, to_offset, length } => Step::CopyRange {
            from: handle(from)?,
            to: handle(to)?,
            from_offset: long(from_offset),
            to_offset: long(to_offset),
            length: long(length),
        },
        Op::Sync { handle: h, data_only } => Step::Sync { handle: handle(h)?, data_only: *data_only },
        Op::StatHandle { handle: h } => Step::StatHandle { handle: handle(h)? },
        Op::ChmodHandle { handle: h, mode } => Step::ChmodHandle { handle: handle(h)?, mode: u32::from(*mode) },
        Op::TimesHandle { handle: h, times } => {
            Step::TimesHandle { handle: handle(h)?, atime: set_time(times.0), mtime: set_time(times.1) }
        }
        Op::Map { handle: h, writable, page, pages } => {
            Step::Map { handle: handle(h)?, writable: *writable, page: u64::from(*page), pages: u64::from(*pages) }
        }
        Op::MapRead { map: m, offset, length } => {
            Step::MapRead { map: map(m)?, offset: long(offset), length: long(length) }
        }
        Op::MapWrite { map: m, offset, data } => {
            Step::MapWrite { map: map(m)?, offset: long(offset), data: data.clone() }
        }
        Op::Unmap { map: m } => Step::Unmap { map: map(m)? },
        Op::Stat { at, follow } => Step::Stat { at: any(at), follow: *follow },
        Op::List { at } => Step::List { at: directory(at) },
        Op::MakeDirectory { at, mode } => Step::MakeDirectory { at: any(at), mode: u32::from(*mode) },
        Op::RemoveDirectory { at } => Step::RemoveDirectory { at: not_case(directory(at))? },
        Op::Unlink { at } => Step::Unlink { at: not_case(file(at))? },
        Op::Rename { from, to, how } => Step::Rename { from: not_case(any(from))?, to: not_case(any(to))?, how: *how },
        Op::Symlink { at, target } => Step::Symlink { at: any(at), target: there.target(*target) },
        Op::ReadLink { at } => Step::ReadLink { at: there.path(at, Prefer::Links) },
        Op::HardLink { from, to } => Step::HardLink { from: file(from), to: any(to) },
        Op::MakeFile { at, mode } => Step::MakeFile { at: any(at), mode: u32::from(*mode) },
        Op::Chmod { at, mode } => Step::Chmod { at: any(at), mode: u32::from(*mode) },
        Op::Chown { at, uid, gid } => Step::Chown { at: any(at), uid: uid.map(u32::from), gid: gid.map(u32::from) },
        Op::Times { at, times, follow } => {
            Step::Times { at: any(at), atime: set_time(times.0), mtime: set_time(times.1), follow: *follow }
        }
        Op::SetXattr { at, name, data, how } => {
            Step::SetXattr { at: any(at), name: xattr(*name), data: data.clone(), how: *how }
        }
        Op::GetXattr { at, name } => Step::GetXattr { at: any(at), name: xattr(*name) },
        Op::ListXattrs { at } => Step::ListXattrs { at: any(at) },
        Op::RemoveXattr { at, name } => Step::RemoveXattr { at: any(at), name: xattr(*name) },
    })
}

impl There {
    fn path(&self, pick: &Pick, prefer: Prefer) -> Below {
        match pick {
            Pick::Existing(n) => self.existing(*n, prefer),
            Pick::Child { directory, name } => chosen(&self.directories, *directory).child(name_of(*name)),
            Pick::Below { parent, name } => self.existing(*parent, Prefer::Files).child(name_of(*name)),
            Pick::Slash(n) => {
                let mut path = self.existing(*n, prefer);
                if !path.0.is_empty() {
                    path.0.push(b'/');
                }
                path
            }
        }
    }

    /// Three times in four of the preferred kind, where there are such.
    fn existing(&self, n: u16, prefer: Prefer) -> Below {
        let (rest, preferred) = (n / 4, !n.is_multiple_of(4));
        match prefer {
            Prefer::Files if preferred && !self.files.is_empty() => chosen(&self.files, rest),
            Prefer::Links if preferred && !self.links.is_empty() => chosen(&self.links, rest),
            Prefer::Directories if preferred => chosen(&self.directories, rest),
            _ => {
                let all = || self.directories.iter().chain(&self.files).chain(&self.links);
                all().nth(usize::from(rest) % all().count()).expect("less than the count").clone()
            }
        }
    }

    /// Of a link: a name beside it that may or may not be there, or one in a directory beside it. Never upwards, so that
    /// no link leads out of the case's directory.
    fn target(&self, n: u8) -> Below {
        let name = |n: u8| name_of(n % 8);
        match n % 4 {
            0 => Below(name(n / 4).to_vec()).child(name(n / 32)),
            1 => Below(b".".to_vec()).child(name(n / 4)),
            _ => Below(name(n / 4).to_vec()),
        }
    }
}

fn flags(access: Access, how: OpenHow) -> OFlags {
    let mut flags = OFlags::CLOEXEC
        | match access {
            Access::Read => OFlags::RDONLY,
            Access::Write => OFlags::WRONLY,
            Access::Both => OFlags::RDWR,
        };
    flags.set(OFlags::CREATE, how.create);
    flags.set(OFlags::EXCL, how.create && how.exclusive);
    // With O_RDONLY it is left open by POSIX.
    flags.set(OFlags::TRUNC, how.truncate && access != Access::Read);
    flags.set(OFlags::APPEND, how.append);
    flags.set(OFlags::NOFOLLOW, how.no_follow);
    flags.set(OFlags::SYNC, how.synchronous);
    flags
}

fn chosen(of: &[Below], n: u16) -> Below {
    of[usize::from(n) % of.len()].clone()
}

fn slot(n: u8, slots: usize) -> Option<usize> {
    (slots > 0).then(|| usize::from(n) % slots)
}

/// The first names are the most frequent.
fn name_of(n: u8) -> &'static [u8] {
    let n = usize::from(n);
    if n < 160 { NAMES[n % 4] } else { NAMES[n % NAMES.len()] }
}

fn xattr(n: u8) -> &'static str {
    let n = usize::from(n);
    if n < 200 { XATTRS[n % 3] } else { XATTRS[n % XATTRS.len()] }
}

fn set_time(n: u32) -> i64 {
    i64::from(n) % SET_TIMES_END * 1_000_000_000 + i64::from(n % 1_000_000_000)
}

fn not_case(path: Below) -> Option<Below> {
    (!path.0.is_empty()).then_some(path)
}
