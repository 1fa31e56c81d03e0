//! A plugin in this process, a scripted store behind it, and a private mount namespace around both.
#![allow(dead_code, reason = "every test program uses a part of it")]

pub mod broken_mount;
pub mod fake_mounter;
pub mod fake_store;
pub mod namespace;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gpuvol_csi::config::{Config, Flags};
use gpuvol_csi::csi::controller_client::ControllerClient;
use gpuvol_csi::csi::identity_client::IdentityClient;
use gpuvol_csi::csi::node_client::NodeClient;
use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use gpuvol_csi::csi::{
    CapacityRange, CreateVolumeRequest, NodePublishVolumeRequest, NodeUnpublishVolumeRequest, VolumeCapability,
};
use gpuvol_csi::publish::Publisher;
use gpuvol_csi::publish::steps::Hook;
use gpuvol_csi::server::{Endpoint, Plugin, serve};
use gpuvol_csi::store_client::{Deadlines, StoreClient};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tonic::transport::Channel;
use tonic::{Code, Status};

use fake_store::FakeStore;

pub const GIB: i64 = 1 << 30;

/// How long mounts and the store may hang in tests.
pub const PATIENCE: Duration = Duration::from_millis(400);

/// A node: state directory, kubelet's directory, a store and a plugin.
pub struct Rig {
    pub dir: TempDir,
    pub store: FakeStore,
    pub plugin: Running,
}

/// A plugin that serves, and clients to it.
pub struct Running {
    pub identity: IdentityClient<Channel>,
    pub controller: ControllerClient<Channel>,
    pub node: NodeClient<Channel>,
    stop: oneshot::Sender<()>,
    served: tokio::task::JoinHandle<()>,
}

impl Rig {
    pub async fn new() -> Self {
        Self::with(&[], Hook::default()).await
    }

    pub async fn with(flags: &[&str], hook: Hook) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("kubelet/pods")).unwrap();
        let store = FakeStore::start(&dir.path().join("state"));
        let plugin = Running::start(dir.path(), flags, hook).await;
        Self { dir, store, plugin }
    }

    /// Ends the plugin and starts another one on the same state.
    pub async fn restart(&mut self, flags: &[&str], hook: Hook) {
        // The name goes first, as if the old one had been killed: a plugin does not replace one that answers.
        std::fs::remove_file(self.dir.path().join("csi.sock")).unwrap();
        let fresh = Running::start(self.dir.path(), flags, hook).await;
        std::mem::replace(&mut self.plugin, fresh).end().await;
    }

    /// A target path as kubelet makes them: longer than a socket's address, its parent there.
    pub fn target(&self, pod: &str) -> PathBuf {
        let parent = self
            .dir
            .path()
            .join("kubelet/pods")
            .join(format!("{pod}-89ab-cdef-0123-456789abcdef"))
            .join("volumes/kubernetes.io~csi/pvc-0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9");
        std::fs::create_dir_all(&parent).unwrap();
        parent.join("mount")
    }

    pub async fn create(&mut self, name: &str) -> String {
        let response = self.plugin.controller.create_volume(create(name, 10 * GIB)).await.unwrap();
        response.into_inner().volume.unwrap().volume_id
    }

    pub async fn publish(&mut self, volume: &str, target: &Path) -> Result<(), Status> {
        self.plugin.node.node_publish_volume(publish(volume, target, Mode::SingleNodeWriter)).await.map(|_| ())
    }

    pub async fn unpublish(&mut self, volume: &str, target: &Path) -> Result<(), Status> {
        self.plugin.node.node_unpublish_volume(unpublish(volume, target)).await.map(|_| ())
    }

    /// Everything that publishes leave on this node, by name: nothing, when all are undone.
    pub fn residue(&self) -> Vec<String> {
        let mut left: Vec<String> =
            mounts().into_iter().filter(|mount| mount.contains(self.dir.path().to_str().unwrap())).collect();
        let homes = self.dir.path().join("state/publish");
        left.extend(std::fs::read_dir(homes).into_iter().flatten().map(|e| e.unwrap().path().display().to_string()));
        left.extend(find(&self.dir.path().join("kubelet"), "mount"));
        left.extend(self.store.publishes().into_iter().map(|p| format!("in the store: {}", p.target)));
        left
    }
}

impl Drop for Rig {
    /// A test may leave publishes; a directory with mounts in it could not be removed, and a process of which a thread
    /// waits for an answer could not end.
    fn drop(&mut self) {
        self.store.lose_mounts();
        let below = self.dir.path().to_str().unwrap();
        for path in mounts().iter().filter_map(|line| line.split(' ').nth(4)).filter(|path| path.starts_with(below)) {
            let _ = rustix::mount::unmount(path, rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Running {
    pub async fn start(dir: &Path, flags: &[&str], hook: Hook) -> Self {
        let config = config(dir, flags);
        let deadlines = Deadlines { connect: PATIENCE, call: PATIENCE };
        let store = Arc::new(StoreClient::new(config.store_socket(), deadlines));
        let publisher = Publisher::new(Arc::clone(&store), &config.state, config.roots.clone(), config.mount_mode())
            .with_hook(hook, PATIENCE);
        let plugin = Plugin::with(&config, store, publisher);
        let endpoint = Endpoint::bind(&config.endpoint).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(async move {
            let shutdown = async {
                let _ = stopped.await;
            };
            serve(plugin, endpoint, shutdown).await.unwrap();
        });
        let channel = connect(&config.endpoint).await;
        Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
            stop,
            served,
        }
    }

    /// Ends the server.
    pub async fn end(self) {
        let Self { identity, controller, node, stop, served } = self;
        drop((identity, controller, node));
        let _ = stop.send(());
        tokio::time::timeout(Duration::from_secs(10), served).await.unwrap().unwrap();
    }
}

pub fn config(dir: &Path, flags: &[&str]) -> Config {
    use clap::Parser;
    let path = |name: &str| dir.join(name).display().to_string();
    let endpoint = format!("unix://{}", path("csi.sock"));
    let (state, kubelet) = (path("state"), path("kubelet"));
    let mut all = vec!["gpuvol-csi", "--endpoint", &endpoint, "--state", &state, "--node-name", "node-1"];
    all.extend(["--kubelet-dir", &kubelet]);
    all.extend(flags);
    Flags::try_parse_from(all).unwrap().check().unwrap()
}

pub async fn connect(socket: &Path) -> Channel {
    tonic::transport::Endpoint::from_shared(format!("unix://{}", socket.display())).unwrap().connect().await.unwrap()
}

pub fn capability(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

/// A host volume of exactly this size.
pub fn create(name: &str, bytes: i64) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: bytes }),
        volume_capabilities: vec![capability(Mode::SingleNodeWriter)],
        parameters: [("gpuvol.dev/tier".to_owned(), "host".to_owned())].into(),
        ..CreateVolumeRequest::default()
    }
}

pub fn publish(volume: &str, target: &Path, mode: Mode) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: volume.to_owned(),
        target_path: target.to_str().unwrap().to_owned(),
        volume_capability: Some(capability(mode)),
        ..NodePublishVolumeRequest::default()
    }
}

pub fn unpublish(volume: &str, target: &Path) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: target.to_str().unwrap().to_owned() }
}

/// A call must fail with this code and with no details.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Status>, code: Code) -> String {
    let status = result.expect_err("the call must be refused");
    assert_eq!(status.code(), code, "{}", status.message());
    assert!(status.details().is_empty());
    status.message().to_owned()
}

/// Lines of this process's mount table.
pub fn mounts() -> Vec<String> {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap().lines().map(str::to_owned).collect()
}

pub fn mounts_at(target: &Path) -> Vec<String> {
    let path = target.to_str().unwrap();
    mounts().into_iter().filter(|line| line.split(' ').nth(4) == Some(path)).collect()
}

fn find(below: &Path, name: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.file_name().is_some_and(|n| n == name) {
            found.push(path.display().to_string());
        } else if entry.file_type().is_ok_and(|t| t.is_dir()) {
            found.extend(find(&path, name));
        }
    }
    found
}
