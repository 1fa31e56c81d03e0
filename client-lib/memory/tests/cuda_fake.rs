//! Device memory on the fake driver: the common suite, and what faults do.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use gpuvol_memory::conformance::fake;
use gpuvol_memory::conformance::process::{alone, alone_with};
use gpuvol_memory::cuda::sys::Symbols;
use gpuvol_memory::cuda::{Adoption, DeviceCopy, NotAdoptable, Piece, Staging, use_library, visible_devices};
use gpuvol_memory::{Access, Allocation, CudaMemory, DeviceUuid, HostMemory, Mapping, Memory, MemoryError};

mod cuda;

fn open() -> Option<CudaMemory> {
    fake::use_driver();
    Some(CudaMemory::open_ordinal(0).unwrap())
}

gpuvol_memory::memory_conformance!(open());

#[test]
fn device_copies() {
    cuda::device_copies(&open().unwrap());
}

#[test]
fn large_host_copies() {
    cuda::large_host_copies(&open().unwrap());
}

#[test]
fn fills() {
    cuda::fills(&open().unwrap());
}

#[test]
fn own_memory_is_adopted() {
    cuda::own_memory_is_adopted(&open().unwrap());
}

#[test]
fn claims_are_checked() {
    cuda::claims_are_checked(&open().unwrap());
}

/// Handles, reservations, mapped ranges, context retains, page-locked ranges, streams.
fn live() -> [u64; 6] {
    let mut counts = [0; 6];
    let code = function::<extern "C" fn(&mut [u64; 6]) -> u32>("gpuvol_fake_cuda_live")(&mut counts);
    assert_eq!(code, 0);
    counts
}

/// A function of the fake driver that the crate itself has no use for.
fn function<F: Copy>(name: &str) -> F {
    // SAFETY: the fake driver is loaded already and stays loaded; its initialisers do nothing.
    let library = unsafe { libloading::Library::new(fake::driver()) }.unwrap();
    // SAFETY: `F` is the function's type, written at each use below from cuda.h or `live.rs`.
    let found = *unsafe { library.get::<F>(name) }.unwrap();
    std::mem::forget(library);
    found
}

#[test]
fn the_device_is_found_by_its_uuid() {
    let memory = open().unwrap();
    let devices = visible_devices().unwrap();
    let [device] = &devices[..] else { panic!("{devices:?}") };
    assert_eq!((device.ordinal, device.uuid, device.total), (0, memory.uuid(), 16 << 30));
    assert_eq!(CudaMemory::open(device.uuid).unwrap().uuid(), device.uuid);
    let message = CudaMemory::open([7; 16]).unwrap_err().to_string();
    assert!(message.contains(&DeviceUuid([7; 16]).to_string()), "{message}");
    assert!(message.contains(&DeviceUuid(device.uuid).to_string()), "{message}");
    assert_eq!(CudaMemory::open_ordinal(3).unwrap_err(), MemoryError::NoSuchOrdinal { ordinal: 3, count: 1 });
}

#[test]
fn everything_is_given_back() {
    alone("everything_is_given_back", || {
        fake::use_driver();
        assert!(!visible_devices().unwrap().is_empty());
        assert_eq!(live(), [0; 6]);
        let memory = open().unwrap();
        cuda::large_host_copies(&memory);
        cuda::device_copies(&memory);
        cuda::own_memory_is_adopted(&memory);
        cuda::claims_are_checked(&memory);
        let before = memory.memory_info().unwrap();
        assert_eq!((before.free, before.total), (16 << 30, 16 << 30));
        let mapping = memory.create(1).unwrap().map(Access::ReadOnly).unwrap();
        assert_eq!(memory.memory_info().unwrap().free, before.free - (2 << 20));
        drop(memory);
        // A mapping keeps the context, and the context its lanes.
        assert_eq!(live()[..4], [0, 1, 1, 1]);
        drop(mapping);
        assert_eq!(live(), [0; 6]);
    });
}

#[test]
fn the_callers_context_stays_as_it_is() {
    type Get = extern "C" fn(&mut usize) -> u32;
    type Set = extern "C" fn(usize) -> u32;
    let memory = open().unwrap();
    let current = || {
        let mut context = 0;
        assert_eq!(function::<Get>("cuCtxGetCurrent")(&mut context), 0);
        context
    };
    assert_eq!(current(), 0);
    cuda::device_copies(&memory);
    assert!(memory.create(u64::MAX / 4).is_err());
    assert_eq!(current(), 0);
    // The primary context itself, set by the caller.
    let mut primary = 0;
    assert_eq!(function::<extern "C" fn(&mut usize, i32) -> u32>("cuDevicePrimaryCtxRetain")(&mut primary, 0), 0);
    assert_eq!(function::<Set>("cuCtxSetCurrent")(primary), 0);
    cuda::device_copies(&memory);
    assert_eq!(current(), primary);
    assert_eq!(function::<Set>("cuCtxSetCurrent")(0), 0);
}

#[test]
fn ordinary_memory_is_copied_not_adopted() {
    type Alloc = extern "C" fn(&mut u64, usize) -> u32;
    let memory = open().unwrap();
    let mut context = 0;
    assert_eq!(function::<extern "C" fn(&mut usize, i32) -> u32>("cuDevicePrimaryCtxRetain")(&mut context, 0), 0);
    assert_eq!(function::<extern "C" fn(usize) -> u32>("cuCtxSetCurrent")(context), 0);
    let mut address = 0;
    assert_eq!(function::<Alloc>("cuMemAlloc_v2")(&mut address, 10_000), 0);
    assert_eq!(function::<extern "C" fn(u64, u8, usize) -> u32>("cuMemsetD8_v2")(address, 6, 10_000), 0);
    let Adoption::NotAdoptable(reason) = memory.adopt(address + 5, 100).unwrap() else { panic!("adopted") };
    assert_eq!(reason, NotAdoptable::NoHandle { address: address + 5 });
    let mut mapping = memory.create(10_000).unwrap().map(Access::ReadWrite).unwrap();
    mapping.copy_device_batch(&[DeviceCopy { source: address, offset: 0, len: 10_000 }], None).unwrap();
    let mut seen = vec![0; 10_000];
    mapping.copy_out(0, &mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 6));
    assert_eq!(function::<extern "C" fn(u64) -> u32>("cuMemFree_v2")(address), 0);
}

#[test]
fn memory_of_a_few_allocations_is_adopted_in_pieces_of_many_not() {
    const GRANULE: u64 = 2 << 20;
    let memory = open().unwrap();
    // As PyTorch's expandable segments are made: one reservation, many small mappings.
    let mut base = 0;
    let reserve = function::<extern "C" fn(&mut u64, u64, u64, u64, u64) -> u32>("cuMemAddressReserve");
    let map = function::<extern "C" fn(u64, u64, u64, u64, u64) -> u32>("cuMemMap");
    let retain = function::<extern "C" fn(&mut u64, u64) -> u32>("cuMemRetainAllocationHandle");
    assert_eq!(reserve(&mut base, 6 * GRANULE, 0, 0, 0), 0);
    for index in 0..6 {
        let mut chunk = memory.create(GRANULE).unwrap().map(Access::ReadWrite).unwrap();
        chunk.copy_in(0, &[u8::try_from(index).unwrap()]).unwrap();
        let mut handle = 0;
        assert_eq!(retain(&mut handle, chunk.address()), 0);
        assert_eq!(map(base + index * GRANULE, GRANULE, 0, handle, 0), 0);
    }
    let Adoption::Adopted(adopted) = memory.adopt(base + 100, 2 * GRANULE).unwrap() else { panic!("not adopted") };
    let pieces: Vec<(u64, u64)> = adopted.pieces.iter().map(|piece| (piece.offset, piece.len)).collect();
    assert_eq!(pieces, [(100, GRANULE - 100), (0, GRANULE), (0, 100)]);
    let mut first = [9];
    adopted.pieces[1].allocation.map(Access::ReadOnly).unwrap().copy_out(0, &mut first).unwrap();
    assert_eq!(first, [1]);
    let Adoption::NotAdoptable(reason) = memory.adopt(base, 6 * GRANULE).unwrap() else { panic!("adopted") };
    assert_eq!(reason, NotAdoptable::TooManyPieces { limit: 4 });
}

#[test]
fn too_much_names_size_device_and_error() {
    let memory = open().unwrap();
    let error = memory.create(17 << 30).unwrap_err();
    assert!(error.is_out_of_memory() && !error.is_sticky());
    let message = error.to_string();
    for part in ["cuMemCreate", "18253611008", "GPU-fa4e0000", "CUDA_ERROR_OUT_OF_MEMORY (2)"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn a_failure_half_way_undoes_what_was_done() {
    for faults in ["access:unsupported@1", "map:oom@1", "reserve:oom@1", "export:refused@1"] {
        alone_with("a_failure_half_way_undoes_what_was_done", &[("GPUVOL_FAKE_CUDA_FAULTS", faults)], || {
            // The child comes through the loop as well; its faults are those of its environment.
            if std::env::var("GPUVOL_FAKE_CUDA_FAULTS").as_deref() != Ok(faults) {
                return;
            }
            let memory = open().unwrap();
            let allocation = memory.create(1).unwrap();
            let clean = live();
            let failed = allocation.map(Access::ReadOnly).map(drop).and_then(|()| allocation.export().map(drop));
            assert!(matches!(failed, Err(MemoryError::Cuda(_))), "{failed:?}");
            assert_eq!(live(), clean);
            // The fault was for one call only.
            allocation.map(Access::ReadOnly).unwrap();
            allocation.export().unwrap();
            drop(allocation);
            drop(memory);
            assert_eq!(live(), [0; 6]);
        });
    }
}

#[test]
fn faults_on_the_way_to_memory_are_errors() {
    let faults = "create:oom@2,import:refused@1";
    alone_with("faults_on_the_way_to_memory_are_errors", &[("GPUVOL_FAKE_CUDA_FAULTS", faults)], || {
        let memory = open().unwrap();
        let first = memory.create(1).unwrap();
        assert!(memory.create(1).unwrap_err().is_out_of_memory());
        memory.create(1).unwrap();
        let message = memory.import(first.export().unwrap(), 1).unwrap_err().to_string();
        assert!(message.contains("CUDA_ERROR_NOT_PERMITTED (800)"), "{message}");
        memory.import(first.export().unwrap(), 1).unwrap();
    });
}

#[test]
fn after_an_illegal_address_every_call_fails_until_the_context_ends() {
    let test = "after_an_illegal_address_every_call_fails_until_the_context_ends";
    alone_with(test, &[("GPUVOL_FAKE_CUDA_FAULTS", "memcpy:illegal_address@2")], || {
        let memory = open().unwrap();
        let mut mapping = memory.create(100).unwrap().map(Access::ReadWrite).unwrap();
        mapping.copy_in(0, &[1]).unwrap();
        assert!(mapping.copy_in(0, &[1]).unwrap_err().is_sticky());
        assert!(mapping.copy_out(0, &mut [0]).unwrap_err().is_sticky());
        assert!(mapping.synchronize(None).unwrap_err().is_sticky());
        assert!(memory.create(1).unwrap_err().is_sticky());
        assert!(memory.memory_info().unwrap_err().is_sticky());
        drop((mapping, memory));
        open().unwrap().create(1).unwrap().map(Access::ReadOnly).unwrap();
    });
}

#[test]
fn a_failing_lane_fails_the_copy_once() {
    alone_with("a_failing_lane_fails_the_copy_once", &[("GPUVOL_FAKE_CUDA_FAULTS", "memcpy:invalid@3")], || {
        let memory = open().unwrap();
        let mut mapping = memory.create(64 << 20).unwrap().map(Access::ReadWrite).unwrap();
        let data = vec![1; 64 << 20];
        let message = mapping.copy_in(0, &data).unwrap_err().to_string();
        assert!(message.contains("67108864 bytes"), "{message}");
        mapping.copy_in(0, &data).unwrap();
    });
}

#[test]
fn a_failing_thread_fails_the_fill_and_leaves_nothing() {
    let test = "a_failing_thread_fails_the_fill_and_leaves_nothing";
    alone_with(test, &[("GPUVOL_FAKE_CUDA_FAULTS", "memcpy:invalid@3,register:oom@4")], || {
        let memory = open().unwrap();
        let mapping = memory.create(20 << 20).unwrap().map(Access::ReadOnly).unwrap();
        let staging = Staging::new(&memory);
        let target = HostMemory.create_bare(20 << 20).unwrap();
        let mut host = target.map(Access::ReadWrite).unwrap();
        let pieces = [Piece::Bytes(&[]), Piece::Device { mapping: &mapping, offset: 0, len: 20 << 20 }];
        let error = staging.fill(&mut host, &pieces).unwrap_err();
        assert_eq!((error.piece, error.error.is_sticky()), (Some(1), false));
        assert!(error.to_string().contains("cuMemcpyDtoHAsync_v2 failed for 2097152 bytes on GPU-"), "{error}");
        staging.fill(&mut host, &pieces).unwrap();
        drop((staging, mapping, memory));
        assert_eq!(live(), [0; 6]);
    });
}

#[test]
fn one_fill_takes_from_two_devices() {
    let two = "GPU-fa4e0000-0000-4000-8000-000000000001,GPU-fa4e0000-0000-4000-8000-000000000002";
    alone_with("one_fill_takes_from_two_devices", &[("GPUVOL_FAKE_CUDA_DEVICES", two)], || {
        fake::use_driver();
        let memories = [CudaMemory::open_ordinal(0).unwrap(), CudaMemory::open_ordinal(1).unwrap()];
        let mappings = memories.each_ref().map(|memory| {
            let mut mapping = memory.create(10).unwrap().map(Access::ReadWrite).unwrap();
            mapping.copy_in(0, &memory.uuid()[6..]).unwrap();
            mapping
        });
        let target = HostMemory.create_bare(20).unwrap();
        let pieces = mappings.each_ref().map(|mapping| Piece::Device { mapping, offset: 0, len: 10 });
        Staging::new(&memories[0]).fill(&mut target.map(Access::ReadWrite).unwrap(), &pieces).unwrap();
        let mut seen = [0; 20];
        target.read_at(0, &mut seen).unwrap();
        assert_eq!(seen[..], [&memories[0].uuid()[6..], &memories[1].uuid()[6..]].concat());
    });
}

#[test]
fn a_driver_without_devices_is_no_error_until_one_is_asked_for() {
    let test = "a_driver_without_devices_is_no_error_until_one_is_asked_for";
    alone_with(test, &[("GPUVOL_FAKE_CUDA_DEVICES", "")], || {
        fake::use_driver();
        assert_eq!(visible_devices(), Ok(Vec::new()));
        assert_eq!(CudaMemory::open_ordinal(0).unwrap_err(), MemoryError::NoDevice);
        let message = CudaMemory::open([7; 16]).unwrap_err().to_string();
        assert!(message.contains("visible: none"), "{message}");
    });
}

#[test]
fn memory_of_another_device_is_told_apart() {
    let two = "GPU-fa4e0000-0000-4000-8000-000000000001,GPU-fa4e0000-0000-4000-8000-000000000002";
    alone_with("memory_of_another_device_is_told_apart", &[("GPUVOL_FAKE_CUDA_DEVICES", two)], || {
        fake::use_driver();
        let (first, second) = (CudaMemory::open_ordinal(0).unwrap(), CudaMemory::open_ordinal(1).unwrap());
        let fd = first.create(1).unwrap().export().unwrap();
        let error = second.import(fd, 1).unwrap_err();
        assert!(matches!(error, MemoryError::WrongDevice { .. }), "{error}");
        let mapping = first.create(1).unwrap().map(Access::ReadOnly).unwrap();
        let Adoption::NotAdoptable(reason) = second.adopt(mapping.address(), 1).unwrap() else { panic!("adopted") };
        assert_eq!(reason, NotAdoptable::OtherDevice { device: DeviceUuid(first.uuid()) });
    });
}

#[test]
fn a_missing_library_is_named_and_stays_missing() {
    let path = [("GPUVOL_LIBCUDA", "/nowhere/libcuda.so")];
    alone_with("a_missing_library_is_named_and_stays_missing", &path, || {
        let first = visible_devices().unwrap_err();
        assert!(matches!(&first, MemoryError::CudaLibrary { tried } if tried.contains("/nowhere/libcuda.so")));
        assert_eq!(CudaMemory::open_ordinal(0).unwrap_err(), first);
        assert_eq!(use_library(fake::driver()), Err(first));
    });
}

#[test]
fn a_missing_symbol_is_named() {
    // A library that every test program has open already, and that has no CUDA.
    alone_with("a_missing_symbol_is_named", &[("GPUVOL_LIBCUDA", "libc.so.6")], || {
        let error = visible_devices().unwrap_err();
        assert_eq!(error, MemoryError::CudaSymbol { library: "libc.so.6".to_owned(), symbol: Symbols::NAMES[0] });
    });
}

#[test]
fn another_library_cannot_be_chosen_later() {
    alone("another_library_cannot_be_chosen_later", || {
        fake::use_driver();
        assert_eq!(use_library(fake::driver()), Ok(()));
        assert!(matches!(use_library("libother.so"), Err(MemoryError::CudaAlreadyLoaded { .. })));
    });
}

#[test]
fn threads_share_a_device() {
    let memory = Arc::new(open().unwrap());
    std::thread::scope(|scope| {
        for seed in 0..4_u8 {
            let memory = Arc::clone(&memory);
            scope.spawn(move || {
                let mut mapping = memory.create(33 << 20).unwrap().map(Access::ReadWrite).unwrap();
                let data = vec![seed; 33 << 20];
                let mut seen = vec![9; 33 << 20];
                mapping.copy_in(0, &data).unwrap();
                mapping.copy_out(0, &mut seen).unwrap();
                assert!(seen == data);
            });
        }
    });
}
