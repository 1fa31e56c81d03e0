//! Content: put, get, cat and cp of what objects hold.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use arrow_array::{Float64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use gpuvol_protocol::message::Tier;

use crate::node::{MIB, Node, args};

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
fn bytes_go_into_gpu_memory_and_out() {
    let node = Node::with_fake_gpu();
    node.create("gpu", 256 * MIB, Tier::Gpu);
    let data = node.publish("gpu", "gpu", false);
    let src = node.plain("raw");
    let bytes: Vec<u8> = (0..37 * MIB + 5).map(|n| (n % 253) as u8).collect();
    fs::write(&src, &bytes).unwrap();
    let put = node.run(args!["put", "--json", "--device", "auto", &src, &data]).json();
    assert_eq!((put["kind"].as_str(), put["way"].as_str()), (Some("bytes"), Some("upload")), "{put}");
    node.run(args!["cp", data.join("raw"), data.join("copy")]).ok();
    assert!(node.run(args!["cat", data.join("copy")]).0.stdout == bytes);
    let df = &node.run(args!["df", "--json", &data]).json()["volumes"][0];
    assert!(df["gpu"].as_u64().unwrap() >= 2 * 37 * MIB, "{df}");
    let gpu = df["device"].as_str().unwrap();
    // The volume has its GPU now: named, and still the one that auto finds.
    node.run(args!["put", "-q", "--device", gpu, &src, data.join("named")]).ok();
    // Where the GPU is not to be seen, names still are.
    let blind = |arguments: Vec<std::ffi::OsString>| {
        crate::node::Ran(node.command().env("GPUVOL_LIBCUDA", "/nonexistent").args(arguments).output().unwrap())
    };
    blind(args!["wait", data.join("raw")]).ok();
    let stat = &blind(args!["stat", "--json", data.join("raw")]).json()["entries"][0];
    assert_eq!((stat["tier"].as_str(), stat["device"].as_str()), (Some("gpu"), Some(gpu)));
    // And the content is a copy on the host.
    assert!(blind(args!["cat", data.join("raw")]).0.stdout == bytes);
    let report = blind(args!["doctor", &data]).ok();
    assert!(report.contains(&format!("volume gpu is on {gpu}, which this process does not see")), "{report}");
}

#[test]
fn tables_and_tensors_stay_in_gpu_memory() {
    let node = Node::with_fake_gpu();
    node.create("gpu", 256 * MIB, Tier::Gpu);
    let data = node.publish("gpu", "gpu", false);
    let (arrow, npy) = (node.plain("table"), node.plain("tensor"));
    let (table, tensor) = (arrow_file(&arrow), npy_file(&npy, 1_000_000));
    for (src, kind) in [(&npy, "tensor"), (&arrow, "arrow")] {
        let put = node.run(args!["put", "--json", "--device", "auto", src, data.join(kind)]).json();
        assert_eq!((put["kind"].as_str(), put["way"].as_str()), (Some(kind), Some("upload")), "{put}");
        node.run(args!["cp", data.join(kind), data.join(format!("{kind}-copy"))]).ok();
        let copy = &node.run(args!["stat", "--json", data.join(format!("{kind}-copy"))]).json()["entries"][0];
        assert_eq!((copy["kind"].as_str(), copy["tier"].as_str()), (Some(kind), Some("gpu")), "{copy}");
    }
    assert_eq!(rows(&node.run(args!["cat", data.join("arrow-copy")]).0.stdout), rows(&table));
    assert_eq!(node.run(args!["cat", data.join("tensor-copy")]).0.stdout, tensor);
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
