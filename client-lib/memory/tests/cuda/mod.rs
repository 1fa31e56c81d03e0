//! Cases that only device memory has, for the fake driver and for a real one.
#![allow(clippy::unwrap_used)]

use gpuvol_memory::cuda::{Adoption, DeviceCopy, NotAdoptable, Piece, Staging, device_of_pointer};
use gpuvol_memory::{Access, Allocation, CudaMemory, HostMemory, Mapping, Memory, MemoryError};

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|index| ((index / 7 + seed) % 251).to_le_bytes()[0]).collect()
}

/// Copies between device addresses: one by one, in batches, and refused ones.
pub fn device_copies(memory: &CudaMemory) {
    let mut source = memory.create(10_000).unwrap().map(Access::ReadWrite).unwrap();
    source.copy_in(0, &bytes(10_000, 1)).unwrap();
    let from = source.address();
    assert_eq!(device_of_pointer(from), Ok(memory.uuid()));

    let mut target = memory.create(10_000).unwrap().map(Access::ReadWrite).unwrap();
    target.copy_from_device(5_000, from, 1_000, None).unwrap();
    target.synchronize(None).unwrap();
    let batch = [
        DeviceCopy { source: from + 1_000, offset: 0, len: 500 },
        DeviceCopy { source: 0, offset: 10_000, len: 0 },
        DeviceCopy { source: from + 9_000, offset: 9_000, len: 1_000 },
    ];
    target.copy_device_batch(&batch, None).unwrap();
    let mut seen = vec![0; 10_000];
    target.copy_out(0, &mut seen).unwrap();
    let original = bytes(10_000, 1);
    assert!(seen[5_000..6_000] == original[..1_000]);
    assert!(seen[..500] == original[1_000..1_500]);
    assert!(seen[9_000..] == original[9_000..]);

    // One impossible copy, and none of the batch is done.
    let bad = [DeviceCopy { source: from, offset: 0, len: 500 }, DeviceCopy { source: from, offset: 9_999, len: 2 }];
    assert!(matches!(target.copy_device_batch(&bad, None), Err(MemoryError::OutOfBounds { .. })));
    let mut again = vec![0; 10_000];
    target.copy_out(0, &mut again).unwrap();
    assert!(again == seen);

    let host = HostMemory.create(4096).unwrap().map(Access::ReadWrite).unwrap();
    let refused = target.copy_from_device(0, host.address(), 16, None);
    assert_eq!(refused, Err(MemoryError::NotDeviceMemory { address: host.address() }));
    let pinned = memory.pin_mapping(host).unwrap();
    assert!(target.copy_from_device(0, pinned.address(), 16, None).is_err());

    let mut read_only = memory.create(100).unwrap().map(Access::ReadOnly).unwrap();
    assert_eq!(read_only.copy_from_device(0, from, 16, None), Err(MemoryError::ReadOnly));
}

/// Copies large enough for lanes, to and from ordinary, mapped and page-locked host memory.
pub fn large_host_copies(memory: &CudaMemory) {
    const LEN: usize = (40 << 20) + 12_345;
    let data = bytes(LEN, 3);
    let mut device = memory.create(LEN as u64 + 100).unwrap().map(Access::ReadWrite).unwrap();
    device.copy_in(100, &data).unwrap();
    let mut back = vec![0; LEN];
    device.copy_out(100, &mut back).unwrap();
    assert!(back == data);

    let host = HostMemory.create(LEN as u64).unwrap();
    let mut mapping = host.map(Access::ReadWrite).unwrap();
    device.copy_out_to(100, &mut mapping, 0, LEN as u64).unwrap();
    drop(mapping);
    host.read_at(0, &mut back).unwrap();
    assert!(back == data);

    let mut pinned = memory.pin_mapping(host.map(Access::ReadWrite).unwrap()).unwrap();
    device.copy_in_from(0, &pinned, 0, LEN as u64).unwrap();
    device.copy_out_to(0, &mut pinned, 0, LEN as u64).unwrap();
    let unpinned = pinned.unpin();
    unpinned.copy_out(0, &mut back).unwrap();
    assert!(back == data);
    drop(unpinned);

    host.seal().unwrap();
    let sealed = host.map_sealed().unwrap();
    device.copy_in_sealed(50, &sealed).unwrap();
    let mut tail = [0; 50];
    device.copy_out(LEN as u64, &mut tail).unwrap();
    assert_eq!(tail, data[LEN - 50..]);
    let mut read_only = host.map(Access::ReadOnly).unwrap();
    assert_eq!(device.copy_out_to(0, &mut read_only, 0, 1), Err(MemoryError::ReadOnly));
    device.copy_in_from(0, &read_only, 0, LEN as u64).unwrap();
}

/// Exportable memory is taken over by address, from any offset, and outlives its first owner.
pub fn own_memory_is_adopted(memory: &CudaMemory) {
    let mut owner = memory.create(3 << 20).unwrap().map(Access::ReadWrite).unwrap();
    owner.copy_in(5_000, b"adopt me").unwrap();
    let Adoption::Adopted(adopted) = memory.adopt(owner.address() + 5_000, 8).unwrap() else {
        panic!("exportable memory was not adopted");
    };
    let [piece] = &adopted.pieces[..] else { panic!("one allocation became {}", adopted.pieces.len()) };
    assert_eq!((piece.offset, piece.len), (5_000, 8));
    assert_eq!(piece.allocation.size(), 4 << 20);
    let fd = piece.allocation.export().unwrap();
    drop(owner);
    let reader = memory.import(fd, 4 << 20).unwrap().map(Access::ReadOnly).unwrap();
    let mut seen = [0; 8];
    reader.copy_out(5_000, &mut seen).unwrap();
    assert_eq!(&seen, b"adopt me");

    let host = HostMemory.create(4096).unwrap().map(Access::ReadWrite).unwrap();
    let answer = memory.adopt(host.address(), 10).unwrap();
    let Adoption::NotAdoptable(reason) = answer else { panic!("host memory was adopted") };
    assert_eq!(reason, NotAdoptable::NotDeviceMemory { address: host.address() });
    assert!(memory.adopt(1, u64::MAX).is_err());
    assert!(memory.adopt(host.address(), 0).is_err());
}

/// The exact size passes; a larger or smaller claim does not.
pub fn claims_are_checked(memory: &CudaMemory) {
    let allocation = memory.create(5 << 20).unwrap();
    assert_eq!((allocation.len(), allocation.size()), (5 << 20, 6 << 20));
    allocation.check_exact_size().unwrap();
    let claim = |len| memory.import(allocation.export().unwrap(), len).unwrap().check_exact_size();
    claim(6 << 20).unwrap();
    let smaller = claim(4 << 20);
    let refused = match &smaller {
        Err(MemoryError::LargerThanClaimed { claimed, .. }) => *claimed == 4 << 20,
        // A driver that maps an allocation only whole.
        Err(MemoryError::Cuda(failure)) => failure.call == "cuMemMap",
        _ => false,
    };
    assert!(refused, "{smaller:?}");
    assert!(matches!(claim(7 << 20), Err(MemoryError::Cuda(failure)) if failure.call == "cuMemMap"));
}

/// Pieces of every kind and of lengths around those of chunks, laid end to end into memory without a page.
pub fn fills(memory: &CudaMemory) {
    const MIB: u64 = 1 << 20;
    let data = bytes(12 << 20, 5);
    let mut device = memory.create(12 * MIB).unwrap().map(Access::ReadWrite).unwrap();
    device.copy_in(0, &data).unwrap();
    let host = HostMemory.create(12 * MIB).unwrap();
    host.write_at(0, &data).unwrap();
    let staging = Staging::new(memory);
    let on_device = |offset, len| Piece::Device { mapping: &device, offset, len };
    let on_host = |offset, len| Piece::Host { memory: &host, offset, len };
    let small: Vec<Piece<'_>> = (0..3000).map(|n| on_device(n * 1000, 1 + n % 900)).collect();
    let shapes = [
        vec![],
        vec![on_device(0, 0), Piece::Bytes(&[])],
        vec![on_device(77, 1)],
        vec![on_device(0, 12 * MIB)],
        vec![Piece::Bytes(&data[..100]), on_device(4097, 2 * MIB), on_host(3, 2 * MIB - 100), on_device(12 * MIB, 0)],
        vec![
            on_host(1, 5 * MIB + 1),
            Piece::Bytes(&data[..3 << 20]),
            on_device(5, 7 * MIB),
            Piece::Bytes(&data[9..10]),
        ],
        [&small[..], &[on_device(0, 2 * MIB)], &small[..500]].concat(),
    ];
    for pieces in &shapes {
        let mut expected = Vec::new();
        for piece in pieces {
            let (offset, len) = match *piece {
                Piece::Bytes(inline) => {
                    expected.extend_from_slice(inline);
                    continue;
                }
                Piece::Host { offset, len, .. } | Piece::Device { offset, len, .. } => (offset, len),
            };
            expected.extend_from_slice(&data[usize::try_from(offset).unwrap()..][..usize::try_from(len).unwrap()]);
        }
        let len = expected.len() as u64;
        let target = HostMemory.create_bare(len + 10).unwrap();
        let mut mapping = target.map(Access::ReadWrite).unwrap();
        assert_eq!(staging.fill(&mut mapping, pieces), Ok(len));
        let mut seen = vec![1; expected.len() + 10];
        target.read_at(0, &mut seen).unwrap();
        assert!(seen[..expected.len()] == expected, "{} pieces, {len} bytes", pieces.len());
        assert_eq!(seen[expected.len()..], [0; 10]);
        drop(mapping);
        target.seal().unwrap();
    }
    let target = HostMemory.create_bare(1000).unwrap();
    let mut mapping = target.map(Access::ReadWrite).unwrap();
    let error = staging.fill(&mut mapping, &[on_device(0, 900), on_device(0, 101)]).unwrap_err();
    assert_eq!(error.error, MemoryError::OutOfBounds { offset: 0, len: 1001, size: 1000 });
    let error = staging.fill(&mut mapping, &[on_host(0, 9), on_device(12 * MIB - 1, 2)]).unwrap_err();
    assert_eq!((error.piece, matches!(error.error, MemoryError::OutOfBounds { .. })), (Some(1), true));
    let mut read_only = target.map(Access::ReadOnly).unwrap();
    assert_eq!(staging.fill(&mut read_only, &[on_device(0, 9)]).unwrap_err().error, MemoryError::ReadOnly);
}
