//! What kubelet expects of statistics, expansion and the node's description, each rule by name.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::path::Path;

use gpuvol_csi::csi::volume_usage::Unit;
use gpuvol_csi::csi::{CapacityRange, NodeExpandVolumeRequest, NodeGetInfoRequest, NodeGetVolumeStatsRequest};
use gpuvol_csi::publish::steps::Hook;
use support::namespace::mounting;
use support::{GIB, Rig, refused};
use tonic::Code;

fn stats(volume: &str, path: &Path) -> NodeGetVolumeStatsRequest {
    NodeGetVolumeStatsRequest {
        volume_id: volume.to_owned(),
        volume_path: path.to_str().unwrap().to_owned(),
        staging_target_path: String::new(),
    }
}

fn expand(volume: &str, path: &Path, required_bytes: i64, limit_bytes: i64) -> NodeExpandVolumeRequest {
    NodeExpandVolumeRequest {
        volume_id: volume.to_owned(),
        volume_path: path.to_str().unwrap().to_owned(),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes }),
        ..NodeExpandVolumeRequest::default()
    }
}

#[test]
fn stats_have_usage_and_condition() {
    mounting("stats_have_usage_and_condition", async {
        let mut rig = Rig::with(&["--mount", "bind"], Hook::default()).await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let node = &mut rig.plugin.node;
        let fine = node.node_get_volume_stats(stats(&volume, &target)).await.unwrap().into_inner();
        assert_eq!(fine.usage.len(), 2);
        assert_eq!((fine.usage[0].unit(), fine.usage[0].total), (Unit::Bytes, 10 * GIB));
        assert_eq!(fine.usage[0].used + fine.usage[0].available, fine.usage[0].total);
        let condition = fine.volume_condition.unwrap();
        assert!(!condition.abnormal, "{}", condition.message);

        rig.store.close_listeners();
        let deaf = node.node_get_volume_stats(stats(&volume, &target)).await.unwrap().into_inner();
        assert!(deaf.volume_condition.unwrap().message.contains("nobody listens"));
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        let bare = node.node_get_volume_stats(stats(&volume, &target)).await.unwrap().into_inner();
        assert!(bare.volume_condition.unwrap().message.contains("nothing is mounted"));
        rig.store.lose(&volume);
        let lost = node.node_get_volume_stats(stats(&volume, &target)).await.unwrap().into_inner();
        assert!(lost.volume_condition.unwrap().message.contains("lost"));
    });
}

#[test]
fn a_path_that_is_not_published_is_not_found_whatever_its_form() {
    mounting("a_path_that_is_not_published_is_not_found_whatever_its_form", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        let node = &mut rig.plugin.node;
        for path in [Path::new("some/path"), Path::new("/a/../b"), &target] {
            refused(node.node_get_volume_stats(stats(&volume, path)).await, Code::NotFound);
            refused(node.node_get_volume_stats(stats("gv-unknown", path)).await, Code::NotFound);
            refused(node.node_get_volume_stats(stats("../garbage", path)).await, Code::NotFound);
            refused(node.node_expand_volume(expand(&volume, path, 11 * GIB, 0)).await, Code::NotFound);
            refused(node.node_expand_volume(expand("gv-unknown", path, 11 * GIB, 0)).await, Code::NotFound);
        }
        refused(node.node_get_volume_stats(stats("", &target)).await, Code::InvalidArgument);
        refused(node.node_get_volume_stats(stats(&volume, Path::new(""))).await, Code::InvalidArgument);
        refused(node.node_expand_volume(expand("", &target, 0, 0)).await, Code::InvalidArgument);
    });
}

#[test]
fn a_volume_grows_exactly_as_asked_and_never_shrinks() {
    mounting("a_volume_grows_exactly_as_asked_and_never_shrinks", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let node = &mut rig.plugin.node;
        for (required, limit, want) in
            [(11 * GIB, 0, 11 * GIB), (11 * GIB, 0, 11 * GIB), (5, 0, 11 * GIB), (0, 0, 11 * GIB)]
        {
            let grown = node.node_expand_volume(expand(&volume, &target, required, limit)).await.unwrap();
            assert_eq!(grown.into_inner().capacity_bytes, want);
        }
        refused(node.node_expand_volume(expand(&volume, &target, 1, 5 * GIB)).await, Code::OutOfRange);
        refused(node.node_expand_volume(expand(&volume, &target, 1 << 50, 0)).await, Code::ResourceExhausted);
    });
}

#[tokio::test]
async fn the_node_names_itself_and_its_place() {
    let mut rig = Rig::new().await;
    let info = rig.plugin.node.node_get_info(NodeGetInfoRequest {}).await.unwrap().into_inner();
    assert_eq!(info.node_id, "node-1");
    assert_eq!(info.accessible_topology.unwrap().segments["topology.csi.gpuvol.dev/node"], "node-1");
}
