//! The CSI calls that provisioner and kubelet make, over the plugin's socket, each with a deadline.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};

use super::{Error, Result};
use crate::csi::controller_client::ControllerClient;
use crate::csi::identity_client::IdentityClient;
use crate::csi::node_client::NodeClient;
use crate::csi::volume_capability::access_mode::Mode;
use crate::csi::volume_capability::{AccessMode, AccessType, MountVolume};
use crate::csi::{
    CapacityRange, CreateVolumeRequest, DeleteVolumeRequest, NodeGetInfoRequest, NodePublishVolumeRequest,
    NodeUnpublishVolumeRequest, ProbeRequest, TopologyRequirement, VolumeCapability,
};

const RETRY: Duration = Duration::from_millis(20);
/// How long one call may take; the plugin's own calls to the store end sooner.
const CALL: Duration = Duration::from_secs(60);

/// A volume as CreateVolume answered it.
#[derive(Debug, Clone)]
pub struct Volume {
    pub id: String,
    context: HashMap<String, String>,
}

/// A plugin's caller.
#[derive(Debug, Clone)]
pub struct Kubelet {
    identity: IdentityClient<Channel>,
    controller: ControllerClient<Channel>,
    node: NodeClient<Channel>,
}

impl Kubelet {
    /// Connects; the socket has to be there.
    pub async fn connect(socket: &Path) -> Result<Self> {
        let path = socket.to_owned();
        // The address is a file's, which may have bytes that no URL has; what tonic sees is not used.
        let connector = tower::service_fn(move |_: Uri| {
            let path: PathBuf = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        let channel = Endpoint::from_static("http://plugin")
            .connect_timeout(Duration::from_secs(2))
            .timeout(CALL)
            .connect_with_connector(connector)
            .await
            .map_err(|source| Error::Plugin { socket: socket.to_owned(), source })?;
        Ok(Self {
            identity: IdentityClient::new(channel.clone()),
            controller: ControllerClient::new(channel.clone()),
            node: NodeClient::new(channel),
        })
    }

    /// Connects, again and again until the plugin says that it is ready. `healthy` can end the waiting.
    pub async fn ready(
        socket: &Path,
        logs: &Path,
        deadline: Duration,
        healthy: impl Fn() -> Result<()>,
    ) -> Result<Self> {
        let until = Instant::now() + deadline;
        loop {
            if let Ok(mut kubelet) = Self::connect(socket).await
                && let Ok(answer) = kubelet.identity.probe(ProbeRequest {}).await
                && answer.into_inner().ready.unwrap_or(true)
            {
                return Ok(kubelet);
            }
            healthy()?;
            if Instant::now() >= until {
                return Err(Error::Late { what: "the node's start".into(), after: deadline, logs: logs.to_owned() });
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// A volume of exactly this size, in bytes, on this node.
    pub async fn create(&mut self, name: &str, bytes: u64, parameters: HashMap<String, String>) -> Result<Volume> {
        let info = self.node.node_get_info(NodeGetInfoRequest {}).await;
        let here: Vec<_> =
            info.map_err(|e| refused("NodeGetInfo", name, &e))?.into_inner().accessible_topology.into_iter().collect();
        let size = i64::try_from(bytes).unwrap_or(i64::MAX);
        let request = CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(CapacityRange { required_bytes: size, limit_bytes: size }),
            volume_capabilities: vec![capability()],
            parameters,
            accessibility_requirements: Some(TopologyRequirement { requisite: here.clone(), preferred: here }),
            ..CreateVolumeRequest::default()
        };
        let answer = self.controller.create_volume(request).await.map_err(|e| refused("CreateVolume", name, &e))?;
        let volume = answer.into_inner().volume.unwrap_or_default();
        Ok(Volume { id: volume.volume_id, context: volume.volume_context })
    }

    /// Publishes at a target path, whose parent must be there, for a pod of this name.
    pub async fn publish(&mut self, volume: &Volume, target: &Path, pod: &str) -> Result<()> {
        let mut context = volume.context.clone();
        context.insert("csi.storage.k8s.io/pod.namespace".into(), "dev".into());
        context.insert("csi.storage.k8s.io/pod.name".into(), pod.into());
        let request = NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: text(target)?,
            volume_capability: Some(capability()),
            volume_context: context,
            ..NodePublishVolumeRequest::default()
        };
        self.node.node_publish_volume(request).await.map_err(|e| refused("NodePublishVolume", &volume.id, &e))?;
        Ok(())
    }

    /// Ends a publish; one that is not there is fine.
    pub async fn unpublish(&mut self, volume: &str, target: &Path, patience: Duration) -> Result<()> {
        let request = NodeUnpublishVolumeRequest { volume_id: volume.to_owned(), target_path: text(target)? };
        let request = within(request, patience);
        self.node.node_unpublish_volume(request).await.map_err(|e| refused("NodeUnpublishVolume", volume, &e))?;
        Ok(())
    }

    /// Deletes a volume; one that is not there is fine.
    pub async fn delete(&mut self, volume: &str, patience: Duration) -> Result<()> {
        let request = DeleteVolumeRequest { volume_id: volume.to_owned(), ..DeleteVolumeRequest::default() };
        let request = within(request, patience);
        self.controller.delete_volume(request).await.map_err(|e| refused("DeleteVolume", volume, &e))?;
        Ok(())
    }
}

fn within<T>(request: T, patience: Duration) -> Request<T> {
    let mut request = Request::new(request);
    request.set_timeout(patience);
    request
}

/// A file system, read and written by whatever is on one node, as ReadWriteOnce becomes.
fn capability() -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
    }
}

fn text(path: &Path) -> Result<String> {
    path.to_str().map(ToOwned::to_owned).ok_or_else(|| Error::NotText(path.to_owned()))
}

fn refused(call: &'static str, subject: &str, status: &Status) -> Error {
    Error::Call { call, subject: subject.to_owned(), code: status.code(), message: status.message().to_owned() }
}
