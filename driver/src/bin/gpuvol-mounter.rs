//! The mounter: serves the file view of the volumes that are published on this node.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use gpuvol_csi::logging;
use gpuvol_csi::view::{Config, run};

/// Serves the files of published gpuvol volumes.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-mounter", version)]
struct Flags {
    /// The node's state directory, shared with store and plugin.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// How long a file operation may take, a restart of the store included, in seconds (30s) or milliseconds (500ms).
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = time)]
    deadline: Duration,
    /// Threads of each mount.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=64))]
    threads: u8,
    /// What to log: error, warn, info, debug, trace, or a filter by module.
    #[arg(long, env = "GPUVOL_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    let config = Config { state: flags.state, deadline: flags.deadline, threads: flags.threads.into() };
    if let Err(error) = logging::start(&flags.log) {
        eprintln!("gpuvol-mounter: {error}");
        return ExitCode::FAILURE;
    }
    match run(&config) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("gpuvol-mounter: {error}");
            ExitCode::FAILURE
        }
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| "want a number and a unit, for example 30s".to_owned())?;
    let time = match unit {
        "" | "s" => Duration::from_secs(number),
        "ms" => Duration::from_millis(number),
        _ => return Err("the unit is none of s, ms".to_owned()),
    };
    if time.is_zero() { Err("want more than nothing".to_owned()) } else { Ok(time) }
}
