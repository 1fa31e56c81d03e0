//! Taking away everything of a node, in whatever state it is: by what is there, not by what should be.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::directory;
use super::place;
use super::process::{self, Identity, PROGRAMS};
use super::record::Record;
use crate::mount::table;

/// How long a process may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);

/// What a node makes in its state directory; its record last, for without it the rest would be nobody's.
const OWN: [&str; 10] = [
    "csi.sock",
    "csi.sock.new",
    "keeper",
    "log",
    "mounter",
    "publish",
    "store",
    "volumes",
    ".dev.json.new",
    "dev.json",
];

/// Ends the node's processes but this one, takes its mount away, restores the directory there and removes the state
/// directory. Answers what could not be taken away, for people; nothing is left where that is empty.
pub fn sweep(state: &Path, record: &Record) -> Vec<String> {
    let mut left = end_processes(state, record);
    left.extend(directory::restore(&record.mount, &record.before));
    // Removing files must not reach into a mount.
    let below = table::read().into_iter().filter(|m| m.at.starts_with(state));
    left.extend(below.map(|m| format!("a mount at {}", m.at.display())));
    if left.is_empty() {
        left.extend(remove_state(state, record).err().map(|e| format!("{}: {e}", state.display())));
    }
    left
}

/// Everything on record and everything with this state directory on its command line.
fn end_processes(state: &Path, record: &Record) -> Vec<String> {
    let recorded = record.processes.iter().map(|p| (p.role.clone(), p.identity));
    let found = process::members().into_iter().filter(|m| m.state == state).map(|m| (m.program, m.identity));
    let mut all: Vec<(String, Identity)> = recorded.chain(found).collect();
    all.retain(|(_, identity)| identity.pid != std::process::id());
    // The supervisor first (its role is no program's name), the keeper last.
    all.sort_by_key(|(role, _)| PROGRAMS.iter().position(|p| p == role).unwrap_or(0));
    all.dedup_by_key(|(_, identity)| *identity);
    let stubborn = all.into_iter().filter(|(_, identity)| !identity.end(GRACE));
    stubborn.map(|(role, identity)| format!("{role} with pid {}: it does not end", identity.pid)).collect()
}

fn remove_state(state: &Path, record: &Record) -> io::Result<()> {
    if record.state_made {
        match fs::remove_dir_all(state) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    } else {
        // Whatever else is in a directory of the user's is the user's.
        for name in OWN {
            let path = state.join(name);
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            match removed {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
    }
    let root = place::default_root();
    if state.parent() == Some(&root) {
        // Other nodes may be in it.
        let _ = fs::remove_dir(root);
    }
    Ok(())
}

/// What is left of anything below these directories: mounts, processes and files.
pub fn left_of(directory: &Path) -> Vec<String> {
    let mut left: Vec<String> = table::read()
        .into_iter()
        .filter(|m| m.at.starts_with(directory))
        .map(|m| format!("a mount at {}", m.at.display()))
        .collect();
    left.extend(process::naming(directory).into_iter().map(|(pid, line)| format!("process {pid}: {line}")));
    if fs::symlink_metadata(directory).is_ok() {
        left.push(directory.display().to_string());
    }
    left
}
