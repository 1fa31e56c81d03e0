//! A volume's capacity: who takes bytes of it, and the guard that no path forgets to give them back.

use gpuvol_protocol::message::{Tier, Usage};
use gpuvol_protocol::types::Bytes;
use gpuvol_protocol::{Code, Fault};

/// Host memory is charged in pages, in bytes.
pub const HOST_GRANULE: u64 = 4096;
/// Device memory is charged in the driver's export granularity, in bytes.
pub const DEVICE_GRANULE: u64 = 2 * 1024 * 1024;

/// What a reservation of `size` bytes takes of the quota. On the GPU the client counts in the device's granules itself,
/// and adds the metadata.
pub fn charge(tier: Tier, size: u64) -> u64 {
    match tier {
        Tier::Host => size.checked_next_multiple_of(HOST_GRANULE).unwrap_or(u64::MAX),
        Tier::Gpu => size,
    }
}

/// Why bytes are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Share {
    /// A sealed object at a path.
    Sealed,
    /// Promised to an object that is not sealed yet.
    Reserved,
    /// A version without a path that leases still use.
    Pinned,
    /// Promised while the memory for a reservation is being made; in no record.
    Pending,
}

/// Bytes of one volume, by share and by tier.
#[derive(Debug, Clone, Default)]
pub struct Quota {
    pub capacity: u64,
    taken: [[u64; 2]; 4],
}

impl Quota {
    pub fn new(capacity: u64) -> Self {
        Self { capacity, ..Self::default() }
    }

    fn cell(&mut self, share: Share, tier: Tier) -> &mut u64 {
        &mut self.taken[share as usize][tier as usize]
    }

    fn of(&self, share: Share) -> u64 {
        self.taken[share as usize].iter().sum()
    }

    pub fn used(&self) -> u64 {
        self.taken.iter().flatten().sum()
    }

    pub fn used_on(&self, tier: Tier) -> u64 {
        self.taken.iter().map(|share| share[tier as usize]).sum()
    }

    pub fn free(&self) -> u64 {
        self.capacity.saturating_sub(self.used())
    }

    /// Is there room for `need` more bytes? The error names need, free and capacity, and what could be done.
    pub fn check(&self, volume: &str, path: &str, need: u64) -> Result<(), Fault> {
        let free = self.free();
        if need <= free {
            return Ok(());
        }
        let mut hint = String::from("remove objects, or give the volume a larger capacity");
        let pinned = self.of(Share::Pinned);
        if pinned > 0 {
            hint = format!("{} belong to removed objects that clients still have open; {hint}", Bytes(pinned));
        }
        let message = format!(
            "no space in volume {volume} for {path}: needs {}, {} free of {}; {hint}",
            Bytes(need),
            Bytes(free),
            Bytes(self.capacity)
        );
        Err(Fault { need, free, limit: self.capacity, ..Fault::new(Code::QuotaExceeded, message) })
    }

    pub fn take(&mut self, share: Share, tier: Tier, bytes: u64) {
        let cell = self.cell(share, tier);
        *cell = cell.saturating_add(bytes);
    }

    pub fn give_back(&mut self, share: Share, tier: Tier, bytes: u64) {
        let cell = self.cell(share, tier);
        debug_assert!(*cell >= bytes, "quota of {share:?} on {tier:?} would go below zero");
        *cell = cell.saturating_sub(bytes);
    }

    /// The numbers of a `Usage`; the rest of it is the volume's.
    pub fn usage(&self) -> Usage {
        Usage {
            capacity: self.capacity,
            used: self.used(),
            gpu: self.used_on(Tier::Gpu),
            pinned: self.of(Share::Pinned),
            reserved: self.of(Share::Reserved) + self.of(Share::Pending),
            ..Usage::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_need_free_and_capacity() {
        let mut quota = Quota::new(1 << 20);
        quota.take(Share::Sealed, Tier::Host, 1 << 19);
        assert!(quota.check("v", "a", 1 << 19).is_ok());
        let fault = quota.check("v", "a/b", (1 << 19) + 1).unwrap_err();
        assert_eq!((fault.need, fault.free, fault.limit), ((1 << 19) + 1, 1 << 19, 1 << 20));
        for part in ["volume v", "a/b", "524289 bytes", "524288 bytes", "1048576 bytes"] {
            assert!(fault.message.contains(part), "{}", fault.message);
        }
    }

    #[test]
    fn charges_round_up_and_never_overflow() {
        assert_eq!(charge(Tier::Host, 1), 4096);
        assert_eq!(charge(Tier::Host, 4096), 4096);
        assert_eq!(charge(Tier::Host, u64::MAX), u64::MAX);
        assert_eq!(charge(Tier::Gpu, 5), 5);
    }
}
