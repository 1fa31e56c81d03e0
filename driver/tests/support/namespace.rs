//! Tests that mount run in a mount namespace of their own, so that nothing they leave outlives them.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::process::Command;

/// Set for the process inside.
const INSIDE: &str = "GPUVOL_TEST_NAMESPACE";

/// Runs a test's body in a private mount namespace, as root of a user namespace where it is not root. Skips by name
/// where neither is permitted.
pub fn mounting(test: &str, body: impl Future<Output = ()>) {
    run(test, !rustix::process::geteuid().is_root(), body);
}

/// The same as root of a user namespace, whoever runs the tests.
pub fn mounting_as_user(test: &str, body: impl Future<Output = ()>) {
    run(test, true, body);
}

fn run(test: &str, user: bool, body: impl Future<Output = ()>) {
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(body);
        // A test of a hanging mount leaves a thread behind.
        runtime.shutdown_background();
        return;
    }
    let mut unshare = vec!["--mount", "--propagation", "private"];
    if user {
        unshare.extend(["--user", "--map-root-user"]);
    }
    let possible = Command::new("unshare").args(&unshare).arg("true").output();
    if !possible.as_ref().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped {test}: needs a mount namespace, as root or in a user namespace: {possible:?}");
        return;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(&unshare)
        .arg(program)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let (text, notes) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}{notes}");
    notes.lines().filter(|line| line.starts_with("skipped")).for_each(|line| eprintln!("{test}: {line}"));
}
