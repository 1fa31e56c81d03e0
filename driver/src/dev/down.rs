//! `gpuvol-dev down`: ends a node, whatever is left of it, and leaves nothing.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::find::{self, Found, Lock};
use super::record::Record;
use super::sweep::sweep;
use super::{Error, Result};

/// How long another `up` or `down` may hold the node.
const BUSY: Duration = Duration::from_secs(60);
/// How long the supervisor may take to end the node in order.
const IN_ORDER: Duration = Duration::from_secs(30);

/// Which nodes to end.
#[derive(Debug, Clone)]
pub enum Which {
    /// The only one there is.
    Only,
    Mount(PathBuf),
    State(PathBuf),
    All,
}

/// Ends nodes; one that is not there is fine. Answers what to tell the user.
pub fn run(which: &Which) -> Result<String> {
    let found = match which {
        Which::Mount(mount) => match find::by_mount(mount)? {
            Some(found) => vec![found],
            None => return Ok(format!("gpuvol: no node is up at {}", mount.display())),
        },
        Which::State(state) => match find::by_state(state)? {
            Some(found) => vec![found],
            None => return Ok(format!("gpuvol: no node has its state in {}", state.display())),
        },
        Which::All => find::all(),
        Which::Only => {
            let all = find::all();
            if all.len() > 1 {
                return Err(Error::Several(all.iter().map(|f| f.record.mount.display().to_string()).collect()));
            }
            all
        }
    };
    if found.is_empty() {
        return Ok("gpuvol: no node is up".into());
    }
    let (mut told, mut left) = (Vec::new(), Vec::new());
    for Found { state, record } in found {
        let problems = end(&state)?;
        if problems.is_empty() {
            told.push(format!(
                "gpuvol: the node at {} is gone, with all that was on its volume",
                record.mount.display()
            ));
        }
        left.extend(problems);
    }
    if left.is_empty() { Ok(told.join("\n")) } else { Err(Error::Left(left)) }
}

/// Ends one node: in order by its supervisor where that lives, and then by what is left.
fn end(state: &Path) -> Result<Vec<String>> {
    let Some(_lock) = Lock::take(state, BUSY)? else { return Ok(Vec::new()) };
    let Some(record) = Record::read(state)? else { return Ok(Vec::new()) };
    if let Some(supervisor) = record.supervisor() {
        supervisor.terminate(IN_ORDER);
    }
    // It may have started processes since, or have removed everything.
    match Record::read(state)? {
        Some(now) => Ok(sweep(state, &now)),
        None if state.exists() && record.state_made => Ok(sweep(state, &record)),
        None => Ok(Vec::new()),
    }
}
