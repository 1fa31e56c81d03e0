//! Makes the plugin known to kubelet, in place of a node-driver-registrar sidecar.
//!
//! Kubelet watches a directory for sockets. It asks the one that it finds there for a name and an endpoint, calls the
//! endpoint, and says what came of it. When the socket's name goes, kubelet forgets the plugin.

use std::io;

use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use crate::capabilities::DRIVER_NAME;
use crate::config::Registration;
use crate::server::Endpoint;
use proto::registration_server::{self, RegistrationServer};
use proto::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};

/// Kubelet's registration interface, generated from `proto/registration.proto`.
pub mod proto {
    #![allow(missing_debug_implementations, clippy::pedantic, clippy::all)]

    tonic::include_proto!("pluginregistration");
}

/// The registration; dropped, kubelet forgets the plugin.
#[derive(Debug)]
pub struct Registrar {
    _socket: Endpoint,
    served: JoinHandle<()>,
}

impl Drop for Registrar {
    fn drop(&mut self) {
        self.served.abort();
    }
}

/// Offers the plugin to kubelet. Within a runtime.
pub fn start(registration: &Registration) -> io::Result<Registrar> {
    let socket = Endpoint::bind(&registration.socket)?;
    let incoming = UnixListenerStream::new(UnixListener::from_std(socket.listener()?)?);
    let service = RegistrationServer::new(Answers { endpoint: registration.endpoint.display().to_string() });
    let served = tokio::spawn(async move {
        if let Err(error) = Server::builder().add_service(service).serve_with_incoming(incoming).await {
            tracing::error!(%error, "kubelet cannot register the plugin any more; restart it");
        }
    });
    Ok(Registrar { _socket: socket, served })
}

#[derive(Debug)]
struct Answers {
    endpoint: String,
}

#[tonic::async_trait]
impl registration_server::Registration for Answers {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(PluginInfo {
            r#type: "CSIPlugin".to_owned(),
            name: DRIVER_NAME.to_owned(),
            endpoint: self.endpoint.clone(),
            supported_versions: vec!["1.0.0".to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        if status.plugin_registered {
            tracing::info!("registered with kubelet");
        } else {
            // Kubelet does not try again by itself; a socket that is made anew is found anew.
            tracing::error!(error = status.error, "kubelet refused the plugin; restart it when the cause is gone");
        }
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
