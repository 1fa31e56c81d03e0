//! Where a difference between the directory under test and the reference is by design. Everything else is a finding.
//!
//! * A file opened for writing again is a new version, with an inode number of its own; what had it open for reading keeps
//!   the old one ([`versions`](super::versions)). So inode numbers are not compared, and of an old version only the kind
//!   and the size: its mode, owner and times are those that it had, or those of the file, if nothing was written after all.
//! * A version that was opened for writing and not written is given up at close, with whoever opened it for reading
//!   meanwhile: the same bytes, with no name.
//! * Hard links are refused with EPERM.
//! * An extended attribute of a namespace that is not `user` is absent (ENODATA), where tmpfs knows no such namespace.
//! * Reads do not change the access time.
//! * The size and the link count of a directory are not compared.
//! * A reference on tmpfs does not change the modification time when a mapping is written, or room is made or taken, or
//!   truncate(2) asks for the size that is there.

use std::collections::HashSet;

use rustix::io::Errno;

use super::resolve::SET_TIMES_END;
use super::seen::{Attributes, Outcome, Seen};
use super::step::Step;

/// For the clocks of two file systems.
const SLACK_NS: i128 = 2_000_000_000;

#[derive(Debug)]
pub struct Times {
    /// When the case began, in nanoseconds since the epoch.
    pub began: i128,
    /// Inodes of the reference whose modification time says nothing.
    pub unsure: HashSet<u64>,
}

/// Whether the two may stand side by side; in words where not.
pub fn outcomes(step: &Step, subject: &Outcome, reference: &Outcome) -> Result<(), String> {
    match (step, subject, reference) {
        (Step::HardLink { .. }, Err(Errno::PERM), Ok(_)) => Ok(()),
        (
            Step::GetXattr { name, .. } | Step::RemoveXattr { name, .. },
            Err(Errno::NODATA | Errno::OPNOTSUPP),
            Err(Errno::OPNOTSUPP),
        ) if !name.starts_with("user.") => Ok(()),
        (_, Ok(Seen::Nonsense(what)), _) => Err(what.clone()),
        (_, Ok(Seen::Attributes(_)), Ok(Seen::Attributes(_))) => Ok(()),
        (_, Ok(Seen::Bytes(got)), Ok(Seen::Bytes(expected))) => {
            crate::content::difference(expected, got).map_or(Ok(()), Err)
        }
        (Step::List { .. }, Ok(Seen::Names(got)), Ok(Seen::Names(expected))) if got != expected => {
            Err(format!("expected {:?}, got {:?}", Seen::Names(expected.clone()), Seen::Names(got.clone())))
        }
        _ if subject == reference => Ok(()),
        _ => Err(format!("expected {}, got {}", super::seen::word(reference), super::seen::word(subject))),
    }
}

/// By what the attributes were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    Name,
    /// A handle that may write.
    Writer,
    Reader,
    /// A handle that keeps what its file was before.
    OldVersion,
}

pub fn attributes(got: &Attributes, expected: &Attributes, times: &Times, by: By) -> Result<(), String> {
    let lost_its_name = got.links == 0 && expected.links > 0;
    let same = |what: &str, got: u64, expected: u64| match got == expected {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected}, got {got}")),
    };
    if got.kind != expected.kind {
        return Err(format!("kind: expected {:?}, got {:?}", expected.kind, got.kind));
    }
    same("size", got.size, expected.size)?;
    if by == By::OldVersion || by == By::Reader && lost_its_name {
        return Ok(());
    }
    if got.mode != expected.mode {
        return Err(format!("mode: expected {:o}, got {:o}", expected.mode, got.mode));
    }
    same("owner", got.uid.into(), expected.uid.into())?;
    same("group", got.gid.into(), expected.gid.into())?;
    same("links", got.links, expected.links)?;
    if was_set(expected.atime) && got.atime != expected.atime {
        return Err(format!("access time: expected {} ns as it was set, got {} ns", expected.atime, got.atime));
    }
    if times.unsure.contains(&expected.inode) {
        return Ok(());
    }
    if was_set(expected.mtime) && got.mtime != expected.mtime {
        return Err(format!("modification time: expected {} ns as it was set, got {} ns", expected.mtime, got.mtime));
    }
    if !was_set(expected.mtime) && got.mtime < times.began - SLACK_NS {
        return Err(format!("modification time: expected the current time after a change, got {} ns", got.mtime));
    }
    Ok(())
}

fn was_set(time: i128) -> bool {
    time < i128::from(SET_TIMES_END) * 1_000_000_000
}
