//! The node: its store, keeper, budgets, GPUs and volumes, as the store's admin socket tells.

use std::io::ErrorKind;
use std::path::Path;

use gpuvol_client::DeviceUuid;
use gpuvol_protocol::admin::{Device, Node, OnLoss, TierStatus, Volume};

use super::Check;
use super::admin::{Admin, AdminError};
use crate::escape::shown_path;
use crate::text::{human_size, utc};

const AREA: &str = "node";
/// Below the state directory.
const SOCKET: &str = "store/admin.sock";
/// Names of volumes that one line has at most.
const NAMED: usize = 5;

pub fn checks(state: &Path) -> Vec<Check> {
    let socket = state.join(SOCKET);
    let asked = Admin::connect(&socket).and_then(|mut admin| Ok((admin.status()?, admin.volumes()?)));
    match asked {
        Ok((node, volumes)) => report(&node, &volumes),
        Err(error) => vec![unreachable(&socket, &error)],
    }
}

fn unreachable(socket: &Path, error: &AdminError) -> Check {
    let message = format!("{}: {error}", shown_path(socket));
    match error {
        AdminError::Connect(source) if source.kind() == ErrorKind::PermissionDenied => {
            Check::warn(AREA, "store", message, "run this as root to see the node")
        }
        AdminError::Connect(source) if source.kind() == ErrorKind::NotFound => {
            let next = "start gpuvol-store on this node, or give the directory that it was started with: --state DIR";
            Check::fail(AREA, "store", message, next)
        }
        AdminError::Connect(_) => {
            let next = "the store is not running: look at the pod gpuvol-store of this node and its log";
            Check::fail(AREA, "store", message, next)
        }
        _ => Check::fail(AREA, "store", message, "look at the log of gpuvol-store on this node"),
    }
}

fn report(node: &Node, volumes: &[Volume]) -> Vec<Check> {
    let mut checks = vec![store(node), keeper(node)];
    checks.extend(node.tiers.iter().map(budget));
    if !node.no_inventory.is_empty() {
        let next = "fine on a node without GPUs; else give gpuvol-store the driver's libnvidia-ml";
        checks.push(Check::warn(AREA, "gpus", node.no_inventory.clone(), next));
    }
    checks.extend(node.devices.iter().map(gpu));
    checks.extend(volumes.iter().filter_map(lost));
    checks.push(published(volumes));
    checks
}

fn store(node: &Node) -> Check {
    let up = node.uptime_ms / 1000;
    let message = format!(
        "gpuvol-store {} pid {}, up {up} s: {} volumes, {} publishes, {} leases, {} connections",
        node.build, node.pid, node.volumes, node.publishes, node.leases, node.connections
    );
    if node.build == env!("CARGO_PKG_VERSION") {
        return Check::ok(AREA, "store", message);
    }
    let next =
        format!("this is gpuvol {}: use the version of the node where something looks odd", env!("CARGO_PKG_VERSION"));
    Check::warn(AREA, "store", message, next)
}

fn keeper(node: &Node) -> Check {
    let held = format!("holds {} descriptors, catalogue log of {}", node.held, human_size(node.log_bytes));
    if node.keeper_connected {
        return Check::ok(AREA, "keeper", format!("connected, {held}"));
    }
    let next =
        "do not restart the store now, or the content of all volumes is lost: bring the pod gpuvol-keeper back first";
    Check::fail(AREA, "keeper", "not connected: nothing outlives the store", next)
}

fn budget(tier: &TierStatus) -> Check {
    let place =
        DeviceUuid::try_from(tier.device.as_slice()).map_or_else(|_| "host memory".to_owned(), |u| u.to_string());
    let (budget, promised, used) = (human_size(tier.budget), human_size(tier.promised), human_size(tier.used));
    let message = format!("{place}: budget {budget}, promised to volumes {promised}, used {used}");
    if tier.promised > tier.budget {
        let next =
            "volumes were promised more than there is, so puts may fail: raise the store's budget, or delete volumes";
        return Check::warn(AREA, "budget", message, next);
    }
    if tier.budget > 0 && tier.promised >= tier.budget / 100 * 95 {
        let next = "new claims will stay pending here: raise the store's budget, or delete volumes";
        return Check::warn(AREA, "budget", message, next);
    }
    Check::ok(AREA, "budget", message)
}

fn gpu(device: &Device) -> Check {
    let uuid = DeviceUuid::try_from(device.uuid.as_slice()).map_or_else(|e| e.to_string(), |uuid| uuid.to_string());
    let (free, total) = (human_size(device.free), human_size(device.total));
    let message = format!("{}, {uuid}, {free} of {total} free", device.name);
    if device.condition.is_empty() {
        return Check::ok(AREA, "gpus", message);
    }
    let next = "keep work off this GPU: drain the node and reset it, or replace it";
    Check::fail(AREA, "gpus", format!("{message}: {}", device.condition), next)
}

fn lost(volume: &Volume) -> Option<Check> {
    let spec = volume.spec.as_ref()?;
    let name = format!("{} ({})", spec.id, spec.name);
    if volume.lost_ms != 0 {
        let message = format!("{name} lost its content at {}", utc(volume.lost_ms));
        return Some(match spec.on_loss() {
            OnLoss::Empty => {
                let next = "its class says on-loss: empty, so pods get it empty: run the producers again";
                Check::warn(AREA, "volumes", message, next)
            }
            OnLoss::Fail => {
                let next = "pods that use it do not start: delete the claim, make it again and run the producers";
                Check::fail(AREA, "volumes", message, next)
            }
        });
    }
    let condition = || {
        let next = "kubectl describe the claim, and look at the log of gpuvol-store";
        Check::warn(AREA, "volumes", format!("{name}: {}", volume.condition), next)
    };
    (!volume.condition.is_empty()).then(condition)
}

/// A volume that is published nowhere is normal between two stages, and an orphan after the last.
fn published(volumes: &[Volume]) -> Check {
    let idle: Vec<&Volume> = volumes.iter().filter(|volume| volume.publishes == 0).collect();
    if idle.is_empty() {
        return Check::ok(AREA, "volumes", format!("{} volumes, each published to a pod", volumes.len()));
    }
    let used: u64 = idle.iter().filter_map(|volume| volume.usage.as_ref()).map(|usage| usage.used).sum();
    let ids = idle.iter().take(NAMED).filter_map(|volume| volume.spec.as_ref()).map(|spec| spec.id.as_str());
    let mut names = ids.collect::<Vec<_>>().join(", ");
    if idle.len() > NAMED {
        names.push_str(&format!(" and {} more", idle.len() - NAMED));
    }
    let message = format!(
        "{} of {} volumes are published to no pod and hold {}: {names}",
        idle.len(),
        volumes.len(),
        human_size(used)
    );
    let next =
        "fine between stages; where the pipeline is over, delete the claims (kubectl get pv shows whose they are)";
    Check::warn(AREA, "volumes", message, next)
}

#[cfg(test)]
mod tests {
    use gpuvol_protocol::admin::VolumeSpec;

    use super::*;
    use crate::doctor::Level;

    fn volume(id: &str, publishes: u64, lost_ms: u64) -> Volume {
        let spec = VolumeSpec { id: id.to_owned(), ..VolumeSpec::default() };
        Volume { spec: Some(spec), publishes, lost_ms, ..Volume::default() }
    }

    fn levels(node: &Node, volumes: &[Volume], check: &str) -> Vec<Level> {
        report(node, volumes).iter().filter(|c| c.check == check).map(|c| c.level).collect()
    }

    #[test]
    fn each_trouble_has_its_level() {
        let node = Node { keeper_connected: true, build: env!("CARGO_PKG_VERSION").to_owned(), ..Node::default() };
        assert!(report(&node, &[]).iter().all(|check| check.level == Level::Ok));
        assert_eq!(levels(&Node { keeper_connected: false, ..node.clone() }, &[], "keeper"), [Level::Fail]);
        assert_eq!(levels(&Node { build: "0.0.1".to_owned(), ..node.clone() }, &[], "store"), [Level::Warn]);
        let sick = Device { condition: "Xid 79".to_owned(), uuid: vec![7; 16], ..Device::default() };
        let sick = Node { devices: vec![sick, Device { uuid: vec![8; 16], ..Device::default() }], ..node.clone() };
        assert_eq!(levels(&sick, &[], "gpus"), [Level::Fail, Level::Ok]);
        let tier = |budget, promised| TierStatus { budget, promised, ..TierStatus::default() };
        let tight = Node { tiers: vec![tier(1000, 10), tier(1000, 990), tier(1000, 1001)], ..node.clone() };
        assert_eq!(levels(&tight, &[], "budget"), [Level::Ok, Level::Warn, Level::Warn]);
        assert_eq!(levels(&node, &[volume("a", 1, 0), volume("b", 0, 5)], "volumes"), [Level::Fail, Level::Warn]);
    }

    #[test]
    fn orphans_are_named_up_to_a_few() {
        let many: Vec<Volume> = (0..8).map(|n| volume(&format!("v{n}"), 0, 0)).collect();
        let check = published(&many);
        assert!(check.message.contains("v0, v1, v2, v3, v4 and 3 more"), "{}", check.message);
    }

    #[test]
    fn only_root_sees_the_node() {
        let denied = AdminError::Connect(ErrorKind::PermissionDenied.into());
        assert_eq!(unreachable("/s".as_ref(), &denied).level, Level::Warn);
        assert_eq!(unreachable("/s".as_ref(), &AdminError::Closed).level, Level::Fail);
    }
}
