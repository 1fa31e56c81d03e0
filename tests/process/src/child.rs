//! The test client as a child: what it said, and its end.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::node::binary;

#[derive(Debug)]
pub struct TestClient {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl TestClient {
    pub fn start(mount: &Path, arguments: &[&str]) -> Self {
        Self::command(Command::new(binary("gpuvol-test-client", "gpuvol-process-tests")), mount, arguments)
    }

    /// Under another program, such as one that enters a cgroup or namespaces first.
    pub fn under(wrapper: &[&str], mount: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(binary("gpuvol-test-client", "gpuvol-process-tests"));
        Self::command(command, mount, arguments)
    }

    fn command(mut command: Command, mount: &Path, arguments: &[&str]) -> Self {
        command.arg(mount).args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// What it said next; panics where it ended instead.
    pub fn said(&mut self) -> serde_json::Value {
        self.try_said().expect("the test client ended")
    }

    pub fn try_said(&mut self) -> Option<serde_json::Value> {
        let mut line = String::new();
        self.out.read_line(&mut line).unwrap();
        (!line.is_empty()).then(|| serde_json::from_str(&line).unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// SIGKILL.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for TestClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
