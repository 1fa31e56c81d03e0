//! What kubelet expects of publish and unpublish, each rule by name, on real mounts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::publish::steps::Hook;
use gpuvol_protocol::Code as FaultCode;
use support::fake_store::Script;
use support::namespace::mounting;
use support::{Rig, broken_mount, mounts_at, publish, refused, unpublish};
use tonic::Code;

/// Connects to a published socket, whose path is longer than an address may be.
fn connects(target: &Path) -> bool {
    let short = tempfile::tempdir().unwrap();
    symlink(target, short.path().join("t")).unwrap();
    UnixStream::connect(short.path().join("t/.gpuvol.sock")).is_ok()
}

#[test]
fn publish_makes_a_read_only_directory_with_a_socket_for_anyone() {
    mounting("publish_makes_a_read_only_directory_with_a_socket_for_anyone", async {
        let mut rig = Rig::with(&["--mount", "bind"], Hook::default()).await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        assert!(target.as_os_str().len() > 108);
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        let written = std::fs::write(target.join("file"), "x").unwrap_err();
        assert_eq!(written.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&target), mode(&target.join(".gpuvol.sock"))), (0o755, 0o777));
        let line = mounts_at(&target).remove(0);
        assert!(line.contains("ro,nosuid,nodev,noexec"), "{line}");
        assert!(!line.contains("shared:"), "{line}");
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn publishing_ten_times_leaves_one_line_in_mountinfo() {
    mounting("publishing_ten_times_leaves_one_line_in_mountinfo", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let before = mounts_at(&target);
        rig.store.take_calls();
        for _ in 0..10 {
            rig.publish(&volume, &target).await.unwrap();
        }
        assert_eq!(mounts_at(&target), before);
        assert_eq!(before.len(), 1);
        assert!(!rig.store.take_calls().contains(&"publish"), "a working publish is not touched");
        for _ in 0..10 {
            rig.unpublish(&volume, &target).await.unwrap();
        }
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn the_table_of_second_publishes_holds() {
    mounting("the_table_of_second_publishes_holds", async {
        let mut rig = Rig::new().await;
        let (volume, other) = (rig.create("v").await, rig.create("w").await);
        let (one, two) = (rig.target("pod-1"), rig.target("pod-2"));
        let node = &mut rig.plugin.node;
        node.node_publish_volume(publish(&volume, &one, Mode::SingleNodeWriter)).await.unwrap();
        let mut read_only = publish(&volume, &one, Mode::SingleNodeWriter);
        read_only.readonly = true;
        refused(node.node_publish_volume(read_only).await, Code::AlreadyExists);
        refused(node.node_publish_volume(publish(&other, &one, Mode::SingleNodeWriter)).await, Code::AlreadyExists);
        let second = refused(
            node.node_publish_volume(publish(&volume, &two, Mode::SingleNodeWriter)).await,
            Code::FailedPrecondition,
        );
        assert!(second.contains("SINGLE_NODE_MULTI_WRITER") && second.contains(one.to_str().unwrap()), "{second}");
        node.node_unpublish_volume(unpublish(&volume, &one)).await.unwrap();
        for target in [&one, &two] {
            node.node_publish_volume(publish(&volume, target, Mode::SingleNodeMultiWriter)).await.unwrap();
        }
        // Unpublishing another volume at a target leaves the one that is there.
        node.node_unpublish_volume(unpublish(&other, &one)).await.unwrap();
        assert!(connects(&one));
        for target in [&one, &two] {
            node.node_unpublish_volume(unpublish(&volume, target)).await.unwrap();
        }
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_failed_republish_leaves_a_working_target() {
    mounting("a_failed_republish_leaves_a_working_target", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let mut other = publish(&volume, &target, Mode::SingleNodeWriter);
        other.readonly = true;
        refused(rig.plugin.node.node_publish_volume(other).await, Code::AlreadyExists);
        rig.store.next("publishes", Script::Refuse(FaultCode::Internal));
        refused(rig.publish(&volume, &target).await, Code::Internal);
        rig.store.hide();
        refused(rig.publish(&volume, &target).await, Code::Unavailable);
        rig.store.listen();
        assert!(connects(&target));
        assert_eq!(mounts_at(&target).len(), 1);
    });
}

#[test]
fn a_new_plugin_goes_on_where_the_old_one_ended() {
    mounting("a_new_plugin_goes_on_where_the_old_one_ended", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        rig.restart(&[], Hook::default()).await;
        rig.publish(&volume, &target).await.unwrap();
        assert_eq!(mounts_at(&target).len(), 1);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_lost_listener_is_replaced_under_the_living_mount() {
    mounting("a_lost_listener_is_replaced_under_the_living_mount", async {
        let mut rig = Rig::with(&["--mount", "bind"], Hook::default()).await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let before = mounts_at(&target);
        rig.store.close_listeners();
        assert!(!connects(&target));
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        assert_eq!(mounts_at(&target), before);
        rig.store.forget_publishes();
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        assert_eq!(mounts_at(&target), before);
    });
}

#[test]
fn lost_content_is_not_replaced_by_an_empty_directory() {
    mounting("lost_content_is_not_replaced_by_an_empty_directory", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.store.lose(&volume);
        refused(rig.publish(&volume, &target).await, Code::FailedPrecondition);
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_dead_mount_is_unmounted_and_not_taken_for_unmounted() {
    mounting("a_dead_mount_is_unmounted_and_not_taken_for_unmounted", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        std::fs::create_dir(&target).unwrap();
        let Some(server) = broken_mount::mount_silent(&target) else {
            eprintln!("skipped: FUSE is not to be had here");
            return;
        };
        drop(server);
        assert_eq!(std::fs::read_dir(&target).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
        rig.publish(&volume, &target).await.unwrap();
        assert_eq!(mounts_at(&target).len(), 1);
        assert!(connects(&target));
        rig.unpublish(&volume, &target).await.unwrap();

        std::fs::create_dir(&target).unwrap();
        drop(broken_mount::mount_silent(&target).unwrap());
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_hanging_mount_costs_one_deadline_and_is_detached() {
    mounting("a_hanging_mount_costs_one_deadline_and_is_detached", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        std::fs::create_dir(&target).unwrap();
        let Some(server) = broken_mount::mount_silent(&target) else {
            eprintln!("skipped: FUSE is not to be had here");
            return;
        };
        tokio::time::timeout(Duration::from_secs(5), rig.unpublish(&volume, &target)).await.unwrap().unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
        drop(server);
    });
}

#[test]
fn a_store_that_hangs_in_unpublish_does_not_hold_the_volume() {
    mounting("a_store_that_hangs_in_unpublish_does_not_hold_the_volume", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        rig.store.next("unpublish", Script::Delay(Duration::from_secs(2)));
        refused(rig.unpublish(&volume, &target).await, Code::DeadlineExceeded);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_mount_whose_directory_was_deleted_is_replaced() {
    mounting("a_mount_whose_directory_was_deleted_is_replaced", async {
        let mut rig = Rig::with(&["--mount", "bind"], Hook::default()).await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        std::fs::remove_dir_all(rig.dir.path().join("state/publish")).unwrap();
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        assert_eq!(mounts_at(&target).len(), 1);
    });
}

#[test]
fn the_mount_of_somebody_else_is_not_touched() {
    mounting("the_mount_of_somebody_else_is_not_touched", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        std::fs::create_dir(&target).unwrap();
        rustix::mount::mount_bind("/proc", &target).unwrap();
        let taken = refused(rig.publish(&volume, &target).await, Code::FailedPrecondition);
        assert!(taken.contains(target.to_str().unwrap()), "{taken}");
        assert_eq!(mounts_at(&target).len(), 1);
        assert!(rig.store.publishes().is_empty());
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
    });
}

#[test]
fn unpublish_of_what_was_never_published_is_ok() {
    mounting("unpublish_of_what_was_never_published_is_ok", async {
        let mut rig = Rig::new().await;
        let target = rig.target("pod-1");
        for volume in ["gv-unknown", "../../etc", "Ä"] {
            rig.unpublish(volume, &target).await.unwrap();
            for path in ["some/path", "/", "/etc/passwd", "/a/../b", "/no/such/parent/mount"] {
                rig.unpublish(volume, Path::new(path)).await.unwrap();
            }
        }
        let gone = rig.target("pod-2");
        std::fs::remove_dir_all(gone.parent().unwrap()).unwrap();
        rig.unpublish("gv-unknown", &gone).await.unwrap();
        refused(rig.unpublish("", &target).await, Code::InvalidArgument);
        refused(rig.unpublish("gv-unknown", Path::new("")).await, Code::InvalidArgument);
        assert!(Path::new("/etc/passwd").exists());
    });
}

#[test]
fn odd_target_paths_are_refused_and_leave_nothing() {
    mounting("odd_target_paths_are_refused_and_leave_nothing", async {
        let mut rig = Rig::new().await;
        let volume = rig.create("v").await;
        let target = rig.target("pod-1");
        let (up, link) = (target.with_file_name("a/../../mount"), target.with_file_name("link"));
        symlink("/tmp", &link).unwrap();
        let outside = tempfile::tempdir().unwrap();
        for path in [Path::new("some/path"), &up, &link.join("mount"), &outside.path().join("mount")] {
            refused(rig.publish(&volume, path).await, Code::InvalidArgument);
        }
        refused(rig.publish(&volume, &link).await, Code::FailedPrecondition);
        std::fs::write(&target, "a file").unwrap();
        refused(rig.publish(&volume, &target).await, Code::FailedPrecondition);
        std::fs::remove_file(&target).unwrap();
        refused(rig.publish("gv-unknown", &target).await, Code::NotFound);
        refused(rig.publish("../x", &target).await, Code::NotFound);
        assert_eq!(rig.residue(), Vec::<String>::new());
        assert!(!Path::new("/tmp/mount").exists());
    });
}

#[test]
fn without_mounts_the_socket_is_in_the_target_itself() {
    mounting("without_mounts_the_socket_is_in_the_target_itself", async {
        let mut rig = Rig::with(&["--mount", "none"], Hook::default()).await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        for _ in 0..10 {
            rig.publish(&volume, &target).await.unwrap();
        }
        assert!(connects(&target));
        assert_eq!(mounts_at(&target).len(), 0);
        rig.store.close_listeners();
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        for _ in 0..2 {
            rig.unpublish(&volume, &target).await.unwrap();
            assert_eq!(rig.residue(), Vec::<String>::new());
        }
    });
}

#[test]
fn what_is_not_ours_stays() {
    mounting("what_is_not_ours_stays", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        // A directory with something in it is not covered by a mount.
        std::fs::create_dir_all(&target).unwrap();
        std::fs::write(target.join("file"), "kept").unwrap();
        let message = refused(rig.publish(&volume, &target).await, Code::FailedPrecondition);
        assert!(message.contains(target.to_str().unwrap()), "{message}");
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "kept");
        // Nor is a mount of somebody else's taken away.
        std::fs::remove_file(target.join("file")).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("none", &target, "tmpfs", flags, None).unwrap();
        std::fs::write(target.join("file"), "theirs").unwrap();
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(std::fs::read_to_string(target.join("file")).unwrap(), "theirs");
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).unwrap();
        std::fs::remove_dir(&target).unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}
