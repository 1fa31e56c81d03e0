//! What pods do with a published volume, what odd input does, and what many publishes leave.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use gpuvol_csi::csi::volume_capability::AccessType;
use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::csi::{DeleteVolumeRequest, NodePublishVolumeRequest};
use rustix::fs::{CWD, Mode as FileMode, OFlags};
use support::namespace::mounting;
use support::{Rig, mounts, publish, refused};
use tonic::Code;

#[test]
fn a_pod_of_any_user_connects_and_its_fs_group_is_compared() {
    mounting("a_pod_of_any_user_connects_and_its_fs_group_is_compared", async {
        let mut rig = Rig::new().await;
        fs::set_permissions(rig.dir.path(), Permissions::from_mode(0o755)).unwrap();
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        let with_group = |gid: &str| {
            let mut request = publish(&volume, &target, Mode::SingleNodeWriter);
            if let Some(AccessType::Mount(mount)) = &mut request.volume_capability.as_mut().unwrap().access_type {
                gid.clone_into(&mut mount.volume_mount_group);
            }
            request
        };
        let node = &mut rig.plugin.node;
        node.node_publish_volume(with_group("1000")).await.unwrap();
        node.node_publish_volume(with_group("1000")).await.unwrap();
        refused(node.node_publish_volume(with_group("2000")).await, Code::AlreadyExists);
        refused(node.node_publish_volume(with_group("wheel")).await, Code::InvalidArgument);

        let path = target.clone();
        let connected = std::thread::spawn(move || {
            // Of this thread only.
            let (uid, gid) = (rustix::fs::Uid::from_raw(1000), rustix::fs::Gid::from_raw(1000));
            rustix::thread::set_thread_res_gid(gid, gid, gid).ok()?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).ok()?;
            let directory = rustix::fs::openat(CWD, &path, OFlags::PATH | OFlags::CLOEXEC, FileMode::empty()).unwrap();
            Some(gpuvol_csi::listener::connect(std::os::fd::AsFd::as_fd(&directory), ".gpuvol.sock").map(drop))
        });
        match connected.join().unwrap() {
            Some(result) => result.unwrap(),
            None => eprintln!("skipped: there is no other user in this namespace"),
        }
    });
}

/// Every path and id of up to three of these pieces.
fn odd_texts() -> Vec<String> {
    const PIECES: [&str; 8] = ["..", "/", "a", "\0", ".", "%2e", "Ä", "gv-"];
    let mut all = vec![String::new()];
    for _ in 0..3 {
        let longer: Vec<String> = all.iter().flat_map(|text| PIECES.map(|piece| format!("{text}{piece}"))).collect();
        all.extend(longer);
    }
    all.sort();
    all.dedup();
    all
}

#[test]
fn odd_ids_and_paths_are_refused_or_harmless() {
    mounting("odd_ids_and_paths_are_refused_or_harmless", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        let before = (mounts(), fs::read_dir("/").unwrap().count());
        let below = target.parent().unwrap().to_path_buf();
        for text in odd_texts() {
            let node = &mut rig.plugin.node;
            let _ = node.node_publish_volume(publish(&text, &target, Mode::SingleNodeWriter)).await.unwrap_err();
            let _ = rig.plugin.controller.delete_volume(delete(&text)).await;
            let _ = rig.unpublish(&text, &target).await;
            // A path that names the parent itself is a proper target, and goes when it is unpublished.
            let names_parent = text.chars().all(|c| matches!(c, '/' | '.')) && !text.contains("..");
            let path_below = format!("{}/{text}", if names_parent { target.display() } else { below.display() });
            for path in [text.clone(), path_below] {
                let request = NodePublishVolumeRequest {
                    target_path: path.clone(),
                    ..publish(&volume, &target, Mode::SingleNodeWriter)
                };
                let _ = rig.plugin.node.node_publish_volume(request).await;
                let _ = rig.unpublish(&volume, Path::new(&path)).await;
            }
        }
        assert_eq!(rig.residue(), Vec::<String>::new());
        assert_eq!(rig.store.volumes(), [volume]);
        assert_eq!((mounts(), fs::read_dir("/").unwrap().count()), before);
        assert_eq!(fs::read_dir(below).unwrap().count(), 0);
    });
}

fn delete(id: &str) -> DeleteVolumeRequest {
    DeleteVolumeRequest { volume_id: id.to_owned(), ..DeleteVolumeRequest::default() }
}

#[test]
fn many_publishes_leave_no_descriptor_thread_or_mount() {
    mounting("many_publishes_leave_no_descriptor_thread_or_mount", async {
        let mut rig = Rig::new().await;
        let volume = rig.create("v").await;
        let count = |of: &str| fs::read_dir(format!("/proc/self/{of}")).unwrap().count();
        let mut after_some = (0, 0);
        for n in 0..300 {
            let target = rig.target(&format!("pod-{}", n % 7));
            rig.publish(&volume, &target).await.unwrap();
            rig.publish(&volume, &target).await.unwrap();
            rig.unpublish(&volume, &target).await.unwrap();
            if n == 100 {
                after_some = (count("fd"), count("task"));
            }
        }
        let after_all = (count("fd"), count("task"));
        assert!(after_all.0 <= after_some.0 + 8, "descriptors: {after_some:?}, then {after_all:?}");
        assert!(after_all.1 <= after_some.1 + 8, "threads: {after_some:?}, then {after_all:?}");
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}
