//! Nodes as the mounter is told of them.

use std::os::fd::AsFd;

use gpuvol_protocol::view::{Node as NodeReport, NodeKind, ROOT};
use gpuvol_protocol::{Code, Fault};

use super::session::Mounted;
use crate::catalogue::object::{Content, Object};
use crate::catalogue::quota::HOST_GRANULE;
use crate::catalogue::record::Meta;
use crate::catalogue::state::Catalogue;
use crate::catalogue::volume::Volume;

/// The store's id of a node that the mounter names.
pub fn inner(volume: &Volume, node: u64) -> u64 {
    if node == ROOT { volume.tree.root() } else { node }
}

/// The mounter's id of one of the store's.
pub fn outer(volume: &Volume, id: u64) -> u64 {
    if id == volume.tree.root() { ROOT } else { id }
}

/// The node is none of the volume's any more.
pub fn gone(mount: &Mounted, node: u64) -> Fault {
    Fault::new(Code::Stale, format!("node {node} of volume {} is gone", mount.volume))
}

/// A directory, or what stands at a file's node.
pub fn node(catalogue: &Catalogue, mount: &Mounted, node: u64) -> Result<NodeReport, Fault> {
    let volume = catalogue.volume(&mount.volume)?;
    let id = inner(volume, node);
    if let Some(meta) = volume.tree.meta(id) {
        return Ok(directory(volume, id, meta));
    }
    if let Some(meta) = catalogue.graves.directory(id) {
        return Ok(NodeReport { links: 0, ..directory(volume, id, meta) });
    }
    let object = volume.objects.get(&id).or_else(|| catalogue.graves.find(id).map(|grave| &grave.object));
    Ok(file(catalogue, volume, object.ok_or_else(|| gone(mount, node))?))
}

pub fn directory(volume: &Volume, id: u64, meta: &Meta) -> NodeReport {
    NodeReport {
        kind: NodeKind::Directory.into(),
        size: HOST_GRANULE,
        links: 2 + volume.tree.subdirectories(id),
        ..with_meta(outer(volume, id), meta)
    }
}

fn with_meta(id: u64, meta: &Meta) -> NodeReport {
    NodeReport {
        id,
        mode: meta.mode,
        uid: meta.uid,
        gid: meta.gid,
        atime_ns: meta.atime_ns,
        mtime_ns: meta.mtime_ns,
        ctime_ns: meta.ctime_ns,
        ..NodeReport::default()
    }
}

/// A file or a link, with or without a name.
pub fn file(catalogue: &Catalogue, volume: &Volume, object: &Object) -> NodeReport {
    let mut report = with_meta(object.version, &object.meta);
    report.links = u32::from(object.visible);
    report.size = object.size();
    report.allocated = object.charge();
    match &object.content {
        Content::Link(_) => report.kind = NodeKind::Link.into(),
        Content::Draft(draft) => {
            report.draft = true;
            let memory = (draft.memory != 0).then(|| catalogue.fd(draft.memory)).flatten();
            match memory.and_then(|fd| rustix::fs::fstat(fd.as_fd()).ok()) {
                Some(stat) => {
                    // The kernel knows it best: the mounter writes without telling.
                    report.size = u64::try_from(stat.st_size).unwrap_or(0);
                    report.allocated = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512);
                    let (mtime, ctime) = times(&stat);
                    report.mtime_ns = mtime;
                    report.ctime_ns = report.ctime_ns.max(ctime);
                }
                None if draft.truncated => {}
                None => report.size = volume.objects.get(&draft.base).map_or(0, Object::size),
            }
        }
        Content::Segments { .. } | Content::Slot(_) => {}
    }
    report
}

/// When a memfd was written last, and when it was changed last, in nanoseconds since the epoch.
pub fn times(stat: &rustix::fs::Stat) -> (i64, i64) {
    let ns = |seconds: i64, nanoseconds: u64| {
        seconds.saturating_mul(1_000_000_000).saturating_add(i64::try_from(nanoseconds).unwrap_or(0))
    };
    (ns(stat.st_mtime, stat.st_mtime_nsec), ns(stat.st_ctime, stat.st_ctime_nsec))
}
