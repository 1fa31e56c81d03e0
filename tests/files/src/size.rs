//! Conversions that hold on the 64-bit machines that these tests are for.

pub fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("more than an address space")
}

pub fn bytes(length: usize) -> u64 {
    length as u64
}

pub fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).expect("more than a file can have")
}

/// What stat(2) calls a size.
pub fn of_stat(size: i64) -> u64 {
    u64::try_from(size).expect("a negative size")
}
