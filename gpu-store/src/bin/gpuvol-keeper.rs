//! `gpuvol-keeper`: holds file descriptors so that memory outlives every other process.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use gpuvol_store::{keeper, process};

/// Holds the node's memory for the store. Replace it only while the store lives.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-keeper", version)]
struct Flags {
    /// Directory of the node's state; the socket is keeper/keeper.sock below it.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// What to log, as in RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

fn main() -> std::io::Result<()> {
    let flags = Flags::parse();
    process::start_logging(&flags.log);
    let _only = process::claim(&flags.state.join("keeper"), Duration::from_secs(5))?;
    let limit = process::raise_descriptor_limit();
    let listener = process::listen(&flags.state.join("keeper/keeper.sock"))?;
    tracing::info!(limit, "holding");
    keeper::serve(&listener, limit)
}
