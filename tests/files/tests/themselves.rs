//! The tests, on ordinary directories: they find nothing where nothing is wrong, and something where something is.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Output};

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("gpuvol-tests-").tempdir_in("/dev/shm").unwrap()
}

fn empty(directory: &Path) -> bool {
    directory.read_dir().unwrap().next().is_none()
}

const MODEL: &str = env!("CARGO_BIN_EXE_gpuvol-files-model");

fn model(more: &[&str]) -> Output {
    let (subject, reference) = (directory(), directory());
    let path = |directory: &tempfile::TempDir| directory.path().to_str().unwrap().to_owned();
    let (subject_path, reference_path) = (path(&subject), path(&reference));
    let output = run(MODEL, &[&["--subject", &subject_path, "--reference", &reference_path], more].concat());
    assert!(empty(subject.path()) && empty(reference.path()), "something is left behind");
    output
}

#[test]
fn the_model_agrees_with_tmpfs_and_itself() {
    let output = model(&["--cases", "150", "--seed", "11"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("0 readers kept an old version"), "{}", text(&output));
}

#[test]
fn the_model_follows_new_versions() {
    let output = model(&["--cases", "300", "--seed", "12", "--imitate-versions"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(!text(&output).contains(" 0 readers kept an old version"), "{}", text(&output));
}

/// /proc answers much, but not as a directory of files does.
#[test]
fn the_model_finds_what_is_wrong_and_says_it() {
    let reference = directory();
    let output = run(MODEL, &["--subject", "/proc", "--reference", reference.path().to_str().unwrap(), "--cases", "1"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("DIVERGENCE, seed 1 case 0"), "{}", text(&output));
}

#[test]
fn the_exerciser_finds_no_wrong_byte_on_tmpfs() {
    let subject = directory();
    let program = env!("CARGO_BIN_EXE_gpuvol-files-exerciser");
    let output = run(program, &["--directory", subject.path().to_str().unwrap(), "--operations", "1000"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(empty(subject.path()));
}

#[test]
fn the_load_loses_nothing_on_tmpfs() {
    let subject = directory();
    let path = subject.path().to_str().unwrap();
    let program = env!("CARGO_BIN_EXE_gpuvol-files-load");
    let output = run(program, &["--mounts", path, path, "--processes", "6", "--seconds", "2"]);
    assert!(output.status.success(), "{}", text(&output));
    assert!(empty(subject.path()));
}

#[test]
fn the_bench_prints_every_figure() {
    let (subject, reference) = (directory(), directory());
    let json = directory();
    let file = json.path().join("figures.json");
    let mut arguments = vec!["--subject", subject.path().to_str().unwrap()];
    arguments.extend(["--reference", reference.path().to_str().unwrap(), "--json", file.to_str().unwrap()]);
    arguments.extend(["--mib", "8", "--rounds", "1", "--names", "100", "--seconds", "1", "--operations", "50"]);
    let output = run(env!("CARGO_BIN_EXE_gpuvol-files-bench"), &arguments);
    assert!(output.status.success(), "{}", text(&output));
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(figures.as_array().unwrap().len(), 23);
}
