//! The suite that every backend passes, generic over [`Memory`]. For tests: it panics on what is wrong.
//!
//! [`memory_conformance!`](crate::memory_conformance) makes a test of each case. Cases that count descriptors,
//! or kill a producer, re-run the test program with one test only; [`process`] has the means.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test suite fails by panicking")]

pub mod fake;
pub mod process;

use std::os::fd::OwnedFd;

use crate::error::MemoryError;
use crate::memory::{Access, Allocation, Mapping, Memory};

/// Bytes used where the size does not matter: not a multiple of any page or granule.
const LEN: u64 = 3 * 4096 + 17;

/// One `#[test]` for each case. The expression gives `Option<impl Memory>` and is evaluated in each test; for
/// `None` it has said why, and the test does nothing.
#[macro_export]
macro_rules! memory_conformance {
    ($open:expr) => {
        $crate::memory_conformance!(@cases $open;
            round_trip, creator_gone, same_fd_twice, sizes_are_rounded, read_only_refuses_writes,
            bounds_are_checked, zero_and_absurd_lengths, foreign_descriptors_are_refused,
            mapping_outlives_everything);

        #[test]
        fn nothing_leaks() {
            $crate::conformance::process::alone("nothing_leaks", || {
                if let Some(memory) = $open {
                    $crate::conformance::nothing_leaks(&memory);
                }
            });
        }

        /// The other half of `memory_outlives_a_killed_producer`; by itself it does nothing.
        #[test]
        fn producer() {
            if $crate::conformance::process::is_producer()
                && let Some(memory) = $open
            {
                $crate::conformance::produce(&memory);
            }
        }

        #[test]
        fn memory_outlives_a_killed_producer() {
            if let Some(memory) = $open {
                $crate::conformance::memory_outlives_a_killed_producer(&memory);
            }
        }
    };
    (@cases $open:expr; $($case:ident),*) => {
        $(
            #[test]
            fn $case() {
                if let Some(memory) = $open {
                    $crate::conformance::$case(&memory);
                }
            }
        )*
    };
}

/// Bytes that tell every position from its neighbours.
fn pattern(len: u64) -> Vec<u8> {
    (0..len).map(|index| (index.wrapping_mul(31) % 251).to_le_bytes()[0]).collect()
}

fn contents(mapping: &impl Mapping) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(mapping.len()).unwrap()];
    mapping.copy_out(0, &mut bytes).unwrap();
    bytes
}

/// An exported allocation that holds [`pattern`]; the allocation itself is gone.
fn exported<M: Memory>(memory: &M, len: u64) -> OwnedFd {
    let allocation = memory.create(len).unwrap();
    let mut mapping = allocation.map(Access::ReadWrite).unwrap();
    mapping.copy_in(0, &pattern(len)).unwrap();
    allocation.export().unwrap()
}

/// What one mapping writes, another mapping of an import reads; offsets mean the same to both.
pub fn round_trip<M: Memory>(memory: &M) {
    let allocation = memory.create(LEN).unwrap();
    assert_eq!(allocation.len(), LEN);
    let mut writer = allocation.map(Access::ReadWrite).unwrap();
    assert_eq!(writer.len(), LEN);
    assert_ne!(writer.address(), 0);
    writer.copy_in(0, &pattern(LEN)).unwrap();

    let imported = memory.import(allocation.export().unwrap(), LEN).unwrap();
    assert_eq!(imported.len(), LEN);
    let reader = imported.map(Access::ReadOnly).unwrap();
    assert!(contents(&reader) == pattern(LEN));

    writer.copy_in(4097, b"later").unwrap();
    let mut seen = [0; 5];
    reader.copy_out(4097, &mut seen).unwrap();
    assert_eq!(&seen, b"later");
}

/// The descriptor alone keeps the memory.
pub fn creator_gone<M: Memory>(memory: &M) {
    let fd = exported(memory, LEN);
    let mapping = memory.import(fd, LEN).unwrap().map(Access::ReadOnly).unwrap();
    assert!(contents(&mapping) == pattern(LEN));
}

/// Two imports of one descriptor are the same memory.
pub fn same_fd_twice<M: Memory>(memory: &M) {
    let fd = exported(memory, LEN);
    let first = memory.import(fd.try_clone().unwrap(), LEN).unwrap();
    let second = memory.import(fd, LEN).unwrap();
    let mut writer = first.map(Access::ReadWrite).unwrap();
    let reader = second.map(Access::ReadOnly).unwrap();
    writer.copy_in(10, b"both").unwrap();
    let mut seen = [0; 4];
    reader.copy_out(10, &mut seen).unwrap();
    assert_eq!(&seen, b"both");
}

/// Lengths are as asked for, whatever the granularity makes of them.
pub fn sizes_are_rounded<M: Memory>(memory: &M) {
    let granule = memory.granularity();
    assert!(granule > 0);
    for len in [1, granule - 1, granule, granule + 1] {
        let allocation = memory.create(len).unwrap();
        assert_eq!(allocation.len(), len);
        let mut mapping = allocation.map(Access::ReadWrite).unwrap();
        mapping.copy_in(len - 1, &[7]).unwrap();
        assert!(matches!(mapping.copy_in(len, &[7]), Err(MemoryError::OutOfBounds { .. })), "{len}");
    }
}

/// A read-only mapping refuses to be written, with its own error.
pub fn read_only_refuses_writes<M: Memory>(memory: &M) {
    let allocation = memory.create(LEN).unwrap();
    allocation.map(Access::ReadWrite).unwrap().copy_in(0, &pattern(LEN)).unwrap();
    let mut mapping = allocation.map(Access::ReadOnly).unwrap();
    assert_eq!(mapping.copy_in(0, &[1]), Err(MemoryError::ReadOnly));
    assert!(contents(&mapping) == pattern(LEN));
}

/// No copy goes past the end, by however little or much; empty ones are fine up to the end.
pub fn bounds_are_checked<M: Memory>(memory: &M) {
    let mut mapping = memory.create(LEN).unwrap().map(Access::ReadWrite).unwrap();
    let mut two = [0; 2];
    for offset in [LEN - 1, LEN, LEN + 1, u64::MAX - 1, u64::MAX] {
        let outside = Err(MemoryError::OutOfBounds { offset, len: 2, size: LEN });
        assert_eq!(mapping.copy_in(offset, &two), outside);
        assert_eq!(mapping.copy_out(offset, &mut two), outside);
    }
    mapping.copy_in(LEN - 2, &two).unwrap();
    mapping.copy_in(LEN, &[]).unwrap();
    mapping.copy_out(LEN, &mut []).unwrap();
    assert!(mapping.copy_out(LEN + 1, &mut []).is_err());
}

/// Lengths that nothing can be made of are refused before anything is taken.
pub fn zero_and_absurd_lengths<M: Memory>(memory: &M) {
    assert!(matches!(memory.create(0), Err(MemoryError::ZeroLength)));
    assert!(matches!(memory.import(exported(memory, LEN), 0), Err(MemoryError::ZeroLength)));
    for len in [u64::MAX, u64::MAX - 4095, 1 << 63, (1 << 63) - 1] {
        assert!(matches!(memory.create(len), Err(MemoryError::TooLarge { .. })), "{len}");
    }
    // Addressable, but more than any machine has.
    assert!(memory.create(1 << 60).is_err());
    // A claim that the memory does not bear out is refused, at the latest when it is mapped.
    let lie = memory.granularity() * 16;
    let refused = memory.import(exported(memory, LEN), lie).and_then(|it| it.map(Access::ReadOnly));
    assert!(refused.is_err());
}

/// Descriptors that stand for something else are errors, not crashes.
pub fn foreign_descriptors_are_refused<M: Memory>(memory: &M) {
    let (pipe, _writer) = rustix::pipe::pipe().unwrap();
    assert!(memory.import(pipe, LEN).is_err());
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    assert!(memory.import(file.into(), LEN).is_err());
}

/// A mapping needs neither its allocation nor any descriptor.
pub fn mapping_outlives_everything<M: Memory>(memory: &M) {
    let mapping = {
        let imported = memory.import(exported(memory, LEN), LEN).unwrap();
        imported.map(Access::ReadOnly).unwrap()
    };
    assert!(contents(&mapping) == pattern(LEN));
}

/// 200 rounds of everything leave no descriptor and no address range behind. To be run alone in its process.
pub fn nothing_leaks<M: Memory>(memory: &M) {
    let cycle = || {
        round_trip(memory);
        creator_gone(memory);
        drop(memory.import(exported(memory, LEN), LEN).unwrap());
        foreign_descriptors_are_refused(memory);
        assert!(memory.create(u64::MAX).is_err());
    };
    // Whatever is made once and kept (a driver's threads, an arena) is made now.
    (0..20).for_each(|_| cycle());
    let before = process::footprint();
    (0..200).for_each(|_| cycle());
    let after = process::footprint();
    assert_eq!(after.descriptors, before.descriptors);
    // The allocator may add a heap or two; a leak adds one range or more a round.
    assert!(after.ranges < before.ranges + 20, "{before:?} -> {after:?}");
}

/// The producer's half: fills memory, sends its descriptor to standard input's socket, and waits to be killed.
pub fn produce<M: Memory>(memory: &M) {
    let allocation = memory.create(LEN).unwrap();
    let mut mapping = allocation.map(Access::ReadWrite).unwrap();
    mapping.copy_in(0, &pattern(LEN)).unwrap();
    process::send_to_parent(&allocation.export().unwrap());
    std::thread::sleep(process::DEADLINE);
}

/// Memory made by another process is there after that process was killed with SIGKILL.
pub fn memory_outlives_a_killed_producer<M: Memory>(memory: &M) {
    let mut producer = process::start_producer("producer");
    let fd = producer.receive();
    producer.kill();
    let mapping = memory.import(fd, LEN).unwrap().map(Access::ReadOnly).unwrap();
    assert!(contents(&mapping) == pattern(LEN));
}
