//! `gpuvol df`.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use clap::Args;
use gpuvol_client::{Code, DeviceUuid, Place, Usage, Volume, locate, volume_at};
use serde::Serialize;

use crate::escape::{json, shown_path};
use crate::failure::{Failure, Result, each, note};
use crate::mounts;
use crate::output::{BAD, PLAIN, WARNING, print, print_json};
use crate::table::{Align, Table, plain};
use crate::text::human_size;

/// Shows the capacity of volumes and what takes it
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol df                  every volume that is mounted here
  gpuvol df /data
  gpuvol df --json /data | jq '.volumes[0] | .used / .capacity'

USED is all that the quota counts; of it, GPU is in GPU memory, PINNED belongs to objects that were removed or replaced \
and are open somewhere, and RESERVED to objects that are being put.")]
pub struct Df {
    /// Sizes in bytes instead of KiB, MiB, ...
    #[arg(short, long)]
    bytes: bool,
    /// One JSON document: {"volumes": [...]}
    #[arg(long)]
    json: bool,
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Document {
    volumes: Vec<VolumeLine>,
}

/// Keys of the JSON document are these fields' names: they stay.
#[derive(Debug, Serialize)]
struct VolumeLine {
    #[serde(skip)]
    at: PathBuf,
    volume: String,
    mount: String,
    read_only: bool,
    tier: &'static str,
    device: Option<String>,
    capacity: u64,
    used: u64,
    free: u64,
    gpu: u64,
    pinned: u64,
    reserved: u64,
    entries: u64,
    max_entries: u64,
    leases: u64,
}

impl VolumeLine {
    fn new(mount: PathBuf, volume: &Volume, usage: &Usage) -> Self {
        Self {
            volume: volume.id(),
            mount: json(mount.as_os_str().as_bytes()),
            at: mount,
            read_only: volume.read_only(),
            tier: usage.tier().name(),
            device: DeviceUuid::try_from(usage.device.as_slice()).ok().map(|uuid| uuid.to_string()),
            capacity: usage.capacity,
            used: usage.used,
            free: usage.capacity.saturating_sub(usage.used),
            gpu: usage.gpu,
            pinned: usage.pinned,
            reserved: usage.reserved,
            entries: usage.entries,
            max_entries: usage.max_entries,
            leases: usage.leases,
        }
    }

    /// Used in percent, rounded up.
    fn percent(&self) -> u64 {
        let percent = (u128::from(self.used) * 100).div_ceil(u128::from(self.capacity.max(1)));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

impl Df {
    pub fn run(self) -> Result<()> {
        let paths = match self.paths.is_empty() {
            true => mounts::volumes().map_err(Failure::file("/proc/self/mountinfo".as_ref()))?,
            false => self.paths.clone(),
        };
        if paths.is_empty() {
            note("no gpu-volume is mounted here");
        }
        let mut volumes = Vec::new();
        let outcome = each(&paths, |path| {
            volumes.push(line(path)?);
            Ok(())
        });
        match self.json {
            true => print_json(&Document { volumes })?,
            false if volumes.is_empty() => {}
            false => print(&self.table(&volumes))?,
        }
        outcome
    }

    fn table(&self, volumes: &[VolumeLine]) -> String {
        let right = ["CAPACITY", "USED", "FREE", "USE%", "GPU", "PINNED", "RESERVED", "ENTRIES"];
        let mut columns = vec![("VOLUME", Align::Left), ("TIER", Align::Left)];
        columns.extend(right.map(|name| (name, Align::Right)));
        columns.push(("MOUNTED AT", Align::Left));
        let mut table = Table::new(&columns);
        let size = |bytes| plain(if self.bytes { format!("{bytes}") } else { human_size(bytes) });
        for line in volumes {
            let percent = line.percent();
            let style = match percent {
                95.. => BAD,
                80.. => WARNING,
                _ => PLAIN,
            };
            let mut cells = vec![plain(line.volume.clone()), plain(line.tier)];
            cells.extend([size(line.capacity), size(line.used), size(line.free), (format!("{percent}%"), style)]);
            cells.extend([size(line.gpu), size(line.pinned), size(line.reserved), plain(line.entries.to_string())]);
            cells.push(plain(shown_path(&line.at)));
            table.row(cells);
        }
        table.render(true)
    }
}

fn line(path: &Path) -> Result<VolumeLine> {
    let (Place::Volume { mount, .. }, Some((volume, _))) = (locate(path)?, volume_at(path)?) else {
        return Err(match path.try_exists() {
            Ok(true) => Failure::no_volume(path, "df"),
            _ => Failure::path(path, Code::NotFound, "does not exist, and no gpu-volume is mounted above it"),
        });
    };
    let usage = volume.usage()?;
    Ok(VolumeLine::new(mount, &volume, &usage))
}
