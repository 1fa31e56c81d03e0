//! What publishes of a file system promise beyond those of a socket: each rule by name, on real FUSE mounts.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::fs;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvol_csi::csi::NodeGetVolumeStatsRequest;
use gpuvol_csi::csi::volume_capability::access_mode::Mode;
use gpuvol_csi::listener;
use gpuvol_csi::mount::fuse::{FuseMount, may_pass_through};
use gpuvol_csi::publish::steps::Hook;
use gpuvol_csi::watch;
use gpuvol_protocol::Code as FaultCode;
use support::fake_mounter::Script as Mounter;
use support::fake_store::Script;
use support::namespace::{mounting, mounting_as_user};
use support::{PATIENCE, Rig, config, mounts_at, publish, refused};
use tonic::Code;

/// What a pod does first: connects to the socket below its mount.
fn connects(target: &Path) -> bool {
    let directory = fs::File::open(target).unwrap();
    listener::connect(directory.as_fd(), ".gpuvol.sock").is_ok()
}

/// Connection number and the rest of the only mount at a target.
fn only_mount(target: &Path) -> (u32, String) {
    let lines = mounts_at(target);
    assert_eq!(lines.len(), 1, "{lines:?}");
    let device = lines[0].split(' ').nth(2).unwrap().strip_prefix("0:").unwrap();
    (device.parse().unwrap(), lines[0].clone())
}

fn has_fuse() -> bool {
    match FuseMount::create() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: FUSE is not to be had here: {error}");
            false
        }
    }
}

/// Threads of this process that wait for a file system.
fn stuck() -> usize {
    let name = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
    fs::read_dir("/proc/self/task")
        .unwrap()
        .flatten()
        .filter(|e| e.file_name() != "0")
        .map(name)
        .filter(|n| n.starts_with("may-hang"))
        .count()
}

fn eventually(what: &str, mut there: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(10);
    while !there() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

async fn it_is_a_file_system() {
    if !has_fuse() {
        return;
    }
    let mut rig = Rig::new().await;
    let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
    rig.publish(&volume, &target).await.unwrap();
    let (connection, line) = only_mount(&target);
    assert!(line.contains(" rw,nosuid,nodev,relatime ") && line.contains(" - fuse.gpuvol gpuvol "), "{line}");
    assert!(line.contains("default_permissions") && line.contains("allow_other"), "{line}");
    let known = rig.store.publishes().remove(0).mount.unwrap();
    assert_eq!(known.connection, connection);
    let agreed = known.agreed.unwrap();
    assert!(agreed.max_write >= 4096);
    const PASSTHROUGH: u64 = 1 << 37;
    assert!(may_pass_through() || agreed.flags & PASSTHROUGH == 0);
    assert!(connects(&target));
    let mode = fs::metadata(target.join(".gpuvol.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o777);
    rig.unpublish(&volume, &target).await.unwrap();
    assert_eq!(rig.residue(), Vec::<String>::new());

    let mut read_only = publish(&volume, &target, Mode::SingleNodeWriter);
    read_only.readonly = true;
    rig.plugin.node.node_publish_volume(read_only.clone()).await.unwrap();
    assert!(only_mount(&target).1.contains(" ro,nosuid,nodev,"));
    let refused = fs::write(target.join("file"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    assert!(connects(&target));
    rig.store.take_calls();
    rig.plugin.node.node_publish_volume(read_only).await.unwrap();
    assert!(!rig.store.take_calls().contains(&"publish"));
    rig.unpublish(&volume, &target).await.unwrap();
    assert_eq!(rig.store.take_calls(), ["publishes", "close", "unpublish"]);
    assert_eq!(rig.residue(), Vec::<String>::new());
}

#[test]
fn a_view_is_a_file_system() {
    mounting("a_view_is_a_file_system", it_is_a_file_system());
}

#[test]
fn a_view_is_a_file_system_in_a_user_namespace() {
    mounting_as_user("a_view_is_a_file_system_in_a_user_namespace", it_is_a_file_system());
}

#[test]
fn a_user_namespace_leaves_nothing_after_a_hang() {
    mounting_as_user("a_user_namespace_leaves_nothing_after_a_hang", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.store.mounter(Mounter::Silent);
        refused(rig.publish(&volume, &target).await, Code::Unavailable);
        assert_eq!(rig.residue(), Vec::<String>::new());
        eventually("nobody waits any more", || stuck() == 0);
        rig.store.mounter(Mounter::Serve);
        rig.publish(&volume, &target).await.unwrap();
        let mut child = inside(&target);
        rig.store.mounter(Mounter::Silent);
        look(&mut child);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
        eventually("the process ends", || child.try_wait().unwrap().is_some());
        eventually("nobody waits any more", || stuck() == 0);
    });
}

#[test]
fn a_view_that_nobody_serves_is_not_published() {
    mounting("a_view_that_nobody_serves_is_not_published", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        for (mounter, code) in [(Mounter::Silent, Code::Unavailable), (Mounter::NoSocket, Code::Internal)] {
            rig.store.mounter(mounter);
            let message = refused(rig.publish(&volume, &target).await, code);
            assert!(message.contains(target.to_str().unwrap()), "{message}");
            assert_eq!(rig.residue(), Vec::<String>::new(), "{mounter:?}");
            eventually("nobody waits any more", || stuck() == 0);
        }
        rig.store.mounter(Mounter::Serve);
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
    });
}

#[test]
fn a_store_that_does_not_take_the_listener_leaves_nothing() {
    mounting("a_store_that_does_not_take_the_listener_leaves_nothing", async {
        if !has_fuse() {
            return;
        }
        for (script, code) in [
            (Script::Refuse(FaultCode::Internal), Code::Internal),
            (Script::DoneButSilent, Code::Unavailable),
            (Script::Delay(PATIENCE * 3), Code::DeadlineExceeded),
        ] {
            let mut rig = Rig::new().await;
            let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
            rig.store.next("publish", Script::Pass);
            rig.store.next("publish", script.clone());
            refused(rig.publish(&volume, &target).await, code);
            assert_eq!(rig.residue(), Vec::<String>::new(), "{script:?}");
        }
    });
}

#[test]
fn a_mount_that_hangs_for_a_while_is_not_taken_down() {
    mounting("a_mount_that_hangs_for_a_while_is_not_taken_down", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let before = only_mount(&target);
        rig.store.mounter(Mounter::Silent);
        let message = refused(rig.publish(&volume, &target).await, Code::Unavailable);
        assert!(message.contains("gpuvol-mounter"), "{message}");
        assert_eq!(only_mount(&target), before);
        rig.store.mounter(Mounter::Serve);
        rig.store.take_calls();
        rig.publish(&volume, &target).await.unwrap();
        assert_eq!(only_mount(&target), before);
        assert_eq!(rig.store.take_calls(), ["get", "publishes"]);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
        eventually("nobody waits any more", || stuck() == 0);
    });
}

#[test]
fn what_is_left_of_a_view_is_ended_and_the_volume_published_anew() {
    mounting("what_is_left_of_a_view_is_ended_and_the_volume_published_anew", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        type Loss<'a> = (&'static str, &'a dyn Fn(&Rig));
        let losses: [Loss<'_>; 5] = [
            ("its server", &|rig| rig.store.lose_mounts()),
            ("its listener", &|rig| rig.store.close_listeners()),
            ("its mount", &|_| rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).unwrap()),
            ("its server and its mount", &|rig| {
                rig.store.lose_mounts();
                rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).unwrap();
            }),
            ("its publish, and its server", &|rig| {
                rig.store.lose_mounts();
                rig.store.forget_publishes();
            }),
        ];
        for (what, lose) in losses {
            rig.publish(&volume, &target).await.unwrap();
            lose(&rig);
            rig.publish(&volume, &target).await.unwrap();
            assert!(connects(&target), "{what}");
            assert_eq!(only_mount(&target).0, rig.store.publishes().remove(0).mount.unwrap().connection, "{what}");
            lose(&rig);
            rig.unpublish(&volume, &target).await.unwrap();
            assert_eq!(rig.residue(), Vec::<String>::new(), "{what}");
        }
    });
}

/// A process inside a mount, which looks at a file there when it is told to.
fn inside(target: &Path) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", "read told; cat file"]).current_dir(target);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap()
}

/// Tells it, and waits until it waits.
fn look(child: &mut Child) {
    child.stdin.take().unwrap().write_all(b"now\n").unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(child.try_wait().unwrap().is_none(), "it waits for an answer");
}

#[test]
fn an_unpublish_lets_go_whoever_waits_in_the_mount() {
    mounting("an_unpublish_lets_go_whoever_waits_in_the_mount", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let mut child = inside(&target);
        rig.store.mounter(Mounter::Silent);
        look(&mut child);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
        eventually("the process ends", || child.try_wait().unwrap().is_some());
        eventually("nobody waits any more", || stuck() == 0);
    });
}

#[test]
fn a_user_inside_does_not_keep_the_target() {
    mounting("a_user_inside_does_not_keep_the_target", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let mut child = inside(&target);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
        assert!(child.try_wait().unwrap().is_none(), "it was not harmed");
        child.kill().unwrap();
        child.wait().unwrap();
    });
}

#[test]
fn a_mount_that_hangs_for_good_is_ended_and_published_anew() {
    mounting("a_mount_that_hangs_for_good_is_ended_and_published_anew", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let config = config(rig.dir.path(), &[]);
        if let Err(error) = watch::start(config.state, config.roots, Duration::from_secs(1)) {
            eprintln!("skipped: nobody can watch over mounts here: {error}");
            return;
        }
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        let mut child = inside(&target);
        rig.store.mounter(Mounter::Silent);
        look(&mut child);
        eventually("the process ends", || child.try_wait().unwrap().is_some());
        rig.store.mounter(Mounter::Serve);
        rig.publish(&volume, &target).await.unwrap();
        assert!(connects(&target));
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn statistics_come_from_the_store_and_never_from_the_mount() {
    mounting("statistics_come_from_the_store_and_never_from_the_mount", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        rig.publish(&volume, &target).await.unwrap();
        rig.store.mounter(Mounter::Silent);
        let request = NodeGetVolumeStatsRequest {
            volume_id: volume.clone(),
            volume_path: target.to_str().unwrap().to_owned(),
            staging_target_path: String::new(),
        };
        let stats = rig.plugin.node.node_get_volume_stats(request.clone()).await.unwrap().into_inner();
        let condition = stats.volume_condition.unwrap();
        assert!(!condition.abnormal, "{}", condition.message);
        assert_eq!(stats.usage[0].used, 4096);
        assert_eq!(stuck(), 0, "nobody has asked the mount");
        rig.store.lose_mounts();
        let stats = rig.plugin.node.node_get_volume_stats(request.clone()).await.unwrap().into_inner();
        assert!(stats.volume_condition.unwrap().message.contains("gpuvol-mounter"));
        rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH).unwrap();
        let stats = rig.plugin.node.node_get_volume_stats(request).await.unwrap().into_inner();
        assert!(stats.volume_condition.unwrap().message.contains("nothing is mounted"));
    });
}

#[test]
fn a_volume_without_files_is_a_socket_alone() {
    mounting("a_volume_without_files_is_a_socket_alone", async {
        let mut rig = Rig::new().await;
        let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
        let mut request = publish(&volume, &target, Mode::SingleNodeWriter);
        request.volume_context.insert("gpuvol.dev/files".into(), "none".into());
        let node = &mut rig.plugin.node;
        node.node_publish_volume(request.clone()).await.unwrap();
        assert!(!mounts_at(&target).remove(0).contains("fuse"));
        node.node_publish_volume(request.clone()).await.unwrap();
        request.volume_context.insert("gpuvol.dev/files".into(), "view".into());
        refused(node.node_publish_volume(request.clone()).await, Code::AlreadyExists);
        request.volume_context.insert("gpuvol.dev/files".into(), "disk".into());
        refused(node.node_publish_volume(request).await, Code::InvalidArgument);
        rig.unpublish(&volume, &target).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}

#[test]
fn a_publish_keeps_its_form_when_the_plugin_gets_another() {
    mounting("a_publish_keeps_its_form_when_the_plugin_gets_another", async {
        if !has_fuse() {
            return;
        }
        for (before, after) in [("view", "bind"), ("bind", "view"), ("none", "view"), ("view", "none")] {
            let mut rig = Rig::with(&["--mount", before], Hook::default()).await;
            let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
            rig.publish(&volume, &target).await.unwrap();
            let mounts = mounts_at(&target);
            rig.restart(&["--mount", after], Hook::default()).await;
            rig.store.take_calls();
            rig.publish(&volume, &target).await.unwrap();
            assert!(connects(&target));
            assert_eq!(mounts_at(&target), mounts, "{before}, then {after}");
            assert!(!rig.store.take_calls().contains(&"publish"), "{before}, then {after}");
            rig.unpublish(&volume, &target).await.unwrap();
            assert_eq!(rig.residue(), Vec::<String>::new(), "{before}, then {after}");
        }
    });
}

#[test]
fn two_pods_have_a_mount_each() {
    mounting("two_pods_have_a_mount_each", async {
        if !has_fuse() {
            return;
        }
        let mut rig = Rig::new().await;
        let volume = rig.create("v").await;
        let (one, two) = (rig.target("pod-1"), rig.target("pod-2"));
        for target in [&one, &two] {
            let request = publish(&volume, target, Mode::SingleNodeMultiWriter);
            rig.plugin.node.node_publish_volume(request).await.unwrap();
        }
        assert_ne!(only_mount(&one).0, only_mount(&two).0);
        rig.unpublish(&volume, &one).await.unwrap();
        assert!(connects(&two));
        rig.unpublish(&volume, &two).await.unwrap();
        assert_eq!(rig.residue(), Vec::<String>::new());
    });
}
