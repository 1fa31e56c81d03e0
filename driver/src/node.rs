//! The Node service: publishes on this node.

mod usage;

use std::sync::Arc;

use gpuvol_protocol::VolumeId;
use gpuvol_protocol::admin::{Publish, Publishes, Volume};
use tonic::{Request, Response, Status};

use crate::blocking;
use crate::capabilities::{self, Access};
use crate::capacity::SizeRange;
use crate::csi::{
    NodeExpandVolumeRequest, NodeExpandVolumeResponse, NodeGetCapabilitiesRequest, NodeGetCapabilitiesResponse,
    NodeGetInfoRequest, NodeGetInfoResponse, NodeGetVolumeStatsRequest, NodeGetVolumeStatsResponse,
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest, NodeUnpublishVolumeResponse,
    node_server,
};
use crate::op_guard::Operations;
use crate::parameters::{Parameters, pod};
use crate::publish::{self, Publisher};
use crate::status::unknown_volume;
use crate::store_client::StoreClient;
use crate::target::TargetPath;
use crate::topology::NodeTopology;

/// Serves Node calls.
#[derive(Debug)]
pub struct Node {
    store: Arc<StoreClient>,
    operations: Operations,
    publisher: Arc<Publisher>,
    name: String,
}

impl Node {
    /// `operations` are shared with the Controller service.
    pub fn new(store: Arc<StoreClient>, operations: Operations, publisher: Publisher, name: String) -> Self {
        Self { store, operations, publisher: Arc::new(publisher), name }
    }
}

fn check_publish(request: NodePublishVolumeRequest) -> Result<publish::Request, Status> {
    if request.volume_id.is_empty() {
        return Err(Status::invalid_argument("the volume id is missing"));
    }
    let target = TargetPath::parse(&request.target_path)?;
    let access = Access::parse(request.volume_capability.as_ref())?;
    let files = Parameters::from_context(&request.volume_context)?.files;
    let volume = VolumeId::new(request.volume_id).map_err(|e| unknown_volume(&e))?;
    let group = access.group.map_or_else(|| "none".to_owned(), |gid| gid.to_string());
    Ok(publish::Request {
        volume,
        target,
        read_only: request.readonly || access.read_only,
        shared: access.shared,
        files,
        pod: pod(&request.volume_context),
        arguments: format!("mode={}, group={group}, files={}", access.mode, files.name()),
    })
}

/// A volume that is published at a path.
struct Published {
    id: VolumeId,
    volume: Volume,
    target: TargetPath,
    publish: Publish,
    /// The store serves it, and a mounter its mount.
    served: bool,
}

/// The volume, if it is published at the path; before any judgement on the path's form.
fn published(store: &StoreClient, volume_id: &str, path: &str) -> Result<Published, Status> {
    let id = VolumeId::new(volume_id).map_err(|e| unknown_volume(&e))?;
    let volume = store.get_volume(&id)?;
    let nowhere = || {
        let path: String = path.chars().take(200).collect();
        Status::not_found(format!("volume {id} is not published at {path:?} on this node"))
    };
    let target = TargetPath::parse(path).map_err(|_| nowhere())?;
    let Publishes { publishes, unserved } = store.publishes()?;
    let publish =
        publishes.into_iter().find(|p| p.volume == volume_id && p.target == target.as_str()).ok_or_else(nowhere)?;
    let served = !unserved.contains(&publish.publish);
    Ok(Published { id, volume, target, publish, served })
}

fn expand(store: &StoreClient, request: &NodeExpandVolumeRequest, range: SizeRange) -> Result<u64, Status> {
    let Published { id, volume, .. } = published(store, &request.volume_id, &request.volume_path)?;
    let now = volume.spec.map_or(0, |spec| spec.capacity);
    if now > range.limit() {
        return Err(Status::out_of_range(format!(
            "volume {id} has {now} bytes already, more than limit_bytes {}; volumes do not shrink",
            range.limit()
        )));
    }
    if now >= range.required() {
        return Ok(now);
    }
    store.expand_volume(&id, range.required())?;
    tracing::info!(volume = %id, from = now, to = range.required(), "volume expanded");
    Ok(range.required())
}

#[tonic::async_trait]
impl node_server::Node for Node {
    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Result<Response<NodePublishVolumeResponse>, Status> {
        let request = check_publish(request.into_inner())?;
        let on_volume = self.operations.on_volume(request.volume.as_str())?;
        let on_target = self.operations.on_target(request.target.as_str())?;
        let (store, publisher) = (Arc::clone(&self.store), Arc::clone(&self.publisher));
        blocking::run(move || {
            let _operations = (on_volume, on_target);
            store.get_volume(&request.volume)?;
            publisher.publish(&request)?;
            tracing::info!(volume = %request.volume, target_path = %request.target, pod = request.pod, "published");
            Ok(())
        })
        .await?;
        Ok(Response::new(NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Result<Response<NodeUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the volume id is missing"));
        }
        if request.target_path.is_empty() {
            return Err(Status::invalid_argument("the target path is missing"));
        }
        // Nothing is ever published at a path that no publish takes, and there is nothing to undo.
        if let Ok(target) = TargetPath::parse(&request.target_path) {
            let on_volume = self.operations.on_volume(&request.volume_id)?;
            let on_target = self.operations.on_target(target.as_str())?;
            let publisher = Arc::clone(&self.publisher);
            blocking::run(move || {
                let _operations = (on_volume, on_target);
                publisher.unpublish(&request.volume_id, &target)?;
                tracing::info!(volume = request.volume_id, target_path = %target, "unpublished");
                Ok(())
            })
            .await?;
        }
        Ok(Response::new(NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Result<Response<NodeGetVolumeStatsResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() || request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the volume id or the volume path is missing"));
        }
        let (store, publisher) = (Arc::clone(&self.store), Arc::clone(&self.publisher));
        let response = blocking::run(move || {
            let found = published(&store, &request.volume_id, &request.volume_path)?;
            Ok(usage::stats(&found.volume, publisher.fault(&found.publish, &found.target, found.served)))
        })
        .await?;
        Ok(Response::new(response))
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Result<Response<NodeExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() || request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the volume id or the volume path is missing"));
        }
        if request.volume_capability.is_some() {
            Access::parse(request.volume_capability.as_ref())?;
        }
        let range = SizeRange::parse(request.capacity_range.as_ref())?;
        let operation = self.operations.on_volume(&request.volume_id)?;
        let store = Arc::clone(&self.store);
        let capacity = blocking::run(move || {
            let _operation = operation;
            expand(&store, &request, range)
        })
        .await?;
        Ok(Response::new(NodeExpandVolumeResponse { capacity_bytes: i64::try_from(capacity).unwrap_or(i64::MAX) }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Result<Response<NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities: capabilities::node() }))
    }

    async fn node_get_info(&self, _: Request<NodeGetInfoRequest>) -> Result<Response<NodeGetInfoResponse>, Status> {
        Ok(Response::new(NodeGetInfoResponse {
            node_id: self.name.clone(),
            max_volumes_per_node: 0,
            accessible_topology: Some(NodeTopology::of(&self.name).segments()),
        }))
    }
}
