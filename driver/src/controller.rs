//! The Controller service: volumes of this node.
//!
//! A volume's id is derived from its name, so that a repeated CreateVolume finds the volume of the first without any
//! state here. Rooms and sizes are decided by the store, under its lock.

mod list;

use std::sync::Arc;

use gpuvol_protocol::admin::{Volume as StoreVolume, VolumeSpec};
use gpuvol_protocol::{Code as FaultCode, VolumeId};
use tonic::{Request, Response, Status};

use crate::blocking;
use crate::capabilities::{self, Access};
use crate::capacity::SizeRange;
use crate::csi::validate_volume_capabilities_response::Confirmed;
use crate::csi::{
    ControllerGetCapabilitiesRequest, ControllerGetCapabilitiesResponse, CreateVolumeRequest, CreateVolumeResponse,
    DeleteVolumeRequest, DeleteVolumeResponse, GetCapacityRequest, GetCapacityResponse, ListVolumesRequest,
    ListVolumesResponse, ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
    controller_server,
};
use crate::op_guard::{Operation, Operations};
use crate::parameters::{FILES, Files, Parameters};
use crate::status::unknown_volume;
use crate::store_client::StoreClient;
use crate::topology::{NodeTopology, hash};

/// Longest volume name that is taken, in bytes; the specification asks for 128.
const MAX_NAME: usize = 1024;

/// Serves Controller calls.
#[derive(Debug)]
pub struct Controller {
    store: Arc<StoreClient>,
    operations: Operations,
    here: NodeTopology,
}

/// The id of the volume with this name.
pub fn volume_id(name: &str) -> Result<VolumeId, Status> {
    VolumeId::new(format!("gv-{}", hash(name, 40))).map_err(|e| unknown_volume(&e))
}

impl Controller {
    /// `operations` are shared with the Node service: one operation a volume, whoever asks.
    pub fn new(store: Arc<StoreClient>, operations: Operations, here: NodeTopology) -> Self {
        Self { store, operations, here }
    }

    fn check_create(&self, request: &CreateVolumeRequest) -> Result<(VolumeId, SizeRange, Parameters), Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("the volume's name is missing"));
        }
        if request.name.len() > MAX_NAME {
            return Err(Status::invalid_argument(format!(
                "the volume's name has {} bytes, more than {MAX_NAME}",
                request.name.len()
            )));
        }
        Access::parse_all(&request.volume_capabilities)?;
        let parameters = Parameters::parse(&request.parameters)?;
        if !request.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("mutable parameters are not offered; use StorageClass parameters"));
        }
        if request.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "volumes from snapshots or other volumes are not offered; leave dataSource out",
            ));
        }
        let range = SizeRange::parse(request.capacity_range.as_ref())?;
        if !self.here.satisfies(request.accessibility_requirements.as_ref()) {
            return Err(Status::resource_exhausted(format!(
                "the volume must be on another node than {}, and this plugin provisions on its own node only",
                self.here.value()
            )));
        }
        Ok((volume_id(&request.name)?, range, parameters))
    }

    fn begin(&self, id: &str) -> Result<Operation, Status> {
        Ok(self.operations.on_volume(id)?)
    }
}

/// Finds or makes the volume.
fn create(
    store: &StoreClient,
    id: &VolumeId,
    name: &str,
    range: SizeRange,
    parameters: Parameters,
) -> Result<StoreVolume, Status> {
    if let Some(volume) = store.find_volume(id)? {
        return same_volume(volume, name, range, parameters);
    }
    let spec = VolumeSpec {
        id: id.to_string(),
        name: name.to_owned(),
        capacity: range.new_size(),
        tier: parameters.tier.into(),
        device: parameters.device_bytes(),
        on_loss: parameters.on_loss.into(),
    };
    let volume = store.create_volume(spec)?;
    tracing::info!(volume = %id, name, capacity = range.new_size(), tier = parameters.tier.name(), "volume created");
    Ok(volume)
}

/// A volume with the name exists: it is the answer if it is what was asked for.
fn same_volume(
    volume: StoreVolume,
    name: &str,
    range: SizeRange,
    parameters: Parameters,
) -> Result<StoreVolume, Status> {
    let spec = volume.spec.as_ref().ok_or_else(|| Status::internal("the store names a volume without its spec"))?;
    if !range.admits(spec.capacity) {
        return Err(Status::already_exists(format!(
            "volume {name} exists with {} bytes, and at least {} and at most {} were asked for; use another name, or \
             expand it",
            spec.capacity,
            range.required(),
            range.limit()
        )));
    }
    let same = spec.tier_or_host() == parameters.tier
        && spec.device == parameters.device_bytes()
        && spec.on_loss == i32::from(parameters.on_loss);
    if !same {
        return Err(Status::already_exists(format!(
            "volume {name} exists with other parameters; use another name, or delete it first"
        )));
    }
    Ok(volume)
}

/// A volume of the store as CSI sees it. What its pods see, the store does not keep: it travels with the answer to who
/// creates the volume.
fn to_csi(volume: &StoreVolume, files: Option<Files>, here: &NodeTopology) -> Result<Volume, Status> {
    let spec = volume.spec.as_ref().ok_or_else(|| Status::internal("the store names a volume without its spec"))?;
    let parameters = Parameters {
        tier: spec.tier_or_host(),
        device: spec.device.as_slice().try_into().ok(),
        on_loss: spec.on_loss(),
        files: files.unwrap_or(Files::View),
    };
    let mut volume_context = parameters.context();
    if files.is_none() {
        volume_context.remove(FILES);
    }
    Ok(Volume {
        capacity_bytes: i64::try_from(spec.capacity).unwrap_or(i64::MAX),
        volume_id: spec.id.clone(),
        volume_context,
        content_source: None,
        accessible_topology: vec![here.segments()],
    })
}

#[tonic::async_trait]
impl controller_server::Controller for Controller {
    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Result<Response<CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        let (id, range, parameters) = self.check_create(&request)?;
        let operation = self.begin(id.as_str())?;
        let (store, here, name) = (Arc::clone(&self.store), self.here.clone(), request.name);
        let volume = blocking::run(move || {
            let _operation = operation;
            to_csi(&create(&store, &id, &name, range, parameters)?, Some(parameters.files), &here)
        })
        .await?;
        Ok(Response::new(CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Result<Response<DeleteVolumeResponse>, Status> {
        let id = request.into_inner().volume_id;
        if id.is_empty() {
            return Err(Status::invalid_argument("the volume id is missing"));
        }
        // What cannot be an id is the id of no volume, and deleting no volume succeeds.
        if let Ok(id) = VolumeId::new(id) {
            let operation = self.begin(id.as_str())?;
            let store = Arc::clone(&self.store);
            blocking::run(move || {
                let _operation = operation;
                match store.delete_volume(&id) {
                    Ok(()) => tracing::info!(volume = %id, "volume deleted"),
                    Err(e) if e.is_not_found() => {}
                    Err(e) => return Err(e.into()),
                }
                Ok(())
            })
            .await?;
        }
        Ok(Response::new(DeleteVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Result<Response<ValidateVolumeCapabilitiesResponse>, Status> {
        let request = request.into_inner();
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the volume id is missing"));
        }
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the volume capabilities are missing"));
        }
        let id = VolumeId::new(request.volume_id).map_err(|e| unknown_volume(&e))?;
        let store = Arc::clone(&self.store);
        let volume = blocking::run(move || Ok(store.get_volume(&id)?)).await?;
        let context = |files| to_csi(&volume, Some(files), &self.here).map(|volume| volume.volume_context);
        let unsupported =
            |message: String| Ok(Response::new(ValidateVolumeCapabilitiesResponse { confirmed: None, message }));
        if let Err(e) = Access::parse_all(&request.volume_capabilities) {
            return unsupported(e.to_string());
        }
        match Parameters::parse(&request.parameters) {
            // None were named: nothing to compare.
            Ok(_) if request.parameters.is_empty() => {}
            Ok(asked) if asked.context() == context(asked.files)? => {}
            Ok(_) => return unsupported("the volume has other parameters".into()),
            Err(e) => return unsupported(e.to_string()),
        }
        if !request.mutable_parameters.is_empty() {
            return unsupported("mutable parameters are not offered".into());
        }
        let confirmed = Confirmed {
            volume_context: request.volume_context,
            volume_capabilities: request.volume_capabilities,
            parameters: request.parameters,
            mutable_parameters: request.mutable_parameters,
        };
        Ok(Response::new(ValidateVolumeCapabilitiesResponse { confirmed: Some(confirmed), message: String::new() }))
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Result<Response<ListVolumesResponse>, Status> {
        let page = list::Page::parse(&request.into_inner())?;
        let (store, here) = (Arc::clone(&self.store), self.here.clone());
        let response = blocking::run(move || page.read(&store, &here)).await?;
        Ok(Response::new(response))
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Result<Response<GetCapacityResponse>, Status> {
        let request = request.into_inner();
        let parameters = Parameters::parse(&request.parameters)?;
        let elsewhere = request.accessible_topology.as_ref().is_some_and(|place| !self.here.is_in(place));
        let unusable = request.volume_capabilities.iter().any(|c| Access::parse(Some(c)).is_err());
        let capacity = if elsewhere || unusable {
            gpuvol_protocol::admin::Capacity::default()
        } else {
            let store = Arc::clone(&self.store);
            blocking::run(move || match store.capacity(parameters.tier, parameters.device_bytes()) {
                // This node does not have that GPU, so no room on it.
                Err(e) if e.code() == Some(FaultCode::DeviceUnknown) => Ok(Default::default()),
                result => Ok(result?),
            })
            .await?
        };
        let bytes = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        Ok(Response::new(GetCapacityResponse {
            available_capacity: bytes(capacity.available),
            maximum_volume_size: Some(bytes(capacity.maximum)),
            minimum_volume_size: None,
        }))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<ControllerGetCapabilitiesResponse>, Status> {
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities: capabilities::controller() }))
    }
}
