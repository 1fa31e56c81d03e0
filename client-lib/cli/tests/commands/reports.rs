//! What people and monitoring read: df and doctor.

use std::fs;

use gpuvol_protocol::admin::{AdminOp, Unpublish};

use crate::node::{MIB, Node, args};

#[test]
fn df_counts_what_is_used() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), vec![1; 3 << 20]).unwrap();
    node.run(args!["put", "-q", node.plain("x"), &data]).ok();
    let json = node.run(args!["df", "--json", data.join("x")]).json();
    let volume = &json["volumes"][0];
    assert_eq!((volume["volume"].as_str(), volume["capacity"].as_u64()), (Some("data"), Some(64 * MIB)));
    let used = volume["used"].as_u64().unwrap();
    assert!((3 * MIB..4 * MIB).contains(&used), "{volume}");
    assert_eq!(volume["free"].as_u64(), Some(64 * MIB - used));
    assert_eq!(
        (volume["tier"].as_str(), volume["gpu"].as_u64(), volume["read_only"].as_bool()),
        (Some("host"), Some(0), Some(false))
    );
    assert_eq!(volume["mount"], data.to_str().unwrap());
    let text = node.run(args!["df", &data]).ok();
    assert!(text.starts_with("VOLUME") && text.contains("64.0 MiB"), "{text}");
    node.run(args!["df", node.plain("none")]).fails(3);
}

#[test]
fn the_doctor_knows_the_node() {
    let mut node = Node::start();
    let data = node.volume("data", 64 * MIB);
    node.volume("idle", 64 * MIB);
    node.admin(AdminOp::Unpublish(Unpublish { publish: "idle".into(), ..Unpublish::default() }), &[]);
    let report = node.run(args!["doctor", "--json", "--state", node.state(), &data]).json();
    assert_eq!(report["ok"], true);
    let find = |report: &serde_json::Value, area: &str, check: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|c| c["area"] == area && c["check"] == check).cloned().unwrap_or_default()
    };
    assert_eq!(find(&report, "volume", "store")["level"], "OK");
    assert_eq!(find(&report, "node", "keeper")["level"], "OK");
    assert_eq!(find(&report, "node", "budget")["level"], "OK");
    let idle = find(&report, "node", "volumes");
    assert!(idle["level"] == "WARN" && idle["message"].as_str().unwrap().contains("idle"), "{idle}");
    let text = node.run(args!["doctor", "--state", node.state(), &data]).ok();
    assert!(text.contains("OK    volume  store") && text.contains("next: "), "{text}");
    // Nothing that a path is on, and nobody that answers.
    node.run(args!["doctor", node.plain("x")]).fails_quietly();
    node.kill_store();
    let dead = node.run(args!["doctor", "--json", "--state", node.state()]);
    assert_eq!(dead.0.status.code(), Some(1));
    let dead: serde_json::Value = serde_json::from_slice(&dead.0.stdout).unwrap();
    assert_eq!((&dead["ok"], &find(&dead, "node", "store")["level"]), (&false.into(), &"FAIL".into()));
}

#[test]
fn df_finds_what_is_mounted() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    let mount = node.state().join("a mount");
    fs::create_dir(&mount).unwrap();
    let script = "mount --bind \"$1\" \"$2\" || exit 99; exec \"$3\" df --json";
    let mut shell = std::process::Command::new("unshare");
    shell.args(["-Urm", "sh", "-c", script, "-"]).args([&data, &mount]).arg(env!("CARGO_BIN_EXE_gpuvol"));
    let out = match shell.output() {
        Ok(out) if out.status.success() => out,
        other => {
            eprintln!("df_finds_what_is_mounted did not run: no user namespaces here ({other:?})");
            return;
        }
    };
    let json: serde_json::Value = serde_json::from_slice(&out.stdout).unwrap();
    let mounts: Vec<_> = json["volumes"].as_array().unwrap().iter().map(|v| v["mount"].as_str().unwrap()).collect();
    assert!(mounts.contains(&mount.to_str().unwrap()), "{mounts:?}");
}

#[test]
fn colours_are_for_terminals() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    node.run(args!["mkdir", data.join("d")]).ok();
    let ls = |force: bool, no_color: bool| {
        let mut command = node.command();
        command.arg("ls").arg(&data);
        if force {
            command.env("CLICOLOR_FORCE", "1");
        }
        if no_color {
            command.env("NO_COLOR", "1");
        }
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(ls(false, false), "d/\n");
    assert!(ls(true, false).contains("\x1b["));
    assert_eq!(ls(false, true), "d/\n");
}

#[test]
fn the_doctor_does_not_wait_for_a_stuck_store() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    node.stop_store();
    let out = node.run(args!["doctor", &data]);
    let text = String::from_utf8_lossy(&out.0.stdout).into_owned();
    out.fails_quietly();
    assert!(text.contains("FAIL  volume  store") && text.contains("does not answer"), "{text}");
}
