//! Pods one after the other on a node with the real keeper, store, mounter and plugin: what one wrote, the next one reads.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

#[path = "support/dev_node.rs"]
mod dev_node;
#[path = "support/namespace.rs"]
mod namespace;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use dev_node::{DEADLINE, cat, dev, has_view, kill};
use gpuvol_csi::dev::Error;
use gpuvol_csi::dev::device::{Chosen, Wish};
use gpuvol_csi::dev::kubelet::{Kubelet, Volume};
use gpuvol_csi::dev::node::{Node, Plan, status};
use gpuvol_csi::dev::process::Identity;
use gpuvol_csi::dev::programs::{MOUNTER, Programs, STORE};
use gpuvol_csi::dev::record::Layout;
use gpuvol_csi::publish::MountMode;
use namespace::mounting;
use tempfile::TempDir;

const CAPACITY: u64 = 1 << 30;
const PATIENCE: Duration = Duration::from_secs(60);

/// The node's processes. Dropped, they are gone.
#[derive(Clone, Default)]
struct Processes(Arc<Mutex<Vec<(&'static str, Identity)>>>);

impl Processes {
    fn note(&self, role: &'static str, identity: Identity) {
        let mut all = self.0.lock().unwrap();
        all.retain(|(known, _)| *known != role);
        all.push((role, identity));
    }
}

struct Ended(Processes);

impl Drop for Ended {
    fn drop(&mut self) {
        // Twice, for one may have been started again just then.
        for _ in 0..2 {
            let all = self.0.0.lock().unwrap().clone();
            let _ = all.into_iter().all(|(_, identity)| identity.end(Duration::ZERO));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Its parts go in this order.
struct Site {
    node: Node,
    kubelet: Kubelet,
    volume: Volume,
    processes: Ended,
    directory: TempDir,
}

impl Site {
    async fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("gvpods").tempdir_in("/tmp").unwrap();
        let (state, targets) = (directory.path().join("s"), directory.path().join("pods"));
        std::fs::create_dir(&state).unwrap();
        std::fs::create_dir(&targets).unwrap();
        let bin = Path::new(dev()).parent().unwrap();
        let plan = Plan {
            layout: Layout { state },
            targets,
            mode: MountMode::View,
            capacity: CAPACITY,
            wish: Wish::Host,
            programs: Programs::find(Some(bin)).unwrap(),
            store_flags: Vec::new(),
            tied: false,
        };
        let processes = Processes::default();
        let ended = Ended(processes.clone());
        let node =
            Node::start(&plan, &(Arc::new(move |role, identity, _| processes.note(role, identity)) as _)).unwrap();
        let (mut kubelet, chosen) = node.ready(Wish::Host).await.unwrap();
        assert_eq!(chosen, Chosen::Host);
        let volume = kubelet.create("v", CAPACITY, chosen.parameters()).await.unwrap();
        Self { node, kubelet, volume, processes: ended, directory }
    }

    fn target(&self, pod: &str) -> PathBuf {
        let parent = self.directory.path().join("pods").join(pod);
        std::fs::create_dir_all(&parent).unwrap();
        parent.join("mount")
    }

    fn kill(&self, role: &str) {
        let all = self.processes.0.0.lock().unwrap();
        kill(all.iter().find(|(known, _)| *known == role).unwrap().1.pid.into());
    }

    /// Again and again, as kubelet does.
    async fn publish(&mut self, target: &Path, pod: &str) {
        let until = Instant::now() + DEADLINE;
        while let Err(error) = self.kubelet.publish(&self.volume, target, pod).await {
            assert!(is_for_now(&error) && Instant::now() < until, "{error}");
        }
    }

    async fn unpublish(&mut self, target: &Path) {
        let until = Instant::now() + DEADLINE;
        while let Err(error) = self.kubelet.unpublish(&self.volume.id, target, PATIENCE).await {
            assert!(is_for_now(&error) && Instant::now() < until, "{error}");
        }
        assert!(!target.exists());
    }

    async fn end(mut self) {
        self.kubelet.delete(&self.volume.id, PATIENCE).await.unwrap();
        let layout = Layout { state: self.directory.path().join("s") };
        let until = Instant::now() + DEADLINE;
        // The catalogue's log, and nothing else.
        while status(&layout, PATIENCE).await.unwrap().held > 1 {
            assert!(Instant::now() < until, "descriptors are left in the keeper");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.node.stop().await;
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!table.contains(self.directory.path().to_str().unwrap()), "{table}");
    }
}

/// The store was killed while it was asked.
fn is_for_now(error: &Error) -> bool {
    matches!(error, Error::Call { code: tonic::Code::Unavailable, .. })
}

/// Runs a shell command in a mount, as a pod that ends with it.
fn pod(script: &str, target: &Path) {
    let status = Command::new("timeout")
        .args(["60", "sh", "-ec", script])
        .current_dir(target)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{script}: {status}");
}

#[test]
fn what_a_pod_wrote_just_before_its_end_is_there_for_the_next_one() {
    mounting("what_a_pod_wrote_just_before_its_end_is_there_for_the_next_one", async {
        if !has_view() {
            return;
        }
        let mut site = Site::new().await;
        for turn in 0..40 {
            let target = site.target(&format!("pod-{}", turn % 3));
            site.publish(&target, "pod").await;
            pod(&format!("head -c 300000 /dev/zero | tr '\\0' {} >file; echo {turn} >>turns", turn % 10), &target);
            site.unpublish(&target).await;
            let next = site.target("next");
            site.publish(&next, "next").await;
            let content = cat(&next.join("file")).unwrap();
            assert_eq!(content, vec![b'0' + u8::try_from(turn % 10).unwrap(); 300_000], "turn {turn}");
            let turns = String::from_utf8(cat(&next.join("turns")).unwrap()).unwrap();
            assert_eq!(turns.lines().count(), turn + 1);
            site.unpublish(&next).await;
        }
        site.end().await;
    });
}

#[test]
fn pods_of_any_user_read_and_write_and_keep_their_files_to_themselves() {
    mounting("pods_of_any_user_read_and_write_and_keep_their_files_to_themselves", async {
        if !has_view() {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: there are no other users in this namespace");
            return;
        }
        let mut site = Site::new().await;
        let target = site.target("pod");
        site.publish(&target, "pod").await;
        let as_user = |uid: u32, script: &str| {
            pod(&format!("setpriv --reuid {uid} --regid {uid} --clear-groups sh -ec '{script}'"), &target);
        };
        as_user(1000, "umask 022; echo content >shared; echo secret >private; chmod 600 private; test -S .gpuvol.sock");
        as_user(2000, "test $(cat shared) = content; ! cat private; ! echo x >shared; echo mine >other");
        pod("test $(stat -c %u:%g shared) = 1000:1000; test $(stat -c %u other) = 2000; cat private", &target);
        site.unpublish(&target).await;
        site.end().await;
    });
}

#[test]
fn a_pod_starts_while_mounter_and_store_are_being_replaced() {
    mounting("a_pod_starts_while_mounter_and_store_are_being_replaced", async {
        if !has_view() {
            return;
        }
        let mut site = Site::new().await;
        for (turn, role) in [MOUNTER, STORE, MOUNTER, STORE].into_iter().enumerate() {
            let target = site.target("pod");
            site.kill(role);
            site.publish(&target, "pod").await;
            pod(&format!("echo {turn} >>turns; test $(wc -l <turns) = {}", turn + 1), &target);
            site.kill(role);
            // Kubelet may have been started again as well.
            site.publish(&target, "pod").await;
            pod(&format!("test $(wc -l <turns) = {}", turn + 1), &target);
            site.kill(role);
            site.unpublish(&target).await;
        }
        site.end().await;
    });
}
