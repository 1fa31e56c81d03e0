//! What cannot be copied is an error at once, and says what and where.

use std::sync::Arc;
use std::time::Duration;

use gpuvol_memory::{Allocation as _, HostMemory, Memory as _};
use gpuvol_protocol::{Code, DeviceUuid};
use gpuvol_store::copier::Copier;

use crate::world::{MIB, Object, PATIENCE, World, assert_fault, gpu_name};

#[test]
fn memory_that_cannot_be_imported_is_named() {
    let world = World::new("export GPUVOL_FAKE_CUDA_FAULTS=import:refused@2");
    let object = Object::on_gpu(5 * MIB);
    object.copy(&world.copier).unwrap();
    let fault = object.copy(&world.copier).unwrap_err();
    let parts = ["t/a in volume v: allocation 40 (6 MiB", &gpu_name(), "cuMemImportFromShareableHandle"];
    assert_fault(&fault, Code::BadMemory, &parts);
    // It was that memory's fault, not the process's.
    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 1);
}

#[test]
fn a_gpu_that_is_not_there_is_named() {
    let other = DeviceUuid([9; 16]).to_string();
    let world = World::new(&format!("export GPUVOL_FAKE_CUDA_DEVICES={other}"));
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::DeviceUnknown, &["t/a in volume v", &gpu_name(), &other]);
    let world = World::new("export GPUVOL_FAKE_CUDA_DEVICES=");
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::DeviceUnknown, &[&gpu_name(), "visible: none"]);
    let world = World::new("export GPUVOL_LIBCUDA=/nowhere/libcuda.so");
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::DeviceUnknown, &[&gpu_name(), "/nowhere/libcuda.so"]);
    assert_eq!(world.starts().len(), 1);
}

#[test]
fn a_full_gpu_has_no_room_for_a_context() {
    let world = World::new("export GPUVOL_FAKE_CUDA_FAULTS=retain:oom@1");
    let object = Object::on_gpu(MIB);
    let fault = object.copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::OutOfMemory, &["cuDevicePrimaryCtxRetain", &gpu_name()]);
    object.copy(&world.copier).unwrap();
}

#[test]
fn host_memory_that_cuda_cannot_get_is_no_fault_of_the_gpu() {
    let world = World::new("export GPUVOL_FAKE_CUDA_FAULTS=register:oom@1");
    let object = Object::on_gpu(MIB);
    let fault = object.copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::OutOfMemory, &["t/a in volume v: the copy failed: cuMemAllocHost"]);
    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 1);
}

#[test]
fn descriptions_that_contradict_themselves_are_refused() {
    let world = World::new("");
    let object = Object::on_gpu(5 * MIB);
    let target = object.target();
    let job = object.job(&target);

    let mut beyond = job.clone();
    beyond.segments[0].offset = MIB + 1;
    let fault = world.copier.copy(&beyond).unwrap_err();
    assert_fault(&fault, Code::InvalidArgument, &["segment 0 (5242880 bytes at 1048577 of allocation 0)"]);
    beyond.segments[0].offset = u64::MAX;
    assert_eq!(world.copier.copy(&beyond).unwrap_err().code(), Code::InvalidArgument);

    let mut unknown = job.clone();
    unknown.segments[0].allocation = 1;
    assert_eq!(world.copier.copy(&unknown).unwrap_err().code(), Code::InvalidArgument);

    let mut fewer = job.clone();
    fewer.fds.clear();
    assert_eq!(world.copier.copy(&fewer).unwrap_err().code(), Code::InvalidArgument);

    let mut nameless = job.clone();
    nameless.allocations[0].device = vec![1, 2];
    assert_eq!(world.copier.copy(&nameless).unwrap_err().code(), Code::InvalidArgument);

    // More than the memory has: the driver refuses to map it.
    let mut lying = job.clone();
    lying.allocations[0].len = 8 * MIB;
    let fault = world.copier.copy(&lying).unwrap_err();
    assert_fault(&fault, Code::BadMemory, &["allocation 40 (8 MiB", "cuMemMap"]);

    let mut small = job.clone();
    small.target = Arc::new(HostMemory.create(100).unwrap().into_fd());
    let fault = world.copier.copy(&small).unwrap_err();
    assert_fault(&fault, Code::BadMemory, &["the memory for the replica", "100 bytes"]);

    small.target = Arc::new(tempfile::tempfile().unwrap().into());
    assert_fault(&world.copier.copy(&small).unwrap_err(), Code::BadMemory, &["memfd"]);

    target.seal().unwrap();
    small.target = Arc::new(target.export().unwrap());
    assert_fault(&world.copier.copy(&small).unwrap_err(), Code::BadMemory, &["sealed against writing"]);

    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 1);
}

#[test]
fn host_memory_that_may_shrink_is_never_a_source() {
    let world = World::new("");
    let mut object = Object::default();
    let memory = object.host(vec![1; 5000]);
    object.segment(memory, 0, 5000);
    let target = object.target();
    let mut job = object.job(&target);
    job.fds[0] = Arc::new(tempfile::tempfile().unwrap().into());
    let fault = world.copier.copy(&job).unwrap_err();
    assert_fault(&fault, Code::BadMemory, &["allocation 40", "the host", "memfd"]);
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let world = World::new("");
    let copier = Copier::new(world.path().join("no-copier"), PATIENCE);
    let fault = Object::on_gpu(1).copy(&copier).unwrap_err();
    assert_fault(&fault, Code::Unavailable, &["cannot be started", "no-copier"]);
    assert!(Copier::installed().unwrap().ends_with("gpuvol-copier"));
}

#[test]
fn a_process_that_says_nothing_is_not_waited_for_forever() {
    let world = World::with("kill -STOP $$", "", Duration::from_millis(300));
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::DeadlineExceeded, &["t/a in volume v", "300ms", "was killed", &gpu_name()]);
    assert_eq!((world.starts().len(), world.copier.process()), (1, None));
}
