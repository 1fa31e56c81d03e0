//! `gpuvol dev` and `gpuvol demo`: another program, which runs whole nodes and is not installed where only clients are.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::escape::shown_path;
use crate::failure::{Failure, Result};

pub const DEV_EXAMPLES: &str = "\
Examples:
  gpuvol dev up
  gpuvol dev status
  gpuvol dev down";

const PROGRAM: &str = "gpuvol-dev";

/// Everything after the command's name, for the other program.
#[derive(Debug, Args)]
pub struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub arguments: Vec<OsString>,
}

/// Becomes the other program; comes back only where that fails.
pub fn run(command: Option<&str>, passed: &Passed) -> Result<()> {
    let beside = std::env::current_exe().ok().and_then(|exe| Some(exe.parent()?.join(PROGRAM)));
    let search = std::env::var_os("PATH").unwrap_or_default();
    let program = find(beside.as_deref(), &search).ok_or_else(|| {
        let beside = beside.as_deref().map_or_else(|| "beside this program".to_owned(), shown_path);
        let search = shown_path(Path::new(&search));
        let what = format!(
            "{PROGRAM} was not found: not at {beside}, nor in PATH ({search}). It comes with the development package of gpuvol, or from `cargo build -p gpuvol-csi`"
        );
        Failure::Other(what)
    })?;
    let source = Command::new(&program).args(command).args(&passed.arguments).exec();
    Err(Failure::File { path: program, source })
}

fn find(beside: Option<&Path>, search: &std::ffi::OsStr) -> Option<PathBuf> {
    let in_path = std::env::split_paths(search).filter(|dir| dir.is_absolute()).map(|dir| dir.join(PROGRAM));
    beside.map(Path::to_owned).into_iter().chain(in_path).find(|candidate| is_program(candidate))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::metadata(path).is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}
