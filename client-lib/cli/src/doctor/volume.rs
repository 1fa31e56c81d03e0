//! The volume that a path is on: does its store answer, is there room, can its GPU be seen.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gpuvol_client::{Code, DeviceUuid, Place, Usage, Volume, locate, volume_at};
use gpuvol_memory::cuda::visible_devices;

use super::Check;
use crate::escape::shown_path;
use crate::mounts;
use crate::text::human_size;

const AREA: &str = "volume";
/// A store answers in less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);

/// Of the path; without one of the working directory, and where that is on none, of all that are mounted.
pub fn checks(path: Option<&Path>) -> Vec<Check> {
    let paths = match path {
        Some(path) => vec![path.to_owned()],
        None if matches!(locate(".".as_ref()), Ok(Place::Volume { .. })) => vec![PathBuf::from(".")],
        None => mounts::volumes().unwrap_or_default(),
    };
    if paths.is_empty() {
        let next = "in a pod: give a path on the volume, and look at the pod's volumeMounts; on a node this is fine";
        return vec![Check::warn(AREA, "mount", "no gpu-volume is mounted here", next)];
    }
    paths.iter().flat_map(|path| one(path)).collect()
}

fn one(path: &Path) -> Vec<Check> {
    let mount = match locate(path) {
        Ok(Place::Volume { mount, .. }) => mount,
        Ok(Place::File(path)) => {
            let message = format!("{} is on no gpu-volume: no .gpuvol.sock there or above", shown_path(&path));
            let next = "give a path below the mountPath of a volume of a gpuvol StorageClass; is the pod's volume of driver csi.gpuvol.dev?";
            return vec![Check::fail(AREA, "mount", message, next)];
        }
        Err(error) => {
            return vec![Check::fail(AREA, "mount", error.to_string(), "give a path that a volume can have")];
        }
    };
    match ask(path) {
        Some(Ok(Some((volume, usage)))) => answers(&mount, &volume, &usage),
        Some(Ok(None)) => vec![Check::fail(AREA, "mount", "its socket has just gone", "try again")],
        None => {
            let message = format!("{}: the store takes connections and does not answer", shown_path(&mount));
            let next = "look at gpuvol-store of this node: stopped, or without CPU? The keeper has the content, so it may be restarted";
            vec![Check::fail(AREA, "store", message, next)]
        }
        Some(Err(error)) => {
            let next = match error.code() {
                Code::Unavailable => {
                    "look at the pod gpuvol-store of this node: kubectl -n gpuvol get pods -o wide; it comes back by itself after a restart"
                }
                Code::ContentLost => "delete the claim and make it again",
                _ => "look at the log of gpuvol-store on this node",
            };
            vec![Check::fail(AREA, "store", format!("{}: {error}", shown_path(&mount)), next)]
        }
    }
}

type Answered = gpuvol_client::Result<Option<(Volume, Usage)>>;

/// Asks on a thread of its own, which is left behind where the store is stuck: `None`.
fn ask(path: &Path) -> Option<Answered> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let path = path.to_owned();
    std::thread::spawn(move || {
        let answered = volume_at(&path).and_then(|found| match found {
            Some((volume, _)) => volume.usage().map(|usage| Some((volume, usage))),
            None => Ok(None),
        });
        // Nobody listens any more where this took too long.
        let _ = sender.send(answered);
    });
    receiver.recv_timeout(PATIENCE).ok()
}

fn answers(mount: &Path, volume: &Volume, usage: &Usage) -> Vec<Check> {
    let (id, mode) = (volume.id(), if volume.read_only() { "read-only" } else { "read-write" });
    let at = shown_path(mount);
    let mut checks = vec![Check::ok(AREA, "store", format!("{at}: volume {id}, {mode}, tier {}", usage.tier().name()))];
    checks.push(room(&id, usage));
    checks.push(names(&id, usage));
    if let Ok(gpu) = DeviceUuid::try_from(usage.device.as_slice()) {
        checks.push(match visible_devices() {
            Ok(devices) if devices.iter().any(|d| d.uuid == gpu.0) => {
                Check::ok(AREA, "gpu", format!("volume {id} is on {gpu}, which this process sees"))
            }
            _ => {
                let next = format!("request that GPU for this pod to open {id}'s GPU objects without a copy; names and host objects work without");
                Check::warn(AREA, "gpu", format!("volume {id} is on {gpu}, which this process does not see"), next)
            }
        });
    }
    checks
}

fn room(id: &str, usage: &Usage) -> Check {
    let (used, capacity) = (human_size(usage.used), human_size(usage.capacity));
    let message = format!("volume {id}: {used} of {capacity} used, {} of it pinned", human_size(usage.pinned));
    if usage.used >= usage.capacity / 100 * 95 && usage.capacity > 0 {
        let next = if usage.pinned > usage.used / 4 {
            "objects that were removed are still open: end their readers, or close what they hold"
        } else {
            "remove what is no longer needed (`gpuvol ls -lR`, `gpuvol rm`), or give the claim more storage"
        };
        return Check::warn(AREA, "room", message, next);
    }
    Check::ok(AREA, "room", message)
}

fn names(id: &str, usage: &Usage) -> Check {
    let message = format!("volume {id}: {} of {} names, {} leases", usage.entries, usage.max_entries, usage.leases);
    if usage.max_entries > 0 && usage.entries >= usage.max_entries / 100 * 95 {
        let next = "remove objects, put fewer and larger ones, or give the claim more storage";
        return Check::warn(AREA, "names", message, next);
    }
    Check::ok(AREA, "names", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;

    #[test]
    fn a_full_volume_is_a_warning_that_knows_who_holds_it() {
        let usage = |used, pinned| Usage { capacity: 1000, used, pinned, max_entries: 1000, ..Usage::default() };
        assert_eq!(room("v", &usage(10, 0)).level, Level::Ok);
        let full = room("v", &usage(960, 0));
        assert_eq!(full.level, Level::Warn);
        assert!(full.next.is_some_and(|next| next.contains("gpuvol rm")));
        assert!(room("v", &usage(960, 900)).next.is_some_and(|next| next.contains("still open")));
        assert_eq!(names("v", &Usage { entries: 990, ..usage(0, 0) }).level, Level::Warn);
    }
}
