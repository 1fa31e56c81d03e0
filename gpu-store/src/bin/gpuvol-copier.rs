//! `gpuvol-copier`: the store's GPU copies. The store starts it; its standard input is the store's connection.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpuvol_store::copier::{End, serve};
use gpuvol_store::process;
use rustix::net::SocketType;
use rustix::net::sockopt::socket_type;
use rustix::process::{Signal, getpid, kill_process};

/// Copies between GPU memory and host memory for the store that starts it. Ends when idle, and with the store.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-copier", version)]
struct Flags {
    /// Seconds without a copy after which the process ends, and with it its use of GPU memory.
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_seconds)]
    idle: Duration,
    /// What to log, as in RUST_LOG.
    #[arg(long, value_name = "FILTER", default_value = "info")]
    log: String,
}

fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|e| format!("{e}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    process::start_logging(&flags.log);
    let input = std::io::stdin();
    if socket_type(input.as_fd()) != Ok(SocketType::STREAM) {
        tracing::error!("gpuvol-copier is started by gpuvol-store: standard input is no socket");
        return ExitCode::FAILURE;
    }
    // Where host memory runs out, this process can be spared first: the store starts another.
    if let Err(error) = std::fs::write("/proc/self/oom_score_adj", "1000") {
        tracing::debug!(%error, "the OOM killer is not told that this process can be spared");
    }
    let socket = match input.as_fd().try_clone_to_owned() {
        Ok(fd) => UnixStream::from(fd),
        Err(error) => {
            tracing::error!(%error, "no descriptor for the store's connection");
            return ExitCode::FAILURE;
        }
    };
    match serve(socket, flags.idle) {
        Ok(End::Idle) => return ExitCode::SUCCESS,
        Ok(End::StoreGone) => tracing::info!("the store is gone"),
        Err(error) => tracing::error!(%error, "the store's connection broke"),
    }
    // Copies may be under way, for nobody. The driver's clean-up at an ordinary exit would wait for them.
    let _ = kill_process(getpid(), Signal::KILL);
    ExitCode::FAILURE
}
