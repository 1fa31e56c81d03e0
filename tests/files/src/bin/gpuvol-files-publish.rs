//! Makes a volume on a node that `gpuvol dev up` has started and publishes it to several of its pods, as kubelet does it.
//! Says where, one line for each, and then an empty one. Takes everything away when its standard input ends.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use gpuvol_csi::csi::controller_client::ControllerClient;
use gpuvol_csi::csi::node_client::NodeClient;
use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use gpuvol_csi::csi::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, NodeGetInfoRequest, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest, TopologyRequirement, Volume, VolumeCapability,
};
use tonic::transport::{Channel, Endpoint};

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Parser, Debug)]
struct Arguments {
    /// State directory of the node.
    #[arg(long)]
    state: PathBuf,
    /// Below which the pods' mounts are made: the parent of the node's own mount.
    #[arg(long)]
    below: PathBuf,
    #[arg(long, default_value_t = 16)]
    pods: u32,
    #[arg(long, default_value_t = 2048)]
    mib: i64,
}

struct Node {
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

fn main() {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut node = runtime.block_on(Node::connect(&arguments.state.join("csi.sock")));
    let name = format!("files-{}", std::process::id());
    let volume = runtime.block_on(node.create(&name, arguments.mib << 20));
    let targets: Vec<PathBuf> = (0..arguments.pods).map(|n| arguments.below.join(format!("{name}-pod-{n}"))).collect();
    for target in &targets {
        runtime.block_on(node.publish(&volume, target));
        println!("{}", target.display());
    }
    println!();
    std::io::stdin().read_to_end(&mut Vec::new()).expect("standard input");
    for target in &targets {
        runtime.block_on(node.unpublish(&volume, target));
    }
    runtime.block_on(node.delete(&volume));
}

impl Node {
    async fn connect(socket: &Path) -> Self {
        let address = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(address).expect("an address").timeout(PATIENCE);
        let channel = endpoint.connect().await.expect("the plugin");
        Self { controller: ControllerClient::new(channel.clone()), node: NodeClient::new(channel) }
    }

    async fn create(&mut self, name: &str, bytes: i64) -> Volume {
        let info = self.node.node_get_info(NodeGetInfoRequest {}).await.expect("NodeGetInfo").into_inner();
        let here: Vec<_> = info.accessible_topology.into_iter().collect();
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: bytes, limit_bytes: bytes }),
            volume_capabilities: vec![capability()],
            parameters: HashMap::from([("gpuvol.dev/tier".to_owned(), "host".to_owned())]),
            accessibility_requirements: Some(TopologyRequirement { requisite: here.clone(), preferred: here }),
            ..CreateVolumeRequest::default()
        };
        let answer = self.controller.create_volume(request).await.expect("CreateVolume");
        answer.into_inner().volume.expect("a volume")
    }

    async fn publish(&mut self, volume: &Volume, target: &Path) {
        let mut context = volume.volume_context.clone();
        context.insert("csi.storage.k8s.io/pod.namespace".into(), "files".into());
        context.insert("csi.storage.k8s.io/pod.name".into(), text(target));
        let request = NodePublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            target_path: text(target),
            volume_capability: Some(capability()),
            volume_context: context,
            ..NodePublishVolumeRequest::default()
        };
        self.node.node_publish_volume(request).await.expect("NodePublishVolume");
    }

    async fn unpublish(&mut self, volume: &Volume, target: &Path) {
        let request = NodeUnpublishVolumeRequest { volume_id: volume.volume_id.clone(), target_path: text(target) };
        self.node.node_unpublish_volume(request).await.expect("NodeUnpublishVolume");
    }

    async fn delete(&mut self, volume: &Volume) {
        let request = DeleteVolumeRequest { volume_id: volume.volume_id.clone(), ..DeleteVolumeRequest::default() };
        self.controller.delete_volume(request).await.expect("DeleteVolume");
    }
}

/// Many writers on one node, as `ReadWriteOnce` becomes.
fn capability() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeMultiWriter.into() }),
    }
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}
