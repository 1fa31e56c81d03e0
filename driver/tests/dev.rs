//! `gpuvol-dev up`, `down` and `status` with the real keeper, store and plugin.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

#[path = "support/dev_node.rs"]
mod dev_node;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use dev_node::{DevNode, cat, dev, eventually, get, has_view, is_root, kill, put, residue, write};

const CONTENT: &[u8] = &[7; 300_000];

#[test]
fn up_put_get_down() {
    let node = DevNode::new("data");
    let told = node.up(&[]);
    assert!(told.contains("gpuvol dev down --mount") && told.contains(node.mount.to_str().unwrap()), "{told}");
    put(&node.mount, "x", CONTENT);
    assert_eq!(get(&node.mount, "x"), CONTENT);
    let status = node.status();
    assert_eq!(status["condition"], "up", "{status}");
    assert!(status["used"].as_u64().unwrap() >= 300_000, "{status}");
    assert_eq!(status["processes"].as_array().unwrap().len(), if has_view() { 5 } else { 4 });
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
    assert!(!node.mount.exists());
    assert!(node.run(&["down", "--mount", node.mount.to_str().unwrap()]).0, "down of nothing is fine");
}

#[test]
fn ordinary_programs_see_the_objects_and_objects_are_what_they_write() {
    if !has_view() {
        return;
    }
    let node = DevNode::new("data");
    let told = node.up(&[]);
    assert!(told.contains("(a file system)") && told.contains("cp FILE"), "{told}");
    put(&node.mount, "object", CONTENT);
    assert_eq!(cat(&node.mount.join("object")).unwrap(), CONTENT);
    write(&node.mount.join("file"), CONTENT);
    assert_eq!(get(&node.mount, "file"), CONTENT);
    let program = node.mount.join("program");
    write(&program, b"#!/bin/sh\necho it runs\n");
    let run = Command::new("timeout").args(["20", "sh", "-c", "chmod +x \"$0\" && \"$0\""]).arg(&program).output();
    assert_eq!(run.unwrap().stdout, b"it runs\n");
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn who_is_inside_does_not_keep_the_node() {
    let node = DevNode::new("data");
    node.up(&[]);
    let mut inside = Command::new("sleep").arg("60").current_dir(&node.mount).spawn().unwrap();
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
    inside.kill().unwrap();
    inside.wait().unwrap();
}

#[test]
fn a_mounter_that_is_stopped_is_seen_and_costs_nothing_for_good() {
    if !has_view() {
        return;
    }
    let node = DevNode::new("data");
    node.up(&[]);
    put(&node.mount, "x", CONTENT);
    let mounter = node.pid("gpuvol-mounter");
    let signal =
        |what: &str| assert!(Command::new("kill").args([what, &mounter.to_string()]).status().unwrap().success());
    signal("-STOP");
    let mut reader = Command::new("cat").arg(node.mount.join("x")).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(reader.try_wait().unwrap().is_none());
    assert_eq!(node.status()["name"].as_str().map(str::is_empty), Some(false), "status does not wait for the mount");
    signal("-CONT");
    assert!(reader.wait().unwrap().success());
    signal("-STOP");
    let mut reader = Command::new("cat").arg(node.mount.join("x")).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    node.down();
    assert!(!reader.wait().unwrap().success());
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn without_a_mount_it_is_below_the_state_directory() {
    let mut node = DevNode::new("data");
    node.mount = node.runtime().join("gpuvol/default/mnt");
    let (ok, text) = node.run(&["up"]);
    assert!(ok && text.contains(node.mount.to_str().unwrap()), "{text}");
    put(&node.mount, "x", CONTENT);
    let (ok, text) =
        node.run(&["up", "--name", "default", "--mount", node.directory.path().join("m").to_str().unwrap()]);
    assert!(!ok && text.contains("is taken") && text.contains(node.mount.to_str().unwrap()), "{text}");
    assert_eq!(get(&node.mount, "x"), CONTENT);
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn what_others_could_have_written_is_not_believed() {
    let node = DevNode::new("data");
    let root = node.runtime().join("gpuvol");
    fs::create_dir(&root).unwrap();
    fs::set_permissions(&root, fs::Permissions::from_mode(0o777)).unwrap();
    let (ok, text) = node.run(&["up", "--mount", node.mount.to_str().unwrap()]);
    assert!(!ok && text.contains("others may write") && text.contains("--state"), "{text}");
    fs::remove_dir(&root).unwrap();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn two_nodes_side_by_side() {
    let (one, two) = (DevNode::new("data"), DevNode::new("data"));
    one.up(&[]);
    two.up(&[]);
    put(&one.mount, "x", b"one");
    put(&two.mount, "x", b"two");
    one.down();
    assert_eq!(residue(&one), Vec::<String>::new());
    assert_eq!(get(&two.mount, "x"), b"two");
    two.down();
    assert_eq!(residue(&two), Vec::<String>::new());
}

#[test]
fn each_program_is_killed_and_started_again_and_nothing_is_lost() {
    let node = DevNode::new("data");
    node.up(&[]);
    put(&node.mount, "x", CONTENT);
    let mut count = std::collections::HashMap::new();
    // The store again at the end: only what the new keeper got from it brings the content back.
    let mounter = ["gpuvol-mounter"].into_iter().filter(|_| has_view());
    for role in ["gpuvol-store", "gpuvol-csi", "gpuvol-keeper", "gpuvol-store"].into_iter().chain(mounter) {
        let before = node.pid(role);
        kill(before);
        let restarts = count.entry(role).and_modify(|n| *n += 1).or_insert(1);
        eventually(&format!("{role} is started again"), || {
            let status = node.status();
            let process = DevNode::process(&status, role);
            process["pid"] != before && process["restarts"] == *restarts && status["condition"] == "up"
        });
        if role == "gpuvol-keeper" {
            eventually("the store hands over", || node.held() > 0);
        }
        assert_eq!(get(&node.mount, "x"), CONTENT, "after {role}");
        if has_view() {
            assert_eq!(cat(&node.mount.join("x")).unwrap(), CONTENT, "after {role}");
            write(&node.mount.join(format!("written-after-{role}")), role.as_bytes());
        }
    }
    put(&node.mount, "y", b"more");
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn down_takes_away_what_is_left_of_a_node() {
    let mut all = vec![&["gpuvol-keeper"][..], &["gpuvol-csi"], &["gpuvol-store", "gpuvol-csi"], &[]];
    if has_view() {
        all.push(&["gpuvol-mounter"]);
    }
    for also in all {
        let node = DevNode::new("data");
        node.up(&[]);
        put(&node.mount, "x", CONTENT);
        for role in ["supervisor"].iter().chain(also) {
            kill(node.pid(role));
        }
        eventually("it is seen", || node.status()["condition"] == "half-dead");
        let (ok, text) = node.run(&["up", "--mount", node.mount.to_str().unwrap()]);
        assert!(!ok && text.contains("gpuvol dev down --mount"), "{text}");
        node.down();
        assert_eq!(residue(&node), Vec::<String>::new(), "{also:?}");
    }
}

#[test]
fn a_supervisor_that_is_asked_to_end_leaves_nothing() {
    let node = DevNode::new("data");
    node.up(&[]);
    Command::new("kill").arg(node.pid("supervisor").to_string()).status().unwrap();
    eventually("everything is gone", || residue(&node).is_empty());
}

#[test]
fn in_the_foreground_it_ends_with_its_terminal() {
    let node = DevNode::new("data");
    let mut child = node.command(&["up", "--foreground", "--mount"]).arg(&node.mount).spawn().unwrap();
    eventually("it is up", || node.status_if_there().is_some_and(|status| status["condition"] == "up"));
    put(&node.mount, "x", CONTENT);
    Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn up_twice_is_up_once() {
    let node = DevNode::new("data");
    node.up(&[]);
    let pid = node.pid("gpuvol-store");
    put(&node.mount, "x", CONTENT);
    assert!(node.up(&[]).contains("up already"));
    assert_eq!((node.pid("gpuvol-store"), get(&node.mount, "x")), (pid, CONTENT.to_vec()));
    let (ok, text) = node.run(&["up", "--capacity", "2GiB", "--mount", node.mount.to_str().unwrap()]);
    assert!(!ok && text.contains("2 GiB") && text.contains("4 GiB"), "{text}");
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn several_ups_at_once_make_one_node() {
    let node = DevNode::new("data");
    let all: Vec<_> = (0..4).map(|_| node.command(&["up", "--mount"]).arg(&node.mount).spawn().unwrap()).collect();
    for mut child in all {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(node.status()["condition"], "up");
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_directory_may_have_any_name() {
    let node = DevNode::new("my 'own' data \\ ä");
    node.up(&[]);
    put(&node.mount, "x", CONTENT);
    assert_eq!(get(&node.mount, "x"), CONTENT);
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_directory_that_was_there_is_there_afterwards() {
    let node = DevNode::new("data");
    fs::create_dir(&node.mount).unwrap();
    fs::set_permissions(&node.mount, fs::Permissions::from_mode(0o750)).unwrap();
    node.up(&[]);
    put(&node.mount, "x", CONTENT);
    node.down();
    assert_eq!(fs::metadata(&node.mount).unwrap().permissions().mode() & 0o7777, 0o750);
    fs::remove_dir(&node.mount).expect("it is empty");
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_directory_with_something_in_it_is_refused() {
    let node = DevNode::new("data");
    fs::create_dir(&node.mount).unwrap();
    fs::write(node.mount.join("thesis.txt"), "years of work").unwrap();
    let (ok, text) = node.run(&["up", "--mount", node.mount.to_str().unwrap()]);
    assert!(!ok && text.contains("thesis.txt") && text.contains(node.mount.to_str().unwrap()), "{text}");
    assert!(node.mount.join("thesis.txt").exists());
    fs::remove_dir_all(&node.mount).unwrap();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_state_directory_of_ones_own() {
    let node = DevNode::new("data");
    let state = node.directory.path().join("state");
    fs::create_dir(&state).unwrap();
    node.up(&["--state", state.to_str().unwrap()]);
    assert!(state.join("dev.json").exists());
    put(&node.mount, "x", CONTENT);
    fs::write(state.join("mine"), "").unwrap();
    node.down();
    assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "it was there before, and one file is the user's");
    let (ok, text) = node.run(&["up", "--state", state.to_str().unwrap(), "--mount", node.mount.to_str().unwrap()]);
    assert!(!ok && text.contains("holds no node"), "{text}");
    assert!(node.run(&["down", "--state", state.to_str().unwrap()]).0);
    assert!(state.join("mine").exists());
    fs::remove_dir_all(&state).unwrap();
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_state_directory_too_deep_for_sockets_is_refused() {
    let node = DevNode::new("data");
    let state = format!("/tmp/{}", "d".repeat(100));
    let (ok, text) = node.run(&["up", "--state", &state, "--mount", node.mount.to_str().unwrap()]);
    assert!(!ok && text.contains("107") && text.contains("--state"), "{text}");
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn a_start_that_fails_says_why_and_leaves_nothing() {
    let node = DevNode::new("data");
    let mount = node.mount.to_str().unwrap();
    let uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";
    let (ok, text) = node.run(&["up", "--mount", mount, "--device", uuid]);
    assert!(!ok && text.contains(uuid), "{text}");
    assert_eq!(residue(&node), Vec::<String>::new());
    if !Path::new("/dev/nvidiactl").exists() {
        let (ok, text) = node.run(&["up", "--mount", mount, "--device", "gpu"]);
        assert!(!ok && text.contains("no GPU") && text.contains("--device host"), "{text}");
        assert_eq!(residue(&node), Vec::<String>::new());
    }
    let (ok, text) = node.run(&["up", "--mount", mount, "--store-flag=--no-such-flag"]);
    assert!(!ok && text.contains("--no-such-flag") && text.contains("gpuvol-store"), "{text}");
    assert_eq!(residue(&node), Vec::<String>::new());
    let (ok, text) = node.run(&["up", "--mount", mount, "--bin-dir", "/nowhere"]);
    assert!(!ok && text.contains("/nowhere") && text.contains("cargo build"), "{text}");
    assert_eq!(residue(&node), Vec::<String>::new());
}

#[test]
fn without_root_the_socket_is_in_the_directory_itself() {
    const NOBODY: u32 = 65534;
    let mut node = DevNode::new("data");
    if is_root() {
        let program = Path::new(dev());
        let reached = Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(program)
            .arg("--version")
            .output();
        if !reached.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped without_root_the_socket_is_in_the_directory_itself: nobody cannot run {program:?}");
            return;
        }
        for directory in [node.directory.path().to_owned(), node.runtime()] {
            chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        node.as_nobody = true;
    }
    let told = node.up(&[]);
    assert!(told.contains("a socket in the directory itself"), "{told}");
    put(&node.mount, "x", CONTENT);
    assert_eq!(get(&node.mount, "x"), CONTENT);
    kill(node.pid("gpuvol-store"));
    eventually("the store is back", || get_if(&node.mount) == Some(CONTENT.to_vec()));
    node.down();
    assert_eq!(residue(&node), Vec::<String>::new());
    // A directory in which this user may write, in one in which it may not.
    fs::create_dir(&node.mount).unwrap();
    if is_root() {
        chown(&node.mount, Some(NOBODY), Some(NOBODY)).unwrap();
        chown(node.directory.path(), Some(0), Some(0)).unwrap();
    }
    node.up(&[]);
    put(&node.mount, "x", CONTENT);
    node.down();
    assert_eq!(fs::read_dir(&node.mount).unwrap().count(), 0);
    fs::remove_dir(&node.mount).unwrap();
    assert_eq!(residue(&node), Vec::<String>::new());
}

fn get_if(mount: &Path) -> Option<Vec<u8>> {
    std::thread::sleep(Duration::from_millis(10));
    Some(get(mount, "x"))
}
