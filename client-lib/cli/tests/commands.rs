//! Every command against the real keeper and store.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small test data")]

mod node;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use gpuvol_protocol::admin::{AdminOp, Unpublish};
use gpuvol_protocol::message::Tier;
use node::Node;

const MIB: u64 = 1 << 20;

/// Arguments of mixed types.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { vec![$(OsString::from($argument)),*] };
}

fn arrow_file(path: &Path) -> Vec<u8> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("name", DataType::Utf8, false),
        Field::new("value", DataType::Float64, true),
    ]));
    let names = StringArray::from_iter_values((0..10_000).map(|n| format!("row {n}")));
    let values = Float64Array::from_iter((0..10_000).map(|n| (n % 7 != 0).then_some(f64::from(n))));
    let batch = RecordBatch::try_new(schema.clone(), vec![Arc::new(names), Arc::new(values)]).unwrap();
    let mut file = Vec::new();
    let mut writer = arrow_ipc::writer::FileWriter::try_new(&mut file, &schema).unwrap();
    writer.write(&batch).unwrap();
    writer.finish().unwrap();
    drop(writer);
    fs::write(path, &file).unwrap();
    file
}

fn rows(file: &[u8]) -> Vec<RecordBatch> {
    let reader = arrow_ipc::reader::FileReader::try_new(std::io::Cursor::new(file), None).unwrap();
    reader.map(Result::unwrap).collect()
}

fn npy_file(path: &Path, elements: usize) -> Vec<u8> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({elements},), }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend_from_slice(format!("{header:<117}\n").as_bytes());
    (0u16..=u16::MAX).cycle().take(elements).for_each(|n| file.extend_from_slice(&f32::from(n).to_le_bytes()));
    fs::write(path, &file).unwrap();
    file
}

fn names(listing: &str) -> Vec<&str> {
    listing.lines().collect()
}

#[test]
fn bytes_go_in_and_come_out() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    let content: Vec<u8> = (0..20 * MIB + 7).map(|n| (n % 251) as u8).collect();
    for (name, size) in [("empty", 0), ("small", 100), ("inline", 64 << 10), ("large", content.len())] {
        let src = node.plain(name);
        fs::write(&src, &content[..size]).unwrap();
        let put = node.run(args!["put", "--json", &src, &data]).json();
        assert_eq!((put["size"].as_u64(), put["kind"].as_str()), (Some(size as u64), Some("bytes")), "{put}");
        assert_eq!(put["volume"], "data");
        assert_eq!(put["path"], data.join(name).to_str().unwrap());
        let out = node.run(args!["cat", data.join(name)]);
        assert!(out.0.status.success() && out.0.stdout == content[..size], "{name}");
        let back = node.plain("back");
        node.run(args!["get", data.join(name), &back]).ok();
        assert_eq!(fs::read(&back).unwrap(), &content[..size]);
    }
    // Standard input and output, into a directory, and what may not be overwritten.
    let mut put = node.command();
    let mut put = put.args(args!["put", "-q", "-", data.join("deep/er/stdin")]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut put.stdin.take().unwrap(), b"from a pipe").unwrap();
    assert!(put.wait().unwrap().success());
    assert_eq!(node.run(args!["get", data.join("deep/er/stdin"), "-"]).ok(), "from a pipe");
    fs::create_dir(node.plain("dir")).unwrap();
    node.run(args!["get", data.join("small"), node.plain("dir")]).ok();
    assert_eq!(fs::read(node.plain("dir/small")).unwrap(), &content[..100]);
    node.run(args!["get", "-n", data.join("small"), node.plain("dir")]).fails(1);
    node.run(args!["put", "-n", node.plain("small"), &data]).fails(1);
    assert_eq!(fs::read_dir(node.plain("dir")).unwrap().count(), 1, "a temporary file was left");
}

#[test]
fn tables_and_tensors_are_recognised_by_content() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    let (arrow, npy) = (node.plain("table.bin"), node.plain("tensor.bin"));
    let (table, tensor) = (arrow_file(&arrow), npy_file(&npy, 100_000));
    for (src, kind) in [(&arrow, "arrow"), (&npy, "tensor")] {
        let at = data.join(kind);
        node.run(args!["put", "-q", "-a", "stage=one", src, &at]).ok();
        let stat = &node.run(args!["stat", "--json", &at]).json()["entries"][0];
        assert_eq!((stat["kind"].as_str(), stat["tier"].as_str()), (Some(kind), Some("host")), "{stat}");
        assert_eq!(stat["attributes"]["stage"], "one");
        assert!(stat["producer"].as_str().unwrap().starts_with("default/stage"), "{stat}");
        assert!(stat["modified_ms"].as_u64().unwrap() > 1_600_000_000_000);
        // Copies keep what it is.
        node.run(args!["cp", &at, data.join("copy")]).ok();
        let copy = &node.run(args!["stat", "--json", data.join("copy")]).json()["entries"][0];
        assert_eq!(
            (&copy["kind"], &copy["size"], &copy["attributes"]),
            (&stat["kind"], &stat["size"], &stat["attributes"])
        );
    }
    let out = node.run(args!["cat", data.join("arrow")]).0.stdout;
    assert_eq!(rows(&out), rows(&table));
    assert_eq!(node.run(args!["cat", data.join("tensor")]).0.stdout, tensor);
    // As they are, and what only looks like one.
    node.run(args!["put", "-q", "--kind", "bytes", &arrow, data.join("raw")]).ok();
    assert_eq!(node.run(args!["cat", data.join("raw")]).0.stdout, table);
    let broken = node.plain("broken");
    fs::write(&broken, b"ARROW1\0\0 nothing of the kind ARROW1").unwrap();
    node.run(args!["put", "--kind", "arrow", &broken, &data]).fails(1);
    let put = node.run(args!["put", "-q", &broken, &data]);
    assert!(put.0.status.success() && put.err().starts_with("gpuvol: note: broken is put as bytes"), "{}", put.err());
}

#[test]
fn listings_show_what_is_there() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    for name in ["b", "a", "dir/inner/leaf"] {
        node.run(args!["put", "-q", node.plain("x"), data.join(name)]).ok();
    }
    assert_eq!(names(&node.run(args!["ls", &data]).ok()), ["a", "b", "dir/"]);
    assert_eq!(node.run(args!["ls", data.join("a")]).ok(), format!("{}\n", data.join("a").display()));
    let long = node.run(args!["ls", "-l", &data]).ok();
    let first: Vec<&str> = long.lines().next().unwrap().split_whitespace().collect();
    assert_eq!((first[0], first[1], first[2], first[3]), ("bytes", "5", "B", "host"));
    assert_eq!(first.last(), Some(&"a"));
    let deep = node.run(args!["ls", "-R", &data]).ok();
    assert!(deep.contains(&format!("\n{}:\nleaf\n", data.join("dir/inner").display())), "{deep}");
    let json = node.run(args!["ls", "-R", "--json", &data]).json();
    let entries = json["entries"].as_array().unwrap();
    let paths: Vec<&str> = entries.iter().map(|e| e["path"].as_str().unwrap()).collect();
    let want: Vec<PathBuf> = ["a", "b", "dir", "dir/inner", "dir/inner/leaf"].iter().map(|p| data.join(p)).collect();
    assert_eq!(paths, want.iter().map(|p| p.to_str().unwrap()).collect::<Vec<_>>());
    assert_eq!((entries[0]["type"].as_str(), entries[0]["size"].as_u64()), (Some("object"), Some(5)));
    assert_eq!((entries[2]["type"].as_str(), entries[2]["size"].as_u64()), (Some("directory"), None));
    // The working directory, ordinary directories, and a page more than the store gives at once.
    let here = node.command().current_dir(&data).arg("ls").output().unwrap();
    assert_eq!(names(std::str::from_utf8(&here.stdout).unwrap()), ["a", "b", "dir/"]);
    assert_eq!(names(&node.run(args!["ls", node.plain("")]).ok()), ["x"]);
    // Some there and some not: all are tried.
    let mixed = node.run(args!["ls", data.join("a"), data.join("none"), data.join("b")]);
    assert_eq!(String::from_utf8_lossy(&mixed.0.stdout).lines().count(), 2);
    assert!(mixed.fails(3).contains("none"));
}

#[test]
fn names_are_moved_removed_and_made() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    node.run(args!["put", "-q", node.plain("x"), data.join("one")]).ok();
    node.run(args!["mkdir", data.join("d")]).ok();
    node.run(args!["mkdir", data.join("d")]).fails(1);
    node.run(args!["mkdir", data.join("no/such")]).fails(3);
    node.run(args!["mkdir", "-p", data.join("d"), data.join("p/q")]).ok();
    node.run(args!["mv", data.join("one"), data.join("two")]).ok();
    node.run(args!["mv", data.join("one"), data.join("two")]).fails(3);
    node.run(args!["mv", data.join("two"), data.join("d")]).ok();
    assert_eq!(names(&node.run(args!["ls", data.join("d")]).ok()), ["two"]);
    node.run(args!["put", "-q", node.plain("x"), data.join("three")]).ok();
    node.run(args!["mv", "-n", data.join("three"), data.join("d/two")]).fails(1);
    node.run(args!["rm", data.join("d")]).fails(1);
    node.run(args!["rm", "-r", &data]).fails(1);
    node.run(args!["rm", data.join("none")]).fails(3);
    node.run(args!["rm", "-f", data.join("none")]).ok();
    node.run(args!["rm", "-r", data.join("d"), data.join("p"), data.join("three")]).ok();
    assert_eq!(node.run(args!["ls", &data]).ok(), "");
    // Ordinary files are not this command's to change.
    for arguments in [args!["rm", node.plain("x")], args!["mkdir", node.plain("y")], args!["df", node.plain("x")]] {
        assert!(node.run(arguments).fails(1).contains("is on no gpu-volume"));
    }
    node.run(args!["mv", node.plain("x"), node.plain("y")]).fails(1);
    assert!(node.plain("x").exists());
}

#[test]
fn copies_go_between_volumes_and_files() {
    let node = Node::start();
    let (data, other) = (node.volume("data", 64 * MIB), node.volume("other", 64 * MIB));
    fs::create_dir_all(node.plain("tree/sub")).unwrap();
    fs::write(node.plain("tree/a"), b"a").unwrap();
    fs::write(node.plain("tree/sub/b"), vec![7; 200_000]).unwrap();
    node.run(args!["cp", node.plain("tree"), &data]).fails(1);
    node.run(args!["cp", "-r", node.plain("tree"), &data]).ok();
    node.run(args!["cp", "-r", data.join("tree"), other.join("moved")]).ok();
    node.run(args!["cp", "-r", other.join("moved"), node.plain("back")]).ok();
    assert_eq!(fs::read(node.plain("back/a")).unwrap(), b"a");
    assert_eq!(fs::read(node.plain("back/sub/b")).unwrap(), vec![7; 200_000]);
    node.run(args!["cp", node.plain("back/a"), node.plain("plain-copy")]).ok();
    assert_eq!(fs::read(node.plain("plain-copy")).unwrap(), b"a");
    for into in ["tree", "tree/x"] {
        node.run(args!["cp", "-r", data.join("tree"), data.join(into)]).fails(1);
    }
    node.run(args!["cp", data.join("tree/a"), data.join("tree/a")]).fails(1);
    node.run(args!["cp", "-n", data.join("tree/a"), other.join("moved/a")]).fails(1);
    node.run(args!["cp", data.join("tree/a"), other.join("moved/a"), data.join("none")]).fails(1);
    node.run(args!["mv", data.join("tree"), node.plain("tree-out")]).ok();
    assert_eq!(fs::read(node.plain("tree-out/sub/b")).unwrap().len(), 200_000);
    node.run(args!["stat", data.join("tree")]).fails(3);
    node.run(args!["mv", node.plain("tree-out"), &other]).ok();
    assert!(!node.plain("tree-out").exists());
    assert_eq!(node.run(args!["cat", other.join("tree-out/a")]).ok(), "a");
}

#[test]
fn any_name_is_shown_safely_and_comes_back() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"12345").unwrap();
    let odd: [&[u8]; 6] =
        [b"two words", b"line\nbreak", b"not \xff\xfe text", b"\x1b[31mred", b"back\\slash", "größe".as_bytes()];
    for name in odd {
        node.run(args!["put", "-q", node.plain("x"), data.join(OsStr::from_bytes(name))]).ok();
    }
    let mut want: Vec<&[u8]> = odd.to_vec();
    want.sort_unstable();
    let text = node.run(args!["ls", &data]).ok();
    let shell = |text: &str| {
        let out = std::process::Command::new("bash").args(["-c", "printf %b \"$1\"", "-", text]).output().unwrap();
        out.stdout
    };
    assert!(!text.contains('\x1b'));
    assert_eq!(text.lines().map(shell).collect::<Vec<_>>(), want);
    let json = node.run(args!["ls", "--json", &data]).json();
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries.iter().map(|e| shell(e["name"].as_str().unwrap())).collect::<Vec<_>>(), want);
    for (entry, name) in entries.iter().zip(want) {
        let path = OsString::from_vec(shell(entry["path"].as_str().unwrap()));
        assert_eq!(path, data.join(OsStr::from_bytes(name)));
        assert_eq!(node.run(args!["cat", path]).ok(), "12345");
    }
    let error = node.run(args!["cat", data.join("gone\n\x1b[2J")]).fails(3);
    assert!(error.lines().count() == 1 && !error.contains('\x1b'), "{error}");
}

#[test]
fn a_reader_that_stops_is_no_failure() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("large"), vec![b'x'; 40 << 20]).unwrap();
    node.run(args!["put", "-q", node.plain("large"), &data]).ok();
    let mut cat = node.command();
    let cat = cat.arg("cat").arg(data.join("large")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    let mut first = [0];
    cat.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let out = cat.wait_with_output().unwrap();
    assert_eq!((out.status.code(), out.stderr), (Some(0), Vec::new()));
    let shell = format!("{} ls {} | :", env!("CARGO_BIN_EXE_gpuvol"), data.display());
    let out = std::process::Command::new("bash").args(["-o", "pipefail", "-c", &shell]).output().unwrap();
    assert_eq!((out.status.code(), out.stderr), (Some(0), Vec::new()));
}

#[test]
fn exit_codes_tell_failures_apart() {
    let mut node = Node::start();
    let data = node.volume("data", 4 * MIB);
    let read_only = node.publish("data", "ro", true);
    fs::write(node.plain("large"), vec![0; 5 << 20]).unwrap();
    fs::write(node.plain("x"), b"x").unwrap();
    node.run(["no-such-command"]).fails(2);
    node.run(args!["put", "--device", "GPU-7", node.plain("x"), &data]).fails(2);
    node.run(args!["cat", data.join("none")]).fails(3);
    node.run(args!["cat", node.plain("none")]).fails(3);
    let full = node.run(args!["put", node.plain("large"), &data]).fails(4);
    assert!(full.contains("data") && full.contains("MiB"), "{full}");
    node.run(args!["put", node.plain("x"), &read_only]).fails(1);
    node.run(args!["cat", &data]).fails(1);
    node.run(args!["put", "-", &data]).fails(1);
    let start = Instant::now();
    node.run(args!["wait", "--timeout", "100ms", data.join("none")]).fails(5);
    node.run(args!["cat", "--wait", "100ms", data.join("none")]).fails(5);
    node.run(args!["get", "--wait", "100ms", data.join("none"), "-"]).fails(5);
    assert!(start.elapsed() < Duration::from_secs(10));
    node.kill_store();
    fs::remove_file(data.join(".gpuvol.sock")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(data.join(".gpuvol.sock")).unwrap());
    node.run(args!["ls", &data]).fails(6);
    node.run(args!["doctor", &data]).fails_quietly();
}

impl node::Ran {
    #[track_caller]
    fn fails_quietly(self) {
        assert_eq!(self.0.status.code(), Some(1), "{}", self.err());
        assert_eq!(self.err(), "");
    }
}

#[test]
fn waits_end_when_the_producer_is_done() {
    let node = Node::start();
    let data = node.volume("data", 64 * MIB);
    fs::write(node.plain("x"), b"x").unwrap();
    let late = data.join("late");
    let waits: Vec<_> = [args!["wait", "--json", "--timeout", "20s", &late], args!["cat", "--wait", "20s", &late]]
        .into_iter()
        .map(|arguments| node.command().args(arguments).stdout(Stdio::piped()).spawn().unwrap())
        .collect();
    std::thread::sleep(Duration::from_millis(300));
    node.run(args!["put", "-q", node.plain("x"), &late]).ok();
    let mut out = waits.into_iter().map(|wait| wait.wait_with_output().unwrap());
    let waited: serde_json::Value = serde_json::from_slice(&out.next().unwrap().stdout).unwrap();
    assert_eq!(waited["entries"][0]["size"], 1);
    assert_eq!(out.next().unwrap().stdout, b"x");
    node.run(args!["wait", &data]).fails(1);
    node.run(args!["wait", node.plain("x")]).ok();
}

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
    node.admin(AdminOp::Unpublish(Unpublish { publish: "idle".into() }), &[]);
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
fn gpu_objects_are_put_copied_and_read() {
    let node = Node::with_fake_gpu();
    node.create("gpu", 512 * MIB, Tier::Gpu);
    let data = node.publish("gpu", "gpu", false);
    let (arrow, npy, raw) = (node.plain("table"), node.plain("tensor"), node.plain("raw"));
    let (table, tensor) = (arrow_file(&arrow), npy_file(&npy, 1_000_000));
    let bytes: Vec<u8> = (0..37 * MIB + 5).map(|n| (n % 253) as u8).collect();
    fs::write(&raw, &bytes).unwrap();
    for (src, kind) in [(&arrow, "arrow"), (&npy, "tensor"), (&raw, "bytes")] {
        let put = node.run(args!["put", "--json", "--device", "auto", src, data.join(kind)]).json();
        assert_eq!((put["kind"].as_str(), put["way"].as_str()), (Some(kind), Some("upload")), "{put}");
        node.run(args!["cp", data.join(kind), data.join(format!("{kind}-copy"))]).ok();
        let copy = &node.run(args!["stat", "--json", data.join(format!("{kind}-copy"))]).json()["entries"][0];
        assert_eq!((copy["kind"].as_str(), copy["tier"].as_str()), (Some(kind), Some("gpu")), "{copy}");
        assert!(copy["device"].as_str().unwrap().starts_with("GPU-"));
    }
    assert_eq!(rows(&node.run(args!["cat", data.join("arrow-copy")]).0.stdout), rows(&table));
    assert_eq!(node.run(args!["cat", data.join("tensor-copy")]).0.stdout, tensor);
    assert!(node.run(args!["cat", data.join("bytes-copy")]).0.stdout == bytes);
    node.run(args!["wait", data.join("bytes")]).ok();
    let df = &node.run(args!["df", "--json", &data]).json()["volumes"][0];
    assert!(df["gpu"].as_u64().unwrap() >= 2 * 37 * MIB && df["device"].is_string(), "{df}");
    let report = node.run(args!["doctor", "--json", "--state", node.state(), &data]);
    let report: serde_json::Value = serde_json::from_slice(&report.0.stdout).unwrap();
    let gpu = report["checks"].as_array().unwrap().iter().find(|c| c["area"] == "volume" && c["check"] == "gpu");
    assert_eq!(gpu.unwrap()["level"], "OK");
}

#[test]
fn dev_and_demo_are_another_program() {
    let node = Node::start();
    let bin = node.state().join("bin");
    fs::create_dir(&bin).unwrap();
    // Where the tests run, the real one may lie beside the command: a copy of the command has nothing beside it.
    fs::copy(env!("CARGO_BIN_EXE_gpuvol"), bin.join("gpuvol")).unwrap();
    let run = |arguments: &[&str], path: &Path| {
        std::process::Command::new(bin.join("gpuvol")).args(arguments).env("PATH", path).output().unwrap()
    };
    let none = run(&["dev", "up"], Path::new("/nonexistent"));
    let error = String::from_utf8(none.stderr).unwrap();
    assert_eq!(none.status.code(), Some(1));
    assert!(error.contains(bin.join("gpuvol-dev").to_str().unwrap()) && error.contains("/nonexistent"), "{error}");
    let elsewhere = node.state().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    for (directory, says) in [(&elsewhere, "in PATH"), (&bin, "beside")] {
        let program = directory.join("gpuvol-dev");
        fs::write(&program, format!("#!/bin/sh\necho {says} \"$@\"\nexit 7\n")).unwrap();
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let out = run(&["demo", "--help", "-x"], &elsewhere);
        assert_eq!(
            (out.status.code(), String::from_utf8(out.stdout).unwrap()),
            (Some(7), format!("{says} demo --help -x\n"))
        );
    }
}
