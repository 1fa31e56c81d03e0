//! The CSI plugin: flags, then a gRPC server until SIGTERM.

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpuvol_csi::config::{Config, Flags};
use gpuvol_csi::logging;
use gpuvol_csi::registration;
use gpuvol_csi::server::{Endpoint, Plugin, serve};
use gpuvol_csi::watch;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// How long calls in progress may take after SIGTERM; kubelet repeats what is cut short.
const GRACE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("gpuvol-csi: {error}");
            ExitCode::FAILURE
        }
    }
}

type Failure = Box<dyn Error + Send + Sync>;

fn start() -> Result<(), Failure> {
    let config = Flags::parse().check()?;
    logging::start(&config.log)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(64).enable_all().build()?;
    let result = runtime.block_on(run(&config));
    // A system call that hangs must not keep the process.
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

async fn run(config: &Config) -> Result<(), Failure> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let endpoint =
        Endpoint::bind(&config.endpoint).map_err(|e| format!("cannot serve on {}: {e}", config.endpoint.display()))?;
    tracing::info!(
        endpoint = %endpoint.path().display(),
        store = %config.store_socket().display(),
        node = config.node_name,
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
    if let Err(error) = watch::start(config.state.clone(), config.roots.clone(), config.hang_deadline) {
        tracing::warn!(%error, "nobody watches over mounts here: one that hangs ends with its store, mounter and keeper");
    }
    // Kubelet calls as soon as it knows of the plugin, so this comes after the endpoint.
    let registrar = config.registration.as_ref().map(registration::start).transpose();
    let _registrar = registrar.map_err(|e| format!("cannot register with kubelet: {e}"))?;
    let (stop, stopped) = oneshot::channel::<()>();
    let server = serve(Plugin::new(config), endpoint, async {
        // An error is a sender that is gone, which ends the server as well.
        let _ = stopped.await;
    });
    tokio::pin!(server);
    tokio::select! {
        result = &mut server => return result,
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    tracing::info!("ending: no new calls");
    let _ = stop.send(());
    match tokio::time::timeout(GRACE, server).await {
        Ok(result) => result,
        Err(_) => {
            tracing::warn!(?GRACE, "calls are still in progress; they are cut short, and kubelet repeats them");
            Ok(())
        }
    }
}
