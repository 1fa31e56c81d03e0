//! A development node of a test: its own runtime directory, ended whatever the test does.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};

use gpuvol_client::{ObjectPath, OpenOptions, PutOptions, Volume};
use gpuvol_csi::dev::node::status;
use gpuvol_csi::dev::process::command_line;
use gpuvol_csi::dev::record::Layout;
use gpuvol_csi::publish::{Best, MountMode};
use serde_json::Value;
use tempfile::TempDir;

pub const DEADLINE: Duration = Duration::from_secs(30);

/// The program under test; keeper and store are built beside it if they are missing.
pub fn dev() -> &'static str {
    static BUILT: Once = Once::new();
    let program = env!("CARGO_BIN_EXE_gpuvol-dev");
    BUILT.call_once(|| {
        for (name, package) in [("gpuvol-keeper", "gpuvol-store"), ("gpuvol-store", "gpuvol-store")] {
            build(name, package);
        }
    });
    program
}

/// Something that cargo makes, beside the program under test.
pub fn build(name: &str, package: &str) -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_gpuvol-dev")).parent().unwrap();
    let path = target.join(name);
    if !path.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--package", package]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "{package} does not build");
    }
    path
}

pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

pub struct DevNode {
    pub directory: TempDir,
    pub mount: PathBuf,
    pub as_nobody: bool,
}

impl DevNode {
    /// Not up yet; its mount will be a directory of this name.
    pub fn new(name: &str) -> Self {
        let directory = tempfile::Builder::new().prefix("gvdev").tempdir_in("/tmp").unwrap();
        let node = Self { mount: directory.path().join(name), directory, as_nobody: false };
        fs::create_dir(node.runtime()).unwrap();
        node
    }

    /// `XDG_RUNTIME_DIR` of its commands.
    pub fn runtime(&self) -> PathBuf {
        self.directory.path().join("run")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = if self.as_nobody {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(dev());
            command
        } else {
            Command::new(dev())
        };
        command.args(arguments).env("XDG_RUNTIME_DIR", self.runtime()).env("GPUVOL_LOG", "info");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a command to its end: whether it succeeded, and what it said.
    pub fn run(&self, arguments: &[&str]) -> (bool, String) {
        let output = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).output().unwrap();
        let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.success(), said(&output.stdout) + &said(&output.stderr))
    }

    pub fn up(&self, more: &[&str]) -> String {
        let mut all = vec!["up", "--mount", self.mount.to_str().unwrap()];
        all.extend(more);
        let (ok, text) = self.run(&all);
        assert!(ok, "{text}");
        text
    }

    pub fn down(&self) {
        let (ok, text) = self.run(&["down", "--mount", self.mount.to_str().unwrap()]);
        assert!(ok && text.contains("is gone"), "{text}");
    }

    pub fn status_if_there(&self) -> Option<Value> {
        let (ok, text) = self.run(&["status", "--json"]);
        assert!(ok, "{text}");
        let from = text.find('[').unwrap();
        let all: Value = serde_json::from_str(&text[from..]).unwrap();
        all.as_array().unwrap().iter().find(|node| node["mount"] == self.mount.to_str().unwrap()).cloned()
    }

    pub fn status(&self) -> Value {
        self.status_if_there().expect("the node is there")
    }

    pub fn process<'a>(status: &'a Value, role: &str) -> &'a Value {
        status["processes"].as_array().unwrap().iter().find(|p| p["role"] == role).unwrap()
    }

    pub fn pid(&self, role: &str) -> u64 {
        Self::process(&self.status(), role)["pid"].as_u64().unwrap()
    }

    /// How many descriptors the keeper holds.
    pub fn held(&self) -> u64 {
        let state = self.status()["state"].as_str().unwrap().into();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(status(&Layout { state }, DEADLINE)).unwrap().held
    }
}

impl Drop for DevNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for entry in fs::read_dir(self.runtime().join("gpuvol")).into_iter().flatten().flatten() {
                for log in fs::read_dir(entry.path().join("log")).into_iter().flatten().flatten() {
                    eprintln!("{}:\n{}", log.path().display(), fs::read_to_string(log.path()).unwrap_or_default());
                }
            }
        }
        let _ = self.command(&["down", "--mount"]).arg(&self.mount).status();
    }
}

/// What is left of a node: processes, mounts, files.
pub fn residue(node: &DevNode) -> Vec<String> {
    let below = node.directory.path().to_str().unwrap().to_owned();
    let mut left = remains(&below);
    for entry in fs::read_dir(node.directory.path()).unwrap().flatten() {
        if entry.path() != node.runtime() {
            left.push(entry.path().display().to_string());
        }
    }
    left.extend(fs::read_dir(node.runtime()).unwrap().flatten().map(|e| e.path().display().to_string()));
    left
}

/// Processes and mounts with a text in their command line or path.
pub fn remains(text: &str) -> Vec<String> {
    let mut left = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(line) = command_line(pid).filter(|line| line.contains(text)) {
            left.push(format!("process {pid}: {line}"));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(text)).map(|line| format!("mount {line}")));
    left
}

/// By a session of its own: one that is kept would be of the node that was at this path before.
pub fn put(mount: &Path, name: &str, content: &[u8]) {
    let volume = Volume::at_mount(mount).unwrap();
    volume.put_bytes(&ObjectPath::new(name).unwrap(), content, &PutOptions::default()).unwrap();
}

pub fn get(mount: &Path, name: &str) -> Vec<u8> {
    let volume = Volume::at_mount(mount).unwrap();
    volume.open(&ObjectPath::new(name).unwrap(), &OpenOptions::default()).unwrap().bytes().unwrap().to_vec()
}

/// What an ordinary program reads at a path; in a process of its own, for it may wait for a mounter.
pub fn cat(path: &Path) -> Option<Vec<u8>> {
    let output = Command::new("timeout").args(["20", "cat"]).arg(path).output().unwrap();
    output.status.success().then_some(output.stdout)
}

/// Writes a file as an ordinary program does.
pub fn write(path: &Path, content: &[u8]) {
    let mut command = Command::new("timeout");
    let mut child = command.args(["20", "tee"]).arg(path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(content).unwrap();
    assert!(child.wait().unwrap().success(), "{}", path.display());
}

/// Whether nodes show their volumes as file systems here.
pub fn has_view() -> bool {
    let best = Best::here(Path::new("/"));
    if best.mode != MountMode::View {
        eprintln!("skipped what needs a file view: {}", best.why);
    }
    best.mode == MountMode::View
}

/// SIGKILL.
pub fn kill(pid: u64) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

pub fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !there() {
        assert!(Instant::now() < until, "{what}: not within {DEADLINE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
