//! The gRPC server on its Unix socket.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Mode;
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use crate::config::Config;
use crate::controller::Controller;
use crate::csi::controller_server::ControllerServer;
use crate::csi::identity_server::IdentityServer;
use crate::csi::node_server::NodeServer;
use crate::identity::Identity;
use crate::listener;
use crate::node::Node;
use crate::op_guard::Operations;
use crate::publish::Publisher;
use crate::store_client::{Deadlines, StoreClient};
use crate::topology::NodeTopology;

/// Calls in progress on one connection; kubelet and the sidecars have one each.
const MAX_CALLS: usize = 64;
/// How long a probe may wait for the store: liveness probes give up after a second or two.
const PROBE: Deadlines = Deadlines { connect: Duration::from_millis(200), call: Duration::from_millis(700) };

/// The three services.
#[derive(Debug)]
pub struct Plugin {
    pub identity: Identity,
    pub controller: Controller,
    pub node: Node,
}

impl Plugin {
    /// The services of a node; the store need not run yet.
    pub fn new(config: &Config) -> Self {
        let store = Arc::new(StoreClient::new(config.store_socket(), Deadlines::default()));
        let mode = config.mount_mode();
        tracing::info!(%mode, "volumes appear in this form, or in a lesser one that they ask for");
        let publisher = Publisher::new(Arc::clone(&store), &config.state, config.roots.clone(), mode);
        Self::with(config, store, publisher)
    }

    /// With a publisher of the caller's making.
    pub fn with(config: &Config, store: Arc<StoreClient>, publisher: Publisher) -> Self {
        let operations = Operations::default();
        let here = NodeTopology::of(&config.node_name);
        let probe = Arc::new(StoreClient::new(store.path().to_owned(), PROBE));
        Self {
            identity: Identity::new(probe),
            controller: Controller::new(Arc::clone(&store), operations.clone(), here),
            node: Node::new(store, operations, publisher, config.node_name.clone()),
        }
    }
}

/// The socket that CSI is served on; its name goes when this is dropped, unless another plugin took it over.
#[derive(Debug)]
pub struct Endpoint {
    path: PathBuf,
    inode: u64,
    listener: StdListener,
}

impl Endpoint {
    /// Binds the socket, in place of one that a plugin before left. Refuses while another plugin answers there.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let invalid = || io::Error::new(io::ErrorKind::InvalidInput, "not the path of a file");
        let (parent, name) = path.parent().zip(path.file_name()).ok_or_else(invalid)?;
        let name = name.to_str().ok_or_else(invalid)?;
        fs::create_dir_all(parent)?;
        let directory = File::open(parent)?;
        if listener::answers(directory.as_fd(), name)? {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another plugin answers there; end it first"));
        }
        let listener = StdListener::from(listener::bind(directory.as_fd(), name, Mode::from_raw_mode(0o600))?);
        listener.set_nonblocking(true)?;
        Ok(Self { path: path.to_owned(), inode: fs::symlink_metadata(path)?.ino(), listener })
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Another descriptor for the listener; it does not wait for connections.
    pub fn listener(&self) -> io::Result<StdListener> {
        self.listener.try_clone()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Serves until `shutdown` resolves, and then until the calls in progress are over.
pub async fn serve(
    plugin: Plugin,
    endpoint: Endpoint,
    shutdown: impl Future<Output = ()>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let listener = UnixListener::from_std(endpoint.listener()?)?;
    Server::builder()
        .concurrency_limit_per_connection(MAX_CALLS)
        .add_service(IdentityServer::new(plugin.identity))
        .add_service(ControllerServer::new(plugin.controller))
        .add_service(NodeServer::new(plugin.node))
        .serve_with_incoming_shutdown(UnixListenerStream::new(listener), shutdown)
        .await?;
    Ok(())
}
