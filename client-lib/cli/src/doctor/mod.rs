//! `gpuvol doctor`: is everything as it should be, here and on the node, and what to do where it is not.

mod admin;
mod client;
mod node;
mod volume;

use std::path::PathBuf;

use clap::Args;
use serde::Serialize;

use crate::escape::shown_message;
use crate::failure::{Exit, Failure, Result};
use crate::output::{BAD, FAINT, GOOD, WARNING, print, print_json};

/// Where the node's processes keep their state unless told otherwise.
const DEFAULT_STATE: &str = "/var/lib/gpuvol";

/// Checks this environment, and the node where its state is reachable
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol doctor                  in a pod: the volume of the working directory, or those mounted
  gpuvol doctor /data
  sudo gpuvol doctor --state /var/lib/gpuvol     on a node: store, keeper, budgets, GPUs, volumes

OK is fine, WARN may matter for what you plan, FAIL keeps things from working; each line that is not OK says what to do \
next. The exit code is 1 where a check says FAIL.")]
pub struct Doctor {
    /// State directory of the node's processes [default: /var/lib/gpuvol, where it is there]
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// One JSON document: {"ok": ..., "checks": [...]}
    #[arg(long)]
    json: bool,
    /// A path on the volume to look at
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of the report. Keys of the JSON document are these fields' names: they stay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// client, volume or node.
    area: &'static str,
    /// What was looked at; several checks may share it.
    check: &'static str,
    level: Level,
    message: String,
    /// The next step; null where all is well.
    next: Option<String>,
}

#[derive(Debug, Serialize)]
struct Document<'c> {
    ok: bool,
    checks: &'c [Check],
}

impl Check {
    pub fn ok(area: &'static str, check: &'static str, message: impl Into<String>) -> Self {
        Self { area, check, level: Level::Ok, message: message.into(), next: None }
    }

    pub fn warn(area: &'static str, check: &'static str, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { area, check, level: Level::Warn, message: message.into(), next: Some(next.into()) }
    }

    pub fn fail(area: &'static str, check: &'static str, message: impl Into<String>, next: impl Into<String>) -> Self {
        Self { area, check, level: Level::Fail, message: message.into(), next: Some(next.into()) }
    }

    fn text(&self) -> String {
        let (word, style) = match self.level {
            Level::Ok => ("OK", GOOD),
            Level::Warn => ("WARN", WARNING),
            Level::Fail => ("FAIL", BAD),
        };
        let (area, check, message) = (self.area, self.check, shown_message(&self.message));
        let mut text = format!("{style}{word:<4}{style:#}  {area:<6}  {check:<15} {message}\n");
        if let Some(next) = &self.next {
            text.push_str(&format!("{FAINT}      next: {}{FAINT:#}\n", shown_message(next)));
        }
        text
    }
}

impl Doctor {
    pub fn run(self) -> Result<()> {
        let mut checks = client::checks();
        checks.extend(volume::checks(self.path.as_deref()));
        match &self.state {
            Some(state) => checks.extend(node::checks(state)),
            None if PathBuf::from(DEFAULT_STATE).exists() => checks.extend(node::checks(DEFAULT_STATE.as_ref())),
            None => {}
        }
        let ok = checks.iter().all(|check| check.level != Level::Fail);
        match self.json {
            true => print_json(&Document { ok, checks: &checks })?,
            false => print(&checks.iter().map(Check::text).collect::<String>())?,
        }
        if ok { Ok(()) } else { Err(Failure::Reported(Exit::Failed)) }
    }
}
