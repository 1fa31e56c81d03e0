//! Logs, one line an event, on standard error.
//!
//! Requests can carry secrets. Types that hold some have no `Debug`, and crates that see raw requests (gRPC and HTTP)
//! log warnings at most, whatever verbosity was asked for.

use std::io::IsTerminal;

use tracing::{Level, Metadata};
use tracing_subscriber::filter::{EnvFilter, FilterExt, ParseError, filter_fn};
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::{SubscriberInitExt, TryInitError};

/// Why there are no logs.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("--log is not a filter; want error, warn, info, debug or trace")]
    Filter(#[from] ParseError),
    #[error("logging is set up already")]
    Twice(#[from] TryInitError),
}

/// Sends logs to standard error from now on.
pub fn start(filter: &str) -> Result<(), LogError> {
    let wanted = EnvFilter::try_new(filter)?.and(filter_fn(is_ours_or_a_warning));
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer().with_ansi(colours).with_writer(std::io::stderr).with_filter(wanted);
    Ok(tracing_subscriber::registry().with(lines).try_init()?)
}

fn is_ours_or_a_warning(event: &Metadata<'_>) -> bool {
    event.target().starts_with("gpuvol") || *event.level() <= Level::WARN
}
