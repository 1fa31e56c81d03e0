//! Where the fake CUDA driver is: beside the test programs, built if it is not there yet.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

const FILE: &str = "libgpuvol_fake_cuda.so";

/// The fake driver's path, for `GPUVOL_LIBCUDA` or [`use_library`](crate::cuda::use_library). Panics with
/// cargo's word when it can be neither found nor built.
#[must_use]
pub fn driver() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(find).clone()
}

fn find() -> PathBuf {
    // Test programs are at target/<profile>/deps/<name>, shared libraries in target/<profile>.
    let program = std::env::current_exe().expect("own path");
    let profile = program.ancestors().nth(2).expect("target/<profile>/deps/<program>");
    let library = profile.join(FILE);
    if !library.exists() {
        build(profile);
    }
    assert!(library.exists(), "no {} even after building it", library.display());
    library
}

fn build(profile: &std::path::Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "-p", "gpuvol-fake-cuda"]);
    if profile.file_name().is_some_and(|name| name == "release") {
        command.arg("--release");
    }
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if let Some(target) = profile.parent() {
        command.arg("--target-dir").arg(target);
    }
    let status = command.status().expect("cargo");
    assert!(status.success(), "building gpuvol-fake-cuda: {status}");
}

/// Makes this process use the fake driver, unless its environment has chosen a driver already.
pub fn use_driver() {
    static CHOSEN: OnceLock<()> = OnceLock::new();
    CHOSEN.get_or_init(|| crate::cuda::use_library(driver()).expect("the fake driver"));
}
