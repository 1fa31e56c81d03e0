//! What becomes a stage, or a program of the demo's node: a few system calls, then `exec`.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::namespace;
use super::{Error, Result};

/// A stage's view of the file system.
#[derive(Debug, Clone)]
pub struct View {
    /// What is at `/data`.
    pub data: PathBuf,
    /// What is not there.
    pub hidden: Vec<PathBuf>,
    /// A directory for the new root; best one of the hidden.
    pub scratch: PathBuf,
}

/// Becomes the stage, in a mount namespace of its own. Comes back only with an error.
pub fn run(view: &View, program: &[OsString]) -> Result<()> {
    let prepare = || {
        namespace::enter(false)?;
        namespace::stage_root(&view.data, &view.hidden, &view.scratch)
    };
    prepare().map_err(Error::system("give the stage a view of its own"))?;
    tied(program)
}

/// Becomes a program that is killed when its parent ends, however that happens. Comes back only with an error.
pub fn tied(program: &[OsString]) -> Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Error::system("be tied to the parent process")(e.into()))?;
    if getppid() != parent {
        // It ended before the signal was asked for.
        return Err(Error::Interrupted);
    }
    let (name, arguments) =
        program.split_first().ok_or_else(|| Error::system("run no program")(io::ErrorKind::InvalidInput.into()))?;
    let source = Command::new(name).args(arguments).exec();
    Err(Error::file("run", PathBuf::from(name))(source))
}
