//! `gpuvol-dev status`: the nodes of this user, as they are.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvol_protocol::VolumeId;
use gpuvol_protocol::admin::Publishes;
use gpuvol_protocol::types::Bytes;
use serde::Serialize;

use super::answer;
use super::directory;
use super::error::chain;
use super::find::{self, Found};
use super::record::{Layout, Phase, SUPERVISOR};
use super::{Error, Result};
use crate::mount;
use crate::publish::MountMode;
use crate::store_client::{Deadlines, StoreClient};

/// How long one node may take to answer.
const PATIENCE: Duration = Duration::from_millis(700);

/// One node.
#[derive(Debug, Serialize)]
pub struct Report {
    name: String,
    mount: PathBuf,
    state: PathBuf,
    /// `starting`, `up`, `ending`, `failed`, `unwell` (up, and something does not answer), or `half-dead` (its supervisor
    /// is gone).
    condition: &'static str,
    /// What is wrong, for people.
    faults: Vec<String>,
    device: Option<String>,
    volume: Option<String>,
    /// Bytes.
    capacity: u64,
    /// Bytes; `null` where the store does not answer.
    used: Option<u64>,
    processes: Vec<ProcessReport>,
}

#[derive(Debug, Serialize)]
struct ProcessReport {
    role: String,
    pid: u32,
    alive: bool,
    restarts: u32,
}

/// All nodes; text or one JSON array.
pub fn run(json: bool) -> Result<String> {
    let reports: Vec<Report> = find::all().into_iter().map(report).collect();
    if json {
        return serde_json::to_string_pretty(&reports).map_err(|e| Error::system("write JSON")(e.into()));
    }
    if reports.is_empty() {
        return Ok("gpuvol: no node is up; start one: gpuvol dev up --mount DIR".into());
    }
    Ok(reports.iter().map(text).collect::<Vec<_>>().join("\n"))
}

fn report(Found { state, record }: Found) -> Report {
    let mut faults = Vec::new();
    let processes: Vec<ProcessReport> = record
        .processes
        .iter()
        .map(|p| ProcessReport {
            role: p.role.clone(),
            pid: p.identity.pid,
            alive: p.identity.lives(),
            restarts: p.restarts,
        })
        .collect();
    for dead in processes.iter().filter(|p| !p.alive) {
        faults.push(format!("{} is gone (pid {} was)", dead.role, dead.pid));
    }
    let mut used = None;
    if record.phase == Phase::Up {
        let layout = Layout { state: state.clone() };
        let served = match record.wanted.mode {
            MountMode::View => view(&layout, &record.mount),
            MountMode::Bind | MountMode::None => answer::ask(&record.mount, PATIENCE).map(drop),
        };
        if let Err(why) = served {
            faults.push(format!("{} does not answer: {why}", record.mount.display()));
        }
        match usage(&layout, record.volume.as_deref()) {
            Ok((bytes, condition)) => {
                used = Some(bytes);
                faults.extend(Some(condition).filter(|c| !c.is_empty()));
            }
            Err(why) => faults.push(why),
        }
    }
    let supervised = processes.iter().any(|p| p.role == SUPERVISOR && p.alive);
    let condition = match &record.phase {
        Phase::Failed(why) => {
            faults.push(why.clone());
            "failed"
        }
        _ if !supervised => "half-dead",
        Phase::Starting => "starting",
        Phase::Ending => "ending",
        Phase::Up if faults.is_empty() => "up",
        Phase::Up => "unwell",
    };
    Report {
        name: record.name,
        mount: record.mount,
        state,
        condition,
        faults,
        device: record.device,
        volume: record.volume,
        capacity: record.wanted.capacity,
        used,
        processes,
    }
}

/// Whether the mount is there and served, by the store's word: a process that asks the mount itself could hang there.
fn view(layout: &Layout, mount: &Path) -> std::result::Result<(), String> {
    let path = mount.to_str().unwrap_or_default();
    let Publishes { publishes, unserved } = store(layout).publishes().map_err(|e| chain(&e))?;
    let publish = publishes.iter().find(|p| p.target == path).ok_or("the volume is not published there")?;
    let connection = publish.mount.map(|mount| mount.connection).ok_or("it is published without its files")?;
    match directory::look(mount) {
        Ok(mount::Found::Mounted(root)) if root.connection() == Some(connection) => {}
        Ok(_) => return Err("its mount is gone".into()),
        Err(error) => return Err(error.to_string()),
    }
    if unserved.contains(&publish.publish) { Err("nobody serves it at the moment".into()) } else { Ok(()) }
}

fn store(layout: &Layout) -> StoreClient {
    StoreClient::new(layout.admin_socket(), Deadlines { connect: PATIENCE, call: PATIENCE })
}

/// Bytes that the volume's objects take, and what is wrong with it.
fn usage(layout: &Layout, volume: Option<&str>) -> std::result::Result<(u64, String), String> {
    let id = VolumeId::new(volume.unwrap_or_default()).map_err(|e| e.to_string())?;
    let volume = store(layout).get_volume(&id).map_err(|e| chain(&e))?;
    Ok((volume.usage.map_or(0, |usage| usage.used), volume.condition))
}

fn text(report: &Report) -> String {
    let used = report.used.map_or_else(|| "?".to_owned(), |used| Bytes(used).to_string());
    let device = report.device.as_deref().unwrap_or("nothing yet");
    let mut text = format!(
        "{} {}: {used} of {} used, in {device}\n",
        report.mount.display(),
        report.condition,
        Bytes(report.capacity)
    );
    // Writing to a String cannot fail.
    for fault in &report.faults {
        let _ = writeln!(text, "  fault: {fault}");
    }
    for process in &report.processes {
        let alive = if process.alive { "" } else { ", gone" };
        let _ = writeln!(text, "  {} pid {}, restarts {}{alive}", process.role, process.pid, process.restarts);
    }
    let _ = write!(text, "  state {}", report.state.display());
    text
}
