//! The Identity service: who this is, and whether it can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tonic::{Code, Request, Response, Status};

use crate::blocking;
use crate::capabilities::{self, DRIVER_NAME};
use crate::csi::identity_server;
use crate::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest, GetPluginInfoResponse,
    ProbeRequest, ProbeResponse,
};
use crate::status::status;
use crate::store_client::StoreClient;

/// How long after the plugin's own start the store may take to appear; until then the plugin counts as starting.
const STARTING: Duration = Duration::from_secs(60);

/// Serves Identity calls.
#[derive(Debug)]
pub struct Identity {
    store: Arc<StoreClient>,
    started: Instant,
    /// The store answered once, so from now on its absence is an error.
    reached: Arc<AtomicBool>,
}

impl Identity {
    /// `store` should have short deadlines: a probe is answered within its caller's second or two.
    pub fn new(store: Arc<StoreClient>) -> Self {
        Self { store, started: Instant::now(), reached: Arc::default() }
    }

    fn probe(&self) -> impl FnOnce() -> Result<ProbeResponse, Status> + Send + use<> {
        let (store, reached) = (Arc::clone(&self.store), Arc::clone(&self.reached));
        let starting = self.started.elapsed() < STARTING;
        move || match store.node() {
            Ok(node) => {
                reached.store(true, Ordering::Relaxed);
                if !node.keeper_connected {
                    // It serves on without one, but what is stored would not outlive it.
                    tracing::warn!("the store has no connection to the keeper");
                }
                Ok(ProbeResponse { ready: Some(true) })
            }
            Err(error) if starting && !reached.load(Ordering::Relaxed) => {
                tracing::info!(%error, "still starting");
                Ok(ProbeResponse { ready: Some(false) })
            }
            Err(error) => Err(status(Code::FailedPrecondition, &error)),
        }
    }
}

#[tonic::async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER_NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: [].into(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities: capabilities::plugin() }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(blocking::run(Identity::probe(self)).await?))
    }
}
