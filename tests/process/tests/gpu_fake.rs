//! Device memory on the fake CUDA driver: every path that a real GPU takes, and the faults that one seldom shows.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests fail by panicking")]

use std::process::Command;
use std::sync::{Arc, Once};

use arrow_array::{BooleanArray, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use gpuvol_client::layout::{DeviceBuffer, Dtype, TensorMeta};
use gpuvol_client::{Code, DeviceUuid, Error, OpenOptions, OpenWay, PutOptions, PutWay};
use gpuvol_memory::{Access, Allocation as _, CudaMemory, Mapping as _, Memory as _};
use gpuvol_process_tests::node::path;
use gpuvol_process_tests::{TestNode, TestVolume, binary, pattern};

const MIB: u64 = 1 << 20;

fn fake() -> String {
    binary("libgpuvol_fake_cuda.so", "gpuvol-fake-cuda").to_str().unwrap().to_owned()
}

/// A node with one fake GPU, and this process on the fake driver.
fn node() -> TestNode {
    static DRIVER: Once = Once::new();
    DRIVER.call_once(|| gpuvol_memory::cuda::use_library(fake()).unwrap());
    TestNode::with_fake_gpu(&[])
}

fn gpu() -> CudaMemory {
    CudaMemory::open_ordinal(0).unwrap()
}

fn upload() -> PutOptions {
    PutOptions { upload: Some(gpu().uuid()), ..PutOptions::default() }
}

fn batch(rows: i64) -> RecordBatch {
    let schema = Arc::new(Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("b", DataType::Boolean, true),
    ]));
    let n: Int64Array = (0..rows).map(|n| (n % 7 != 0).then_some(n)).collect();
    let s: StringArray = (0..rows).map(|n| (n % 5 != 0).then(|| format!("row {n}"))).collect();
    let b: BooleanArray = (0..rows).map(|n| (n % 3 != 0).then_some(n % 2 == 0)).collect();
    RecordBatch::try_new(schema, vec![Arc::new(n), Arc::new(s), Arc::new(b)]).unwrap()
}

/// The test client in a process with an environment of its own.
fn client(volume: &TestVolume, env: &[(&str, &str)], arguments: &[&str]) -> Result<serde_json::Value, String> {
    let out = Command::new(binary("gpuvol-test-client", "gpuvol-process-tests"))
        .arg(&volume.mount)
        .args(arguments)
        .env("GPUVOL_LIBCUDA", fake())
        .envs(env.iter().copied())
        .output()
        .unwrap();
    match out.status.success() {
        true => Ok(serde_json::from_slice(&out.stdout).unwrap()),
        false => Err(String::from_utf8_lossy(&out.stderr).into_owned()),
    }
}

#[test]
fn tables_go_up_across_and_down() {
    let node = node();
    let volume = node.gpu_volume("v", 256 * MIB).connect();
    let batch = batch(100_000);
    let put = volume.put_batches(&path("up"), &batch.schema(), std::slice::from_ref(&batch), &upload()).unwrap();
    assert_eq!(put.way, PutWay::Upload);
    let object = volume.open(&path("up"), &OpenOptions::default()).unwrap();
    assert_eq!((object.way(), object.device(), object.on_host()), (OpenWay::Imported, Some(gpu().uuid()), false));
    let view = object.device_table(None).unwrap();
    let base = view.mapping().address();
    let inside = |b: &DeviceBuffer| (base..base + view.mapping().size()).contains(&b.address);
    assert!(view.batches[0].columns.iter().all(|c| c.buffers.iter().flatten().all(inside)), "a column was copied");
    let put = volume.put_device_table(&path("across"), &view, gpu().uuid(), &PutOptions::default()).unwrap();
    assert_eq!(put.way, PutWay::DeviceCopy);
    drop((view, object));
    volume.unlink(&path("up")).unwrap();
    let copy = volume.open(&path("across"), &OpenOptions::default()).unwrap();
    assert_eq!(copy.table().unwrap().batch(0).unwrap(), batch);
    let projected = copy.device_table(Some(&["b", "n"])).unwrap();
    assert_eq!(projected.schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>(), ["b", "n"]);
    // What is on the GPU counts there, and the metadata is all that does not.
    let usage = volume.usage().unwrap();
    assert!(usage.gpu >= 2 * MIB && usage.used - usage.gpu < 4096, "{usage:?}");
    volume.unlink(&path("across")).unwrap();
    drop((projected, copy));
    assert_eq!(volume.usage().unwrap().used, 0);
}

#[test]
fn a_table_of_nothing_takes_no_gpu_memory() {
    let node = node();
    let volume = node.gpu_volume("v", 64 * MIB).connect();
    let batch = batch(0);
    volume.put_batches(&path("e"), &batch.schema(), &[], &upload()).unwrap();
    assert_eq!(volume.open(&path("e"), &OpenOptions::default()).unwrap().table().unwrap().num_rows(), 0);
    assert_eq!(volume.usage().unwrap().gpu, 0);
}

#[test]
fn metadata_too_large_for_a_message_goes_into_memory() {
    let node = node();
    let volume = node.gpu_volume("v", 256 * MIB).connect();
    let fields: Vec<Field> = (0..5000).map(|n| Field::new(format!("column {n}"), DataType::Int64, true)).collect();
    let column: Arc<Int64Array> = Arc::new((0..3).map(|n| (n != 1).then_some(n)).collect());
    let columns = (0..5000).map(|_| column.clone() as _).collect();
    let wide = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
    volume.put_batches(&path("w"), &wide.schema(), std::slice::from_ref(&wide), &upload()).unwrap();
    let object = volume.open(&path("w"), &OpenOptions::default()).unwrap();
    assert_eq!(object.device_table(None).unwrap().batches[0].columns.len(), 5000);
    assert_eq!(object.table().unwrap().batch(0).unwrap(), wide);
}

#[test]
fn a_device_tensor_outlives_its_producer() {
    let node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let put = client(&published, &[], &["gpu-put", "t", "5000000", "3"]).unwrap();
    assert_eq!(put["way"], "device copy");
    let open = client(&published, &[], &["gpu-open", "t"]).unwrap();
    assert_eq!((&open["crc"], &open["way"]), (&put["crc"], &"imported".into()));
}

#[test]
fn a_gpu_that_the_reader_does_not_see_is_named() {
    let node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let volume = published.connect();
    volume.put_bytes(&path("a"), &pattern(1000, 1), &upload()).unwrap();
    let other = DeviceUuid([9; 16]).to_string();
    let in_place = ["open", "--in-place", "a"];
    let error = client(&published, &[("GPUVOL_FAKE_CUDA_DEVICES", &other)], &in_place).unwrap_err();
    let own = DeviceUuid(gpu().uuid()).to_string();
    assert!(error.contains(&own) && error.contains(&other), "both are named: {error}");
    let error = client(&published, &[("GPUVOL_LIBCUDA", "/nowhere/libcuda.so")], &in_place).unwrap_err();
    assert!(error.contains(&own) && error.contains("/nowhere/libcuda.so"), "{error}");
}

#[test]
fn who_does_not_see_the_gpu_reads_a_copy_on_the_host() {
    let node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let volume = published.connect();
    let bytes = pattern(3 * MIB + 5, 1);
    volume.put_bytes(&path("a"), &bytes, &upload()).unwrap();
    let other = DeviceUuid([9; 16]).to_string();
    let said = client(&published, &[("GPUVOL_FAKE_CUDA_DEVICES", &other)], &["open", "a"]).unwrap();
    assert_eq!((said["way"].as_str(), said["size"].as_u64()), (Some("copied"), Some(3 * MIB + 5)));
    let host = OpenOptions { host: true, ..OpenOptions::default() };
    let copy = volume.open(&path("a"), &host).unwrap();
    assert_eq!((copy.way(), copy.on_host()), (OpenWay::Copied, true));
    assert!(copy.bytes().unwrap() == bytes);
    // The volume's quota does not pay for it, and it stays readable when the object is gone.
    assert_eq!(volume.usage().unwrap().used, 4 * MIB);
    volume.unlink(&path("a")).unwrap();
    assert!(copy.bytes().unwrap() == bytes);
}

#[test]
fn a_mount_reads_and_rewrites_what_is_on_the_gpu() {
    let node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let volume = published.connect();
    let bytes = pattern(3 * MIB + 5, 1);
    volume.put_bytes(&path("a"), &bytes, &upload()).unwrap();
    let mount = node.mount("v", "pod", false);
    assert!(mount.read("a").unwrap() == bytes);
    let (draft, handle) = mount.open_to_write("a", false).unwrap();
    mount.write(draft.id, 0, b"x").unwrap();
    mount.release(handle, false);
    let mut changed = bytes.clone();
    changed[0] = b'x';
    assert!(volume.open(&path("a"), &OpenOptions::default()).unwrap().bytes().unwrap() == changed);
}

#[test]
fn a_volume_lives_on_one_gpu() {
    let first = DeviceUuid([1; 16]).to_string();
    let second = DeviceUuid([2; 16]).to_string();
    let both = format!("{first},{second}");
    let node = TestNode::with_fake_gpu(&[("GPUVOL_FAKE_CUDA_DEVICES", &both)]);
    assert_eq!(node.status().devices.len(), 2);
    let published = node.gpu_volume("v", 64 * MIB);
    client(&published, &[("GPUVOL_FAKE_CUDA_DEVICES", &second)], &["gpu-put", "a", "1000", "1"]).unwrap();
    let error =
        client(&published, &[("GPUVOL_FAKE_CUDA_DEVICES", &first)], &["gpu-put", "b", "1000", "1"]).unwrap_err();
    assert!(error.contains(&first) && error.contains(&second), "both are named: {error}");
    let unknown = DeviceUuid([7; 16]).to_string();
    let error =
        client(&published, &[("GPUVOL_FAKE_CUDA_DEVICES", &unknown)], &["gpu-put", "c", "1000", "1"]).unwrap_err();
    assert!(error.contains(&unknown) && error.contains("no GPU"), "{error}");
    assert_eq!(published.connect().device(), Some([2; 16]));
}

#[test]
fn faults_of_the_gpu_are_errors_and_leave_nothing() {
    let node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let faults = |faults: &str, arguments: &[&str]| {
        client(&published, &[("GPUVOL_FAKE_CUDA_FAULTS", faults)], arguments).unwrap_err()
    };
    // The test client makes six pieces of device memory of its own before its first put, which tries again a few times.
    let error = faults(
        "create:oom@7,create:oom@8,create:oom@9,create:oom@10,create:oom@11,create:oom@12",
        &["gpu-put", "a", "1000000", "1"],
    );
    assert!(error.contains("has no 1000000 bytes left"), "{error}");
    for fault in ["export:refused", "map:refused@7"] {
        faults(fault, &["gpu-put", "a", "1000000", "1"]);
    }
    client(&published, &[], &["gpu-put", "a", "1000000", "1"]).unwrap();
    let error = faults("import:refused", &["gpu-open", "a"]);
    assert!(error.contains("a: ") && error.contains("cuMemImportFromShareableHandle"), "{error}");
    let error = faults("memcpy:illegal_address", &["gpu-open", "a"]);
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
    // A client whose context is lost takes nobody with it.
    client(&published, &[], &["gpu-open", "a"]).unwrap();
    node.wait_status("the end of the leases", |s| s.leases == 0);
    let volume = published.connect();
    volume.unlink(&path("a")).unwrap();
    let usage = volume.usage().unwrap();
    assert_eq!((usage.used, usage.reserved), (0, 0));
}

#[test]
fn a_store_that_is_replaced_still_has_the_device_memory() {
    let mut node = node();
    let published = node.gpu_volume("v", 64 * MIB);
    let memory = gpu();
    let mut source = memory.create(5 * MIB).unwrap().map(Access::ReadWrite).unwrap();
    let data = pattern(5 * MIB, 4);
    source.copy_in(0, &data).unwrap();
    let buffer = DeviceBuffer { address: source.address(), len: 5 * MIB };
    let meta = TensorMeta::new(Dtype::F32, vec![5, 1 << 18]);
    let volume = published.connect();
    volume.put_device_tensor(&path("t"), &meta, buffer, memory.uuid(), &PutOptions::default()).unwrap();
    node.kill_store();
    node.start_store();
    let (read, bytes) = volume.open(&path("t"), &OpenOptions::default()).unwrap().tensor().unwrap();
    assert_eq!(read, meta);
    assert!(bytes == data);
}

#[test]
fn a_host_volume_takes_no_gpu_memory_and_a_full_gpu_no_volume() {
    let node = node();
    let host = node.volume("host", 64 * MIB).connect();
    let error = host.put_bytes(&path("a"), &pattern(1000, 1), &upload()).unwrap_err();
    assert!(error.code() == Code::Unsupported && error.to_string().contains("tier host"), "{error}");
    let free = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(free.path(), (3u64 << 30).to_string()).unwrap();
    let small = TestNode::with_fake_gpu(&[("GPUVOL_FAKE_NVML_FREE", free.path().to_str().unwrap())]);
    let spec = |id: &str, capacity| gpuvol_protocol::admin::VolumeSpec {
        id: id.into(),
        name: id.into(),
        capacity,
        tier: gpuvol_client::Tier::Gpu.into(),
        ..Default::default()
    };
    // 3 GiB are free, one context's worth is kept back.
    let fault = small.create_volume(spec("large", 3 << 30)).unwrap_err();
    assert_eq!((fault.code(), fault.free), (Code::OutOfMemory, 2 << 30));
    small.create_volume(spec("fits", 2 << 30)).unwrap();
    assert_eq!(small.create_volume(spec("more", 1)).unwrap_err().code(), Code::OutOfMemory);
    let bare = TestNode::start();
    let fault = bare.create_volume(spec("none", 1)).unwrap_err();
    assert!(fault.code() == Code::OutOfMemory && fault.message.contains("no GPU"), "{fault}");
}

#[test]
fn a_put_that_finds_the_volume_full_makes_no_memory() {
    let node = node();
    let volume = node.gpu_volume("v", 4 * MIB).connect();
    let Err(Error::Refused(fault)) = volume.put_bytes(&path("a"), &pattern(5 * MIB, 1), &upload()) else { panic!() };
    assert_eq!((fault.code(), fault.need, fault.limit), (Code::QuotaExceeded, 6 * MIB, 4 * MIB));
    volume.put_bytes(&path("a"), &pattern(4 * MIB, 1), &upload()).unwrap();
    assert!(volume.open(&path("a"), &OpenOptions::default()).unwrap().bytes().unwrap() == pattern(4 * MIB, 1));
}
