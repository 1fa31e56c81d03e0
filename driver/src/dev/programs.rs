//! Keeper, store, mounter and plugin: where they are, and their command lines.

use std::env;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::record::Layout;
use super::{Error, Result};
use crate::publish::MountMode;

/// Roles, which are the programs' names.
pub const KEEPER: &str = "gpuvol-keeper";
pub const STORE: &str = "gpuvol-store";
pub const MOUNTER: &str = "gpuvol-mounter";
pub const PLUGIN: &str = "gpuvol-csi";

/// The programs of a node, found.
#[derive(Debug, Clone)]
pub struct Programs {
    pub keeper: PathBuf,
    pub store: PathBuf,
    pub mounter: PathBuf,
    pub plugin: PathBuf,
}

impl Programs {
    /// In `bin_dir` only where that is given; else beside this program, else in `PATH`.
    pub fn find(bin_dir: Option<&Path>) -> Result<Self> {
        let find = |name, package| find(name, package, bin_dir);
        Ok(Self {
            keeper: find(KEEPER, "gpuvol-store")?,
            store: find(STORE, "gpuvol-store")?,
            mounter: find(MOUNTER, "gpuvol-csi")?,
            plugin: find(PLUGIN, "gpuvol-csi")?,
        })
    }
}

fn find(name: &'static str, package: &'static str, bin_dir: Option<&Path>) -> Result<PathBuf> {
    let beside = || env::current_exe().ok().and_then(|exe| exe.parent().map(Path::to_owned));
    let (places, looked): (Vec<PathBuf>, String) = match bin_dir {
        Some(directory) => (vec![directory.to_owned()], format!("not in {}", directory.display())),
        None => {
            let path = env::var_os("PATH").unwrap_or_default();
            let beside = beside();
            let looked = beside.as_ref().map_or_else(String::new, |dir| format!("not in {}, ", dir.display()));
            let places = beside.into_iter().chain(env::split_paths(&path).filter(|dir| dir.is_absolute())).collect();
            (places, format!("{looked}nor in PATH"))
        }
    };
    let is_program = |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    let found = places.iter().map(|place| place.join(name)).find(is_program);
    found.ok_or(Error::NoProgram { name, package, looked })
}

/// Every command line says which node it is of. Keeper and mounter need no more than that.
pub fn state(layout: &Layout) -> Vec<OsString> {
    vec!["--state".into(), layout.state.clone().into()]
}

/// `host_budget` in bytes.
pub fn store(layout: &Layout, host_budget: u64, more: &[String]) -> Vec<OsString> {
    let mut all = state(layout);
    all.extend(["--host-budget".into(), host_budget.to_string().into()]);
    all.extend(more.iter().map(OsString::from));
    all
}

/// `targets`: the directory below which volumes may be published.
pub fn plugin(layout: &Layout, node: &str, targets: &Path, mode: MountMode) -> Vec<OsString> {
    let mut endpoint = OsString::from("unix://");
    endpoint.push(layout.plugin_socket());
    let mut all = state(layout);
    all.extend(["--endpoint".into(), endpoint, "--node-name".into(), node.into()]);
    all.extend(["--kubelet-dir".into(), targets.into(), "--mount".into(), mode.name().into()]);
    all
}
