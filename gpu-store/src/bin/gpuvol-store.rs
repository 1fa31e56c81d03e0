//! `gpuvol-store`: catalogue, quota and policy of a node's volumes.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gpuvol_store::budget::Budgets;
use gpuvol_store::copier::Copier;
use gpuvol_store::node::{Config, Node};
use gpuvol_store::{process, serve};

/// Serves the node's volumes. May be killed and started again at any time while the keeper lives.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-store", version)]
struct Flags {
    /// Directory of the node's state; the admin socket is store/admin.sock below it.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Host memory that volumes may take together, such as 64GiB. Without it: half of what the machine has.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    host_budget: Option<u64>,
    /// GPU memory that volumes may take together, of each GPU. Without it: all but what one CUDA context needs.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    gpu_budget: Option<u64>,
    /// Host memory for copies of objects in GPU memory, which programs that read them as files need. Without it: a quarter
    /// of what the machine has.
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    replica_budget: Option<u64>,
    /// The copier's program. Without it: gpuvol-copier beside this one.
    #[arg(long, value_name = "PATH")]
    copier: Option<PathBuf>,
    /// Seconds to wait for the keeper at start.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    keeper_patience: u64,
    /// What to log, as in RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
    /// Take memfds for device memory: for tests with the fake CUDA driver.
    #[arg(long, hide = true)]
    memfd_devices: bool,
}

/// `4GiB`, `512MiB`, `1.5GiB`, or bytes.
fn parse_size(text: &str) -> Result<u64, String> {
    gpuvol_protocol::types::parse_size(text).map_err(|e| e.to_string())
}

fn memory() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(info.mem_unit.into())
}

fn main() -> std::process::ExitCode {
    let flags = Flags::parse();
    process::start_logging(&flags.log);
    let Err(error) = run(&flags);
    tracing::error!(%error, "the store ends");
    std::process::ExitCode::FAILURE
}

fn run(flags: &Flags) -> Result<std::convert::Infallible, Box<dyn std::error::Error>> {
    let _only = process::claim(&flags.state.join("store"), Duration::from_secs(5))?;
    let node = Node::start(Config {
        state: flags.state.clone(),
        budgets: Budgets { host: flags.host_budget.unwrap_or_else(|| memory() / 2), gpu: flags.gpu_budget },
        replica_budget: flags.replica_budget.unwrap_or_else(|| memory() / 4),
        copier: flags.copier.clone().map_or_else(Copier::installed, Ok)?,
        keeper_patience: Duration::from_secs(flags.keeper_patience),
        descriptors: process::raise_descriptor_limit(),
        memfd_devices: flags.memfd_devices,
    })?;
    let views = process::listen(&flags.state.join("store/view.sock"))?;
    let viewed = node.clone();
    std::thread::Builder::new().name("views".into()).spawn(move || serve::view::serve(&viewed, &views))?;
    let listener = process::listen(&flags.state.join("store/admin.sock"))?;
    tracing::info!(volumes = node.catalogue().volumes.len(), "serving");
    serve::admin::serve(&node, &listener)
}
