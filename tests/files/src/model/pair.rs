//! Both directories, step by step.

use std::collections::HashSet;
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs;

use super::documented::{self, By, Times};
use super::resolve::There;
use super::seen::{Attributes, Seen};
use super::step::{Below, Step};
use super::world::World;
use super::{tree, versions};
use crate::content::difference;

/// Handles and mappings at once, each.
const MOST_OPEN: usize = 24;

#[derive(Debug)]
pub struct Pair {
    subject: World,
    reference: World,
    times: Times,
    /// Descriptions that keep an old version.
    parted: HashSet<u64>,
    /// Inodes of the reference that were there when they were opened for writing.
    opened_again: HashSet<u64>,
    /// Readers that kept an old version, for the statistics.
    pub partings: u64,
    /// The directory under test is an ordinary one, in which versions are imitated.
    pub imitate: bool,
}

impl Pair {
    pub fn new(subject: World, reference: World) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock");
        let began = i128::try_from(now.as_nanos()).expect("the clock");
        let times = Times { began, unsure: HashSet::new() };
        Self {
            subject,
            reference,
            times,
            parted: HashSet::new(),
            opened_again: HashSet::new(),
            partings: 0,
            imitate: false,
        }
    }

    pub fn roots(&self) -> [&std::path::Path; 2] {
        [self.subject.root(), self.reference.root()]
    }

    pub fn there(&self) -> There {
        tree::names(self.reference.root(), self.reference.handles.len(), self.reference.maps.len())
    }

    /// Whether it means something here.
    pub fn allows(&self, step: &Step) -> bool {
        match step {
            Step::Open { .. } | Step::Dup { .. } => self.reference.handles.len() < MOST_OPEN,
            Step::Map { .. } => self.reference.maps.len() < MOST_OPEN,
            // Positions in a directory mean nothing outside of it.
            Step::Seek { handle, .. } | Step::Holes { handle } => !self.reference.handles[*handle].directory,
            // Whose attributes they change is open where the file was opened for writing again since.
            Step::ChmodHandle { handle, .. } | Step::TimesHandle { handle, .. } => {
                self.by(*handle) == By::Writer || !self.was_opened_again(*handle)
            }
            _ => true,
        }
    }

    /// Does a step in both, the directory under test first, and compares; in words where they disagree. Returns what it
    /// showed.
    pub fn step(&mut self, step: &Step) -> Result<String, String> {
        let holders = versions::holders(step, &self.reference);
        self.note_unsure_times(step);
        let again = step.begins_version().and_then(|at| fs::stat(self.reference.path(at)).ok());
        self.opened_again.extend(again.map(|stat| stat.st_ino));
        if self.imitate {
            super::imitation::new_version(&self.subject, step).map_err(|errno| format!("imitation: {errno:?}"))?;
        }
        let got = self.subject.apply(step);
        if got.is_ok() {
            let parted = versions::part(step, &holders, &self.subject, &mut self.reference)?;
            self.partings += parted.len() as u64;
            self.parted.extend(parted);
        }
        let expected = self.reference.apply(step);
        documented::outcomes(step, &got, &expected)?;
        if let (Ok(Seen::Attributes(got)), Ok(Seen::Attributes(expected))) = (&got, &expected) {
            let by = if let Step::StatHandle { handle } = step { self.by(*handle) } else { By::Name };
            documented::attributes(got, expected, &self.times, by)?;
        }
        if let (Step::HardLink { to, .. }, Ok(_)) = (step, &expected) {
            let both = [&self.reference, &self.subject];
            for world in &both[..if got.is_ok() { 2 } else { 1 }] {
                fs::unlink(world.path(to)).map_err(|errno| format!("taking back a link: {errno:?}"))?;
            }
        }
        self.look_at_touched(step)?;
        Ok(super::seen::word(&got))
    }

    /// Compares everything that has a name.
    pub fn compare_trees(&self) -> Result<(), String> {
        let got = tree::read(self.subject.root())?;
        let expected = tree::read(self.reference.root()).map_err(|why| format!("the reference: {why}"))?;
        let paths =
            |entries: &[tree::Entry]| -> Vec<Below> { entries.iter().map(|entry| entry.path.clone()).collect() };
        if paths(&got) != paths(&expected) {
            return Err(format!("names: expected {:?}, got {:?}", paths(&expected), paths(&got)));
        }
        for (got, expected) in got.iter().zip(&expected) {
            let at = |why: String| format!("{}: {why}", expected.path);
            documented::attributes(&got.attributes, &expected.attributes, &self.times, By::Name).map_err(at)?;
            if got.listed != expected.listed {
                return Err(at(format!("listed as {:?}, expected {:?}", got.listed, expected.listed)));
            }
            if let Some(why) = difference(&expected.content, &got.content) {
                return Err(at(format!("content: {why}")));
            }
            if got.xattrs != expected.xattrs {
                let names = |of: &tree::Entry| -> Vec<String> {
                    of.xattrs
                        .iter()
                        .map(|(name, value)| format!("{}={}", name.escape_ascii(), crate::content::short(value)))
                        .collect()
                };
                return Err(at(format!("xattrs: expected {:?}, got {:?}", names(expected), names(got))));
            }
        }
        Ok(())
    }

    /// Steps that close whatever is open.
    pub fn closing(&self) -> Vec<Step> {
        let maps = self.reference.maps.iter().map(|_| Step::Unmap { map: 0 });
        maps.chain(self.reference.handles.iter().map(|_| Step::Close { handle: 0 })).collect()
    }

    fn was_opened_again(&self, handle: usize) -> bool {
        self.by(handle) == By::OldVersion
            || fs::fstat(self.reference.fd(handle)).is_ok_and(|stat| self.opened_again.contains(&stat.st_ino))
    }

    fn by(&self, handle: usize) -> By {
        let handle = &self.reference.handles[handle];
        match handle.writable {
            _ if self.parted.contains(&handle.description) => By::OldVersion,
            true => By::Writer,
            false => By::Reader,
        }
    }

    /// What tmpfs does with the modification time there is not what others do.
    fn note_unsure_times(&mut self, step: &Step) {
        let inode = match step {
            Step::MapWrite { map, .. } => Some(self.reference.maps[*map].inode),
            Step::Allocate { handle, .. } => fs::fstat(self.reference.fd(*handle)).ok().map(|stat| stat.st_ino),
            Step::HardLink { to, .. } => fs::stat(self.reference.path(&to.parent())).ok().map(|stat| stat.st_ino),
            Step::TruncatePath { at, .. } => fs::stat(self.reference.path(at)).ok().map(|stat| stat.st_ino),
            _ => None,
        };
        self.times.unsure.extend(inode);
    }

    /// The attributes of what the step worked on.
    fn look_at_touched(&self, step: &Step) -> Result<(), String> {
        if let Some(handle) = step.handle() {
            let look = |world: &World| fs::fstat(world.fd(handle)).map(|stat| Attributes::of(&stat));
            match (look(&self.subject), look(&self.reference)) {
                (Ok(got), Ok(expected)) => documented::attributes(&got, &expected, &self.times, self.by(handle)),
                (got, expected) => Err(format!("expected {expected:?}, got {got:?}")),
            }
            .map_err(|why| format!("fstat of handle {handle} after it: {why}"))?;
        }
        for name in step.names() {
            let look = |world: &World| fs::lstat(world.path(name)).map(|stat| Attributes::of(&stat));
            match (look(&self.subject), look(&self.reference)) {
                (Ok(got), Ok(expected)) => documented::attributes(&got, &expected, &self.times, By::Name),
                (Err(got), Err(expected)) if got == expected => Ok(()),
                (got, expected) => Err(format!("expected {expected:?}, got {got:?}")),
            }
            .map_err(|why| format!("lstat of {name} after it: {why}"))?;
        }
        Ok(())
    }
}
