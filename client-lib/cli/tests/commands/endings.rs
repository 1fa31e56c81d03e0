//! How commands end: exit codes, deadlines, another program.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::node::{MIB, Node, args};

#[test]
fn exit_codes_tell_failures_apart() {
    let mut node = Node::start();
    let data = node.volume("data", 4 * MIB);
    let read_only = node.publish("data", "ro", true);
    fs::write(node.plain("large"), vec![0; 5 << 20]).unwrap();
    fs::write(node.plain("x"), b"x").unwrap();
    node.run(["no-such-command"]).fails(2);
    node.run(args!["put", "--device", "GPU-7", node.plain("x"), &data]).fails(2);
    node.run(args!["cat", data.join("none")]).fails(3);
    node.run(args!["cat", node.plain("none")]).fails(3);
    let full = node.run(args!["put", node.plain("large"), &data]).fails(4);
    assert!(full.contains("data") && full.contains("MiB"), "{full}");
    node.run(args!["put", node.plain("x"), &read_only]).fails(1);
    node.run(args!["cat", &data]).fails(1);
    node.run(args!["put", "-", &data]).fails(1);
    let start = Instant::now();
    node.run(args!["wait", "--timeout", "100ms", data.join("none")]).fails(5);
    node.run(args!["cat", "--wait", "100ms", data.join("none")]).fails(5);
    node.run(args!["get", "--wait", "100ms", data.join("none"), "-"]).fails(5);
    assert!(start.elapsed() < Duration::from_secs(10));
    node.kill_store();
    fs::remove_file(data.join(".gpuvol.sock")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(data.join(".gpuvol.sock")).unwrap());
    node.run(args!["ls", &data]).fails(6);
    node.run(args!["doctor", &data]).fails_quietly();
}

#[test]
fn waits_end_when_the_producer_is_done() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"x").unwrap();
    let late = data.join("late");
    let waits: Vec<_> = [args!["wait", "--json", "--timeout", "20s", &late], args!["cat", "--wait", "20s", &late]]
        .into_iter()
        .map(|arguments| node.command().args(arguments).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    node.run(args!["put", "-q", node.plain("x"), &late]).ok();
    let mut out = waits.into_iter().map(|wait| wait.wait_with_output().unwrap());
    let waited: serde_json::Value = serde_json::from_slice(&out.next().unwrap().stdout).unwrap();
    assert_eq!(waited["entries"][0]["size"], 1);
    assert_eq!(out.next().unwrap().stdout, b"x");
    node.run(args!["wait", &data]).fails(1);
    node.run(args!["wait", node.plain("x")]).ok();
}

#[test]
fn dev_and_demo_are_another_program() {
    let node = Node::start();
    let bin = node.state().join("bin");
    fs::create_dir(&bin).unwrap();
    // Where the tests run, the real one may lie beside the command: a copy of the command has nothing beside it.
    fs::copy(env!("CARGO_BIN_EXE_gpuvol"), bin.join("gpuvol")).unwrap();
    let run = |arguments: &[&str], path: &Path| {
        std::process::Command::new(bin.join("gpuvol")).args(arguments).env("PATH", path).output().unwrap()
    };
    let none = run(&["dev", "up"], Path::new("/nonexistent"));
    let error = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(error.contains(bin.join("gpuvol-dev").to_str().unwrap()) && error.contains("/nonexistent"), "{error}");
    let elsewhere = node.state().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for (directory, says) in [(&elsewhere, "in PATH"), (&bin, "beside")] {
        let program = directory.join("gpuvol-dev");
        fs::write(&program, format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n")).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let out = run(&["demo", "--help", "-x"], &elsewhere);
        assert_eq!(
            (out.status.code(), String::from_utf8(out.stdout).unwrap()),
            (Some(7), format!("{says} demo --help -x\n"))
        );
    }
}

#[test]
fn help_documents_exit_codes_and_names() {
    let node = Node::start();
    let help = node.run(["--help"]).ok();
    for line in ["  3  not found", "  6  the store cannot be reached", "printf %b"] {
        assert!(help.contains(line), "{help}");
    }
    for command in ["ls", "stat", "cat", "put", "get", "cp", "mv", "rm", "mkdir", "df", "wait", "doctor"] {
        let help = node.run([command, "--help"]).ok();
        assert!(help.contains("Examples:") && help.contains(&format!("  gpuvol {command}")), "{help}");
    }
}
