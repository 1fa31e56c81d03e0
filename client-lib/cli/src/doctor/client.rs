//! What this process has to work with, whatever the volume.

use std::fs;
use std::path::Path;

use gpuvol_client::DeviceUuid;
use gpuvol_memory::cuda::visible_devices;
use gpuvol_protocol::Version;
use rustix::process::{Resource, getrlimit};

use super::Check;
use crate::text::human_size;

const AREA: &str = "client";
/// A reader has a descriptor for each allocation while it opens it; frameworks take hundreds.
const FEW_DESCRIPTORS: u64 = 1024;

pub fn checks() -> Vec<Check> {
    let mut checks = vec![version()];
    checks.extend(gpus());
    checks.extend([descriptors(), user_namespaces(), fuse()]);
    checks
}

fn version() -> Check {
    let (oldest, newest) = (Version::OLDEST.number(), Version::NEWEST.number());
    let versions = if oldest == newest { format!("{newest}") } else { format!("{oldest} to {newest}") };
    Check::ok(AREA, "version", format!("gpuvol {}, protocol version {versions}", env!("CARGO_PKG_VERSION")))
}

fn gpus() -> Vec<Check> {
    let devices = match visible_devices() {
        Ok(devices) => devices,
        Err(error) => {
            let next = "without a GPU, objects in host memory work; for GPU objects give the container a GPU and the driver's libraries (NVIDIA_DRIVER_CAPABILITIES has compute)";
            return vec![Check::warn(AREA, "cuda", error.to_string(), next)];
        }
    };
    if devices.is_empty() {
        let next = "request a GPU for this pod, or look at CUDA_VISIBLE_DEVICES and NVIDIA_VISIBLE_DEVICES";
        return vec![Check::warn(AREA, "cuda", "libcuda is there and shows no GPU", next)];
    }
    let line = |device: &gpuvol_memory::cuda::DeviceInfo| {
        let (uuid, total) = (DeviceUuid(device.uuid), human_size(device.total));
        Check::ok(AREA, "cuda", format!("GPU {}: {}, {uuid}, {total}", device.ordinal, device.name))
    };
    devices.iter().map(line).collect()
}

fn descriptors() -> Check {
    let limit = getrlimit(Resource::Nofile);
    let name = |n: Option<u64>| n.map_or_else(|| "unlimited".to_owned(), |n| n.to_string());
    let message = format!("RLIMIT_NOFILE is {}, at most {}", name(limit.current), name(limit.maximum));
    if limit.current.is_some_and(|current| current < FEW_DESCRIPTORS) {
        let next = format!("raise it to {FEW_DESCRIPTORS} or more: ulimit -n, or LimitNOFILE of the container runtime");
        return Check::warn(AREA, "descriptors", message, next);
    }
    Check::ok(AREA, "descriptors", message)
}

/// Only `gpuvol dev` and `gpuvol demo` without root need them.
fn user_namespaces() -> Check {
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    let reasons = [
        (
            "/proc/sys/user/max_user_namespaces",
            number("/proc/sys/user/max_user_namespaces") == Some(0),
            "a number above 0",
        ),
        (
            "/proc/sys/kernel/unprivileged_userns_clone",
            number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0),
            "1",
        ),
        (
            "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1),
            "0",
        ),
    ];
    if !Path::new("/proc/self/ns/user").exists() {
        let next = "only `gpuvol dev` and `gpuvol demo` need them: run those as root";
        return Check::warn(AREA, "user namespaces", "this kernel has none", next);
    }
    match reasons.iter().find(|(_, forbidden, _)| *forbidden) {
        Some((path, _, want)) => {
            let next =
                format!("only `gpuvol dev` and `gpuvol demo` need them: run those as root, or set {path} to {want}");
            Check::warn(AREA, "user namespaces", format!("forbidden for users by {path}"), next)
        }
        None => Check::ok(AREA, "user namespaces", "no setting forbids them"),
    }
}

fn fuse() -> Check {
    let path = Path::new("/dev/fuse");
    match fs::File::options().read(true).write(true).open(path) {
        Ok(_) => Check::ok(AREA, "fuse", "/dev/fuse is there and opens"),
        Err(error) => {
            let next = "pods do not need it; on a node, and for `gpuvol dev`, load the module fuse and give access to /dev/fuse";
            Check::warn(AREA, "fuse", format!("/dev/fuse: {error}"), next)
        }
    }
}
