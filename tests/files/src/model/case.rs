//! One sequence from empty directories to empty directories.

use std::path::{Path, PathBuf};

use super::op::Op;
use super::pair::Pair;
use super::resolve::resolve;
use super::step::Step;
use super::world::World;
use crate::progress::Progress;

/// Steps between two comparisons of everything.
const TREES_EVERY: usize = 12;

/// Where cases are run.
#[derive(Debug, Clone)]
pub struct Directories {
    pub subject: PathBuf,
    pub reference: PathBuf,
    /// See [`imitation`](super::imitation).
    pub imitate_versions: bool,
    pub print_steps: bool,
    /// Steps whose words have one of these in them are left out.
    pub without: Vec<String>,
}

#[derive(Debug, Default, Clone, Copy)]
pub struct Done {
    pub steps: u64,
    /// Readers that were left with an old version, as they should.
    pub partings: u64,
}

#[derive(Debug, Clone)]
pub struct Divergence {
    /// Steps up to the one that showed it, each with what it gave.
    pub steps: Vec<String>,
    pub what: String,
}

/// Runs `ops` in directories named `name`; takes them away again in any case.
pub fn run(ops: &[Op], within: &Directories, name: &str, progress: &mut Progress) -> Result<Done, Divergence> {
    let mut steps = Vec::new();
    let subject = within.subject.join(name);
    let reference = within.reference.join(name);
    let mut pair = Pair::new(World::new(subject.clone()), World::new(reference.clone()));
    pair.imitate = within.imitate_versions;
    let result = attempt(ops, within, &mut pair, &mut steps, name, progress);
    drop(pair);
    if within.print_steps {
        println!("{name}");
        steps.iter().for_each(|step| println!("  {step}"));
    }
    progress.at(format_args!("{name}: taking the directories away"));
    let emptied = take_away(&subject);
    let _ = take_away(&reference);
    match (result, emptied) {
        (Ok(done), Ok(())) => Ok(done),
        (Ok(_), Err(why)) => Err(Divergence { steps, what: format!("taking the directory away: {why}") }),
        (Err(what), _) => Err(Divergence { steps, what }),
    }
}

fn attempt(
    ops: &[Op],
    within: &Directories,
    pair: &mut Pair,
    steps: &mut Vec<String>,
    name: &str,
    progress: &mut Progress,
) -> Result<Done, String> {
    progress.at(format_args!("{name}: making the directories"));
    for path in pair.roots() {
        std::fs::create_dir(path).map_err(|error| format!("mkdir {}: {error}", path.display()))?;
    }
    let mut done = Done::default();
    let mut go = |pair: &mut Pair, step: &Step, steps: &mut Vec<String>| {
        progress.at(format_args!("{name}, step {}: {step:?}", steps.len()));
        steps.push(format!("{step:?}"));
        let seen = pair.step(step)?;
        if let Some(last) = steps.last_mut() {
            *last += &format!(" -> {seen}");
        }
        done.steps += 1;
        Ok::<(), String>(())
    };
    for (number, op) in ops.iter().enumerate() {
        let Some(step) = resolve(op, &pair.there()) else { continue };
        let words = format!("{step:?}");
        let left_out = within.without.iter().any(|part| words.contains(part));
        if pair.allows(&step) && !left_out {
            go(pair, &step, steps)?;
        }
        if number % TREES_EVERY == TREES_EVERY - 1 {
            pair.compare_trees()?;
        }
    }
    pair.compare_trees()?;
    for step in pair.closing() {
        go(pair, &step, steps)?;
    }
    pair.compare_trees().map_err(|why| format!("after everything was closed: {why}"))?;
    done.partings = pair.partings;
    Ok(done)
}

/// Everything below and the directory itself, whatever the modes are.
fn take_away(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    if path.symlink_metadata()?.is_dir() {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
        for entry in std::fs::read_dir(path)? {
            take_away(&entry?.path())?;
        }
        std::fs::remove_dir(path)
    } else {
        std::fs::remove_file(path)
    }
}
