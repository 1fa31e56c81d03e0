//! The plugin as a program: flags, signals, its socket, its logs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvol_csi::csi::controller_client::ControllerClient;
use gpuvol_csi::csi::node_client::NodeClient;
use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::csi::{CreateVolumeRequest, DeleteVolumeRequest, NodePublishVolumeRequest};
use gpuvol_csi::registration::proto::registration_client::RegistrationClient;
use gpuvol_csi::registration::proto::{InfoRequest, RegistrationStatus};
use rustix::process::{Pid, Signal, kill_process};
use support::fake_store::FakeStore;
use support::{GIB, create, publish};

struct Program {
    child: Child,
}

impl Program {
    fn start(dir: &Path, more: &[&str]) -> Self {
        let path = |name: &str| dir.join(name).display().to_string();
        let child = Command::new(env!("CARGO_BIN_EXE_gpuvol-csi"))
            .args(["--endpoint", &format!("unix://{}", path("csi.sock"))])
            .args(["--state", &path("state"), "--kubelet-dir", &path("kubelet"), "--node-name", "node-1"])
            .args(["--mount", "none"])
            .args(more)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self { child }
    }

    fn serving(mut self, dir: &Path) -> Self {
        let until = Instant::now() + Duration::from_secs(20);
        while UnixStream::connect(dir.join("csi.sock")).is_err() {
            assert!(Instant::now() < until && self.child.try_wait().unwrap().is_none(), "it does not serve");
            std::thread::sleep(Duration::from_millis(10));
        }
        self
    }

    /// Ends it by a signal, and answers whether that was a success, and its log.
    fn end(mut self, signal: Signal) -> (bool, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut log = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
        (self.child.wait().unwrap().success(), log)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_in_no_log_at_the_highest_verbosity() {
    const SECRET: &str = "hunter2-of-the-logs";
    let dir = tempfile::tempdir().unwrap();
    let _store = FakeStore::start(&dir.path().join("state"));
    std::fs::create_dir(dir.path().join("kubelet")).unwrap();
    let program = Program::start(dir.path(), &["--log", "trace"]).serving(dir.path());
    let secrets = || [("token".to_owned(), SECRET.to_owned())].into();
    let channel = support::connect(&dir.path().join("csi.sock")).await;
    let mut controller = ControllerClient::new(channel.clone());
    let mut node = NodeClient::new(channel);
    let request = CreateVolumeRequest { secrets: secrets(), ..create("v", GIB) };
    let volume = controller.create_volume(request.clone()).await.unwrap().into_inner().volume.unwrap().volume_id;
    let target = dir.path().join("kubelet/mount");
    let mut request = publish(&volume, &target, Mode::SingleNodeWriter);
    request.secrets = secrets();
    request.publish_context = secrets();
    request.volume_context.insert("csi.storage.k8s.io/serviceAccount.tokens".into(), SECRET.into());
    node.node_publish_volume(request.clone()).await.unwrap();
    let bad = NodePublishVolumeRequest { target_path: "some/path".into(), ..request };
    let refused = node.node_publish_volume(bad).await.unwrap_err();
    assert!(!refused.message().contains(SECRET));
    node.node_unpublish_volume(support::unpublish(&volume, &target)).await.unwrap();
    controller.delete_volume(DeleteVolumeRequest { volume_id: volume, secrets: secrets() }).await.unwrap();
    let (ended_well, log) = program.end(Signal::TERM);
    assert!(ended_well, "{log}");
    assert!(log.contains("published") && log.contains("volume deleted"), "{log}");
    assert!(!log.contains(SECRET));
}

#[test]
fn the_socket_goes_at_sigterm_and_a_stale_one_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let (killed, _) = Program::start(dir.path(), &[]).serving(dir.path()).end(Signal::KILL);
    assert!(!killed && dir.path().join("csi.sock").exists());
    let running = Program::start(dir.path(), &[]).serving(dir.path());
    let mut second = Program::start(dir.path(), &[]);
    assert!(!second.child.wait().unwrap().success());
    let mut why = String::new();
    second.child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(why.contains("another plugin answers"), "{why}");
    let (ended_well, _) = running.end(Signal::TERM);
    assert!(ended_well && !dir.path().join("csi.sock").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubelet_learns_name_and_endpoint_and_forgets_at_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("plugins_registry/csi.gpuvol.dev-reg.sock");
    let url = format!("unix://{}", socket.display());
    let flags = ["--registration", &url, "--kubelet-endpoint", "/var/lib/kubelet/plugins/csi.gpuvol.dev/csi.sock"];
    let program = Program::start(dir.path(), &flags).serving(dir.path());
    let until = Instant::now() + Duration::from_secs(10);
    while !socket.exists() && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let mut kubelet = RegistrationClient::new(support::connect(&socket).await);
    let info = kubelet.get_info(InfoRequest {}).await.unwrap().into_inner();
    assert_eq!((info.r#type.as_str(), info.name.as_str()), ("CSIPlugin", "csi.gpuvol.dev"));
    assert_eq!(info.endpoint, "/var/lib/kubelet/plugins/csi.gpuvol.dev/csi.sock");
    let status = RegistrationStatus { plugin_registered: false, error: "not today".into() };
    kubelet.notify_registration_status(status).await.unwrap();
    let (ended_well, log) = program.end(Signal::TERM);
    assert!(ended_well && log.contains("not today"), "{log}");
    assert!(!socket.exists());
}

#[test]
fn wrong_flags_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut program = Program::start(dir.path(), &["--kubelet-dir", "relative"]);
    assert!(!program.child.wait().unwrap().success());
    let mut why = String::new();
    program.child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
    assert!(why.contains("--kubelet-dir"), "{why}");
}
