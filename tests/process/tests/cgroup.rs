//! A pod with little memory: pages are charged to who touches them first, so the store must have done that.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use gpuvol_process_tests::TestNode;
use gpuvol_process_tests::child::TestClient;

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 256 * MIB;

/// A memory cgroup of one test, version 1 or 2.
struct MemoryCgroup {
    directory: PathBuf,
}

impl MemoryCgroup {
    fn new(name: &str) -> Self {
        let v2 = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        let root = if v2 { "/sys/fs/cgroup" } else { "/sys/fs/cgroup/memory" };
        let directory = Path::new(root).join(format!("gpuvol-test-{}-{name}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let limit = if v2 { "memory.max" } else { "memory.limit_in_bytes" };
        fs::write(directory.join(limit), LIMIT.to_string()).unwrap();
        Self { directory }
    }

    /// Runs the test client inside.
    fn run(&self, mount: &Path, arguments: &[&str]) -> serde_json::Value {
        let enter = format!("echo $$ > '{}/cgroup.procs' && exec \"$0\" \"$@\"", self.directory.display());
        TestClient::under(&["sh", "-c", &enter], mount, arguments).said()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        for _ in 0..100 {
            if fs::remove_dir(&self.directory).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("{} could not be removed", self.directory.display());
    }
}

#[test]
fn a_pod_of_256_mib_puts_and_reads_an_object_of_1_gib() {
    let node = TestNode::start();
    let volume = node.volume("v", 2048 * MIB);
    let pod = MemoryCgroup::new("object");
    let put = pod.run(&volume.mount, &["put-pieces", "a", "1073741824", "3"]);
    let read = pod.run(&volume.mount, &["read-pieces", "a"]);
    assert_eq!((&read["crc"], &read["size"]), (&put["crc"], &serde_json::json!(1024 * MIB)));
}

/// The limit is a limit: the same amount of memory of the pod's own ends it.
#[test]
fn the_same_pod_is_killed_for_memory_of_its_own() {
    let node = TestNode::start();
    let volume = node.volume("v", 2048 * MIB);
    let pod = MemoryCgroup::new("own");
    let enter = format!("echo $$ > '{}/cgroup.procs' && exec \"$0\" \"$@\"", pod.directory.display());
    let mut client = TestClient::under(&["sh", "-c", &enter], &volume.mount, &["put", "a", "1073741824", "3"]);
    assert!(client.try_said().is_none(), "1 GiB fits into a pod of 256 MiB");
}
