//! What must hold on a real GPU. Builds nothing; prints a line per case and one JSON document of figures at the end.
//!
//! `GPUVOL_BIN` names the directory of the binaries. The GPU must be free of other large allocations.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use gpuvol_client::layout::DeviceBuffer;
use gpuvol_client::{Code, Error, OpenOptions, OpenWay, PutOptions, PutWay};
use gpuvol_memory::{CudaMemory, Mapping as _};
use gpuvol_process_tests::child::TestClient;
use gpuvol_process_tests::node::{path, wait_for};
use gpuvol_process_tests::{TestNode, TestVolume};
use serde_json::{Value, json};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

struct Suite {
    figures: serde_json::Map<String, Value>,
    passed: u32,
    failed: u32,
}

impl Suite {
    fn case(&mut self, name: &str, body: impl FnOnce() -> Value) {
        let start = Instant::now();
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(figures) => {
                println!("ok    {name} ({:.1} s) {figures}", start.elapsed().as_secs_f64());
                self.figures.insert(name.to_owned(), figures);
                self.passed += 1;
            }
            Err(_) => {
                println!("FAILED {name}");
                self.failed += 1;
            }
        }
    }
}

fn main() -> ExitCode {
    let size = std::env::var("GPUVOL_GPU_SIZE").ok().and_then(|s| s.parse().ok()).unwrap_or(8 * GIB);
    let mut suite = Suite { figures: serde_json::Map::new(), passed: 0, failed: 0 };
    // Before this process has a context of its own: nobody but the store is there.
    suite.case("an idle store uses no GPU memory", idle_store);
    suite.case("put, kill, open elsewhere", || large_object(size));
    suite.case("steps of a put", || steps(size));
    suite.case("opening does not depend on size", open_sizes);
    suite.case("the last lease gives the memory back", || freeing(size));
    suite.case("tables go up, across and down", tables);
    suite.case("a reader without the GPU is told so", no_gpu_visible);
    suite.case("a full GPU and a full volume are told apart", full);
    suite.case("the GPU of a volume is kept", wrong_device);
    println!("{}", Value::Object(suite.figures));
    println!("{} passed, {} failed", suite.passed, suite.failed);
    if suite.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn node() -> TestNode {
    TestNode::start()
}

/// Bytes of GPU memory in use, by NVML: no context needed to ask.
fn gpu_used() -> u64 {
    let out =
        Command::new("nvidia-smi").args(["--query-gpu=memory.used", "--format=csv,noheader,nounits"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().lines().next().unwrap().trim().parse::<u64>().unwrap() * MIB
}

fn compute_processes() -> usize {
    let out = Command::new("nvidia-smi").args(["--query-compute-apps=pid", "--format=csv,noheader"]).output().unwrap();
    String::from_utf8(out.stdout).unwrap().lines().filter(|l| l.trim().parse::<u32>().is_ok()).count()
}

fn idle_store() -> Value {
    let before = gpu_used();
    let node = node();
    let _volume = node.gpu_volume("idle", GIB);
    std::thread::sleep(Duration::from_millis(500));
    let with = gpu_used();
    assert!(with.abs_diff(before) < MIB, "{before} bytes before the store, {with} with it");
    let status = node.status();
    assert!(!status.devices.is_empty(), "{}", status.no_inventory);
    json!({"gpu": status.devices[0].name, "total_bytes": status.devices[0].total, "used_before": before, "used_with": with})
}

/// The headline: put by a process that is killed, opened by others in namespaces of their own and as another user,
/// also after the store was killed, with no CUDA process alive in between.
fn large_object(size: u64) -> Value {
    let mut node = node();
    let volume = node.gpu_volume("large", size * 9);
    let size_text = size.to_string();
    let mut producer = TestClient::start(&volume.mount, &["gpu-put", "a", &size_text, "5"]);
    let put = producer.said();
    assert_eq!(put["way"], "device copy");
    producer.kill();
    wait_for("the end of every CUDA process", || compute_processes() == 0);
    let mut opens = Vec::new();
    let namespaces: &[&str] =
        &["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--ipc", "--net", "--uts"];
    let other_user: &[&str] = &["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let wrappers = [
        ("plain", vec![]),
        ("namespaces", namespaces.to_vec()),
        ("namespaces, uid 65534", [namespaces, other_user].concat()),
    ];
    for killed in [false, true] {
        if killed {
            node.kill_store();
            wait_for("the end of every CUDA process", || compute_processes() == 0);
            std::thread::sleep(Duration::from_secs(1));
            node.start_store();
        }
        for (name, wrapper) in &wrappers {
            let mut reader = match wrapper.as_slice() {
                [] => TestClient::start(&volume.mount, &["gpu-open", "a"]),
                wrapper => TestClient::under(wrapper, &volume.mount, &["gpu-open", "a"]),
            };
            let open = reader.said();
            assert_eq!((&open["crc"], &open["size"]), (&put["crc"], &json!(size)), "{name}, store killed: {killed}");
            assert_eq!(open["way"], "imported");
            opens.push(json!({"who": name, "store_killed": killed, "uid": open["uid"], "pid": open["pid"], "first_open_ms": open["first_open_ms"], "open_ms": open["open_ms"]}));
        }
    }
    let worst = opens.iter().map(|o| o["first_open_ms"].as_f64().unwrap()).fold(0.0, f64::max);
    assert!(worst < 3.0, "an open took {worst} ms");
    json!({"bytes": size, "put": put, "opens": opens, "worst_first_open_ms": worst})
}

/// Where the time of a put goes, and what the smallest possible one would take: milliseconds, medians of 15.
fn steps(size: u64) -> Value {
    use gpuvol_memory::cuda::DeviceCopy;
    use gpuvol_memory::{Access, Allocation as _, Memory as _};
    let node = node();
    let client = node.gpu_volume("steps", GIB).connect();
    let memory = CudaMemory::open_ordinal(0).unwrap();
    let source = memory.create(size).unwrap().map(Access::ReadWrite).unwrap();
    let copy = [DeviceCopy { source: source.address(), offset: 0, len: size }];
    let names = [
        "create",
        "map",
        "copy",
        "copy again",
        "enqueue",
        "export meanwhile",
        "rest of the copy",
        "unmap",
        "release, a descriptor is left",
        "free",
        "round trip",
    ];
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); names.len()];
    for _ in 0..15 {
        let mut at = 0;
        let mut start = Instant::now();
        let mut lap = || {
            times[at].push(start.elapsed().as_secs_f64() * 1e3);
            at += 1;
            start = Instant::now();
        };
        let allocation = memory.create(size).unwrap();
        lap();
        let mut target = allocation.map(Access::ReadWrite).unwrap();
        lap();
        target.copy_device_batch(&copy, None).unwrap();
        lap();
        target.copy_device_batch(&copy, None).unwrap();
        lap();
        target.copy_from_device(0, source.address(), size, None).unwrap();
        lap();
        let fd = allocation.export().unwrap();
        lap();
        target.synchronize(None).unwrap();
        lap();
        drop(target);
        lap();
        drop(allocation);
        lap();
        drop(fd);
        lap();
        client.usage().unwrap();
        lap();
    }
    let median = |mut times: Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    };
    Value::Object(
        names.iter().map(std::string::ToString::to_string).zip(times.into_iter().map(|t| json!(median(t)))).collect(),
    )
}

fn open_sizes() -> Value {
    let node = node();
    let volume = node.gpu_volume("sizes", 40 * GIB);
    let mut figures = serde_json::Map::new();
    for size in [2 * MIB, 256 * MIB, 4 * GIB] {
        let name = format!("o{size}");
        let mut producer = TestClient::start(&volume.mount, &["gpu-put", &name, &size.to_string(), "1"]);
        let put = producer.said();
        let mut reader = TestClient::start(&volume.mount, &["gpu-open", &name]);
        let open = reader.said();
        assert_eq!(open["crc"], put["crc"]);
        figures.insert(
            size.to_string(),
            json!({"put_ms": put["put_ms"], "copy_ms": put["copy_ms"], "open_ms": open["open_ms"]}),
        );
    }
    Value::Object(figures)
}

fn freeing(size: u64) -> Value {
    let node = node();
    let volume = node.gpu_volume("free", size * 9);
    let memory = CudaMemory::open_ordinal(0).unwrap();
    let free = || memory.memory_info().unwrap().free;
    let before = free();
    let mut producer = TestClient::start(&volume.mount, &["gpu-put", "a", &size.to_string(), "1"]);
    producer.said();
    producer.kill();
    let client = volume.connect();
    let object = client.open(&path("a"), &OpenOptions::default()).unwrap();
    let tensor = object.device_tensor().unwrap();
    client.unlink(&path("a")).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let held = free();
    assert!(held + size <= before + 64 * MIB, "memory was freed under an open object");
    let mut head = [0; 16];
    tensor.mapping().copy_out(0, &mut head).unwrap();
    assert!((size..size + MIB).contains(&client.usage().unwrap().pinned));
    drop((object, tensor));
    let start = Instant::now();
    while free() + 64 * MIB < before && start.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1));
    }
    let after = free();
    assert!(after + 64 * MIB >= before, "{before} free before, {after} after");
    assert_eq!(client.usage().unwrap().used, 0);
    json!({"free_before": before, "free_while_held": held, "free_after": after, "until_freed_ms": start.elapsed().as_secs_f64() * 1e3})
}

fn batch(rows: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("x", DataType::Float64, false),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
    ]));
    let n: Int64Array = (0..rows).map(|n| (n % 7 != 0).then_some(n)).collect();
    let x = Float64Array::from_iter_values((0..rows).map(|n| n as f64 / 3.0));
    let s: StringArray = (0..rows).map(|n| (n % 5 != 0).then(|| format!("row {n}"))).collect();
    let b: BooleanArray = (0..rows).map(|n| (n % 3 != 0).then_some(n % 2 == 0)).collect();
    RecordBatch::try_new(schema, vec![Arc::new(n), Arc::new(x), Arc::new(s), Arc::new(b)]).unwrap()
}

/// Host table up, the device table put again from its device columns, and down: equal each time.
fn tables() -> Value {
    let node = node();
    let volume = node.gpu_volume("tables", 8 * GIB).connect();
    let uuid = CudaMemory::open_ordinal(0).unwrap().uuid();
    let batch = batch(4_000_000);
    let upload = PutOptions { upload: Some(uuid), ..PutOptions::default() };
    let timed = |body: &mut dyn FnMut()| {
        let start = Instant::now();
        body();
        start.elapsed().as_secs_f64() * 1e3
    };
    let up = timed(&mut || {
        let put = volume.put_batches(&path("up"), &batch.schema(), std::slice::from_ref(&batch), &upload).unwrap();
        assert_eq!(put.way, PutWay::Upload);
    });
    let object = volume.open(&path("up"), &OpenOptions::default()).unwrap();
    assert_eq!((object.way(), object.device()), (OpenWay::Imported, Some(uuid)));
    let view = object.device_table(None).unwrap();
    let inside = |buffer: &DeviceBuffer| {
        let base = view.mapping().address();
        (base..base + view.mapping().size()).contains(&buffer.address)
    };
    for column in &view.batches[0].columns {
        assert!(column.buffers.iter().flatten().all(inside), "a column was copied");
    }
    let across = timed(&mut || {
        let put = volume.put_device_table(&path("across"), &view, uuid, &PutOptions::default()).unwrap();
        assert_eq!(put.way, PutWay::DeviceCopy);
    });
    volume.unlink(&path("up")).unwrap();
    let copy = volume.open(&path("across"), &OpenOptions::default()).unwrap();
    let mut table = None;
    let down = timed(&mut || table = Some(copy.table().unwrap()));
    assert_eq!(table.unwrap().batch(0).unwrap(), batch);
    let projected = copy.device_table(Some(&["s"])).unwrap();
    assert_eq!(projected.schema.fields().len(), 1);
    json!({"bytes": copy.size(), "upload_ms": up, "device_copy_ms": across, "download_ms": down})
}

fn no_gpu_visible() -> Value {
    let node = node();
    let published = node.gpu_volume("blind", GIB);
    let uuid = CudaMemory::open_ordinal(0).unwrap().uuid();
    let upload = PutOptions { upload: Some(uuid), ..PutOptions::default() };
    published.connect().put_bytes(&path("a"), &[1; 1000], &upload).unwrap();
    let open = |arguments: &[&str]| {
        Command::new(gpuvol_process_tests::binary("gpuvol-test-client", "gpuvol-process-tests"))
            .arg(&published.mount)
            .args(arguments)
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap()
    };
    let out = open(&["open", "--in-place", "a"]);
    let error = String::from_utf8_lossy(&out.stderr).into_owned();
    let name = gpuvol_client::DeviceUuid(uuid).to_string();
    assert!(!out.status.success() && error.contains(&name) && error.contains("no GPU"), "{error}");
    let out = open(&["open", "a"]);
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((said["way"].as_str(), said["size"].as_u64()), (Some("copied"), Some(1000)));
    json!({"copied_s": said["seconds"]})
}

fn full() -> Value {
    let node = node();
    let volume: TestVolume = node.gpu_volume("full", 4 * GIB);
    let client = volume.connect();
    let memory = CudaMemory::open_ordinal(0).unwrap();
    let upload = PutOptions { upload: Some(memory.uuid()), ..PutOptions::default() };
    let Err(Error::Refused(fault)) = client.put_bytes(&path("a"), &vec![0; 5 << 30], &upload) else {
        panic!("5 GiB went in")
    };
    assert_eq!((fault.code(), fault.limit), (Code::QuotaExceeded, 4 * GIB));
    // Somebody outside takes all but a little.
    let free = memory.memory_info().unwrap().free;
    let hog = gpuvol_memory::Memory::create(&memory, free - 512 * MIB).unwrap();
    let error = client.put_bytes(&path("a"), &vec![0; 2 << 30], &upload).unwrap_err();
    assert!(matches!(error, Error::DeviceFull { need, .. } if need == 2 * GIB), "{error}");
    drop(hog);
    assert_eq!(client.usage().unwrap().used, 0, "the failed put's quota came back");
    client.put_bytes(&path("a"), &vec![7; 2 << 30], &upload).unwrap();
    json!({"message": error.to_string()})
}

fn wrong_device() -> Value {
    let node = node();
    let client = node.gpu_volume("bound", GIB).connect();
    let other = PutOptions { upload: Some([9; 16]), ..PutOptions::default() };
    let error = client.put_bytes(&path("a"), &[1; 1000], &other).unwrap_err();
    assert!(matches!(error, Error::DeviceNotVisible { .. }), "{error}");
    let host = node.volume("host", GIB).connect();
    let uuid = CudaMemory::open_ordinal(0).unwrap().uuid();
    let upload = PutOptions { upload: Some(uuid), ..PutOptions::default() };
    let error = host.put_bytes(&path("a"), &[1; 1000], &upload).unwrap_err();
    assert_eq!(error.code(), Code::Unsupported);
    json!({"message": error.to_string()})
}
