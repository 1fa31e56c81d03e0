//! Small objects share memfds: which byte ranges of a volume's slabs are free.
//!
//! A slab never leaves the store and the keeper, because a descriptor would expose the whole of it: readers get small
//! objects inline. So it needs no seals, and pages whose objects are gone are given back by punching holes. A slab
//! never crosses volumes. An empty slab is given back whole.

use std::collections::BTreeMap;

use super::record::Slot;

/// Bytes of one slab.
pub const SLAB_SIZE: u64 = 4 * 1024 * 1024;
/// Slots begin and end at multiples of this, in bytes.
pub const SLOT_UNIT: u64 = 64;

/// What a small object of `len` bytes takes in its slab and from its volume's quota.
pub fn slot_size(len: u64) -> u64 {
    len.max(1).next_multiple_of(SLOT_UNIT)
}

/// The slabs of one volume.
#[derive(Debug, Default)]
pub struct Slabs {
    slabs: BTreeMap<u64, Slab>,
    /// Where the last slot was found: the next one is likely there too.
    recent: u64,
}

#[derive(Debug)]
struct Slab {
    /// Free ranges: offset to length; neighbours are always merged.
    free: BTreeMap<u64, u64>,
    free_bytes: u64,
}

impl Slab {
    fn new() -> Self {
        Self { free: BTreeMap::from([(0, SLAB_SIZE)]), free_bytes: SLAB_SIZE }
    }

    fn fit(&self, size: u64) -> Option<u64> {
        if self.free_bytes < size {
            return None;
        }
        self.free.iter().find(|(_, len)| **len >= size).map(|(offset, _)| *offset)
    }

    fn take(&mut self, offset: u64, size: u64) -> Result<(), String> {
        let found = self.free.range(..=offset).next_back().map(|(start, len)| (*start, *len));
        let Some((start, len)) = found.filter(|(start, len)| offset + size <= start + len) else {
            return Err(format!("bytes {offset}..{} are taken already", offset + size));
        };
        self.free.remove(&start);
        if start < offset {
            self.free.insert(start, offset - start);
        }
        if offset + size < start + len {
            self.free.insert(offset + size, start + len - offset - size);
        }
        self.free_bytes -= size;
        Ok(())
    }

    fn give_back(&mut self, offset: u64, size: u64) {
        let (mut start, mut end) = (offset, offset + size);
        if let Some((before, len)) = self.free.range(..offset).next_back().map(|(s, l)| (*s, *l))
            && before + len == start
        {
            start = before;
            self.free.remove(&before);
        }
        if let Some(len) = self.free.remove(&end) {
            end += len;
        }
        self.free.insert(start, end - start);
        self.free_bytes += size;
    }
}

/// What became of a slab when a slot was given back.
#[derive(Debug, PartialEq, Eq)]
pub enum Freed {
    /// The slab has other objects. These whole pages of it hold none any more: offset and length in bytes.
    Pages(u64, u64),
    /// Nothing is left in it.
    Slab,
}

impl Slabs {
    /// A free slot for `len` bytes of content, in a slab that exists.
    pub fn find(&self, len: u64) -> Option<Slot> {
        let size = slot_size(len);
        let recent = self.slabs.get(&self.recent).and_then(|s| Some((self.recent, s.fit(size)?)));
        let found = recent.or_else(|| self.slabs.iter().find_map(|(id, s)| Some((*id, s.fit(size)?))));
        found.map(|(slab, offset)| Slot { slab, offset, len })
    }

    pub fn add(&mut self, slab: u64) {
        self.slabs.insert(slab, Slab::new());
        self.recent = slab;
    }

    pub fn take(&mut self, slot: &Slot) -> Result<(), String> {
        let slab = self.slabs.get_mut(&slot.slab).ok_or_else(|| format!("no slab {}", slot.slab))?;
        slab.take(slot.offset, slot_size(slot.len))?;
        self.recent = slot.slab;
        Ok(())
    }

    pub fn give_back(&mut self, slot: &Slot) -> Freed {
        const PAGE: u64 = 4096;
        let Some(slab) = self.slabs.get_mut(&slot.slab) else { return Freed::Pages(0, 0) };
        slab.give_back(slot.offset, slot_size(slot.len));
        if slab.free_bytes == SLAB_SIZE {
            self.slabs.remove(&slot.slab);
            return Freed::Slab;
        }
        // The free range that the slot is now part of, cut to the pages that this slot touched.
        let around = slab.free.range(..=slot.offset).next_back().map_or((0, 0), |(s, l)| (*s, *l));
        let first = (slot.offset / PAGE * PAGE).max(around.0.next_multiple_of(PAGE));
        let touched = (slot.offset + slot_size(slot.len)).next_multiple_of(PAGE);
        let last = touched.min((around.0 + around.1) / PAGE * PAGE);
        Freed::Pages(first, last.saturating_sub(first))
    }

    /// Does no object have any of these bytes?
    pub fn is_free(&self, slab: u64, offset: u64, len: u64) -> bool {
        let Some(slab) = self.slabs.get(&slab) else { return false };
        slab.free.range(..=offset).next_back().is_some_and(|(start, free)| offset + len <= start + free)
    }

    pub fn ids(&self) -> impl Iterator<Item = u64> {
        self.slabs.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_do_not_overlap_and_everything_comes_back() {
        let mut slabs = Slabs::default();
        let mut next_slab = 1;
        let mut taken: Vec<Slot> = Vec::new();
        let mut seed = 7_u64;
        for step in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if seed >> 63 == 0 || taken.is_empty() {
                let len = (seed >> 20) % (64 * 1024);
                let slot = slabs.find(len).unwrap_or_else(|| {
                    slabs.add(next_slab);
                    next_slab += 1;
                    slabs.find(len).unwrap()
                });
                slabs.take(&slot).unwrap();
                for other in &taken {
                    let apart = other.slab != slot.slab
                        || other.offset + slot_size(other.len) <= slot.offset
                        || slot.offset + slot_size(slot.len) <= other.offset;
                    assert!(apart, "step {step}: {slot:?} overlaps {other:?}");
                }
                assert!(slabs.take(&slot).is_err());
                taken.push(slot);
            } else {
                let at = usize::try_from(seed >> 8).unwrap() % taken.len();
                let slot = taken.swap_remove(at);
                if let Freed::Pages(start, len) = slabs.give_back(&slot) {
                    for other in taken.iter().filter(|o| o.slab == slot.slab) {
                        let end = other.offset + slot_size(other.len);
                        assert!(len == 0 || end <= start || start + len <= other.offset, "a hole in {other:?}");
                    }
                }
            }
        }
        for slot in taken.drain(..) {
            slabs.give_back(&slot);
        }
        assert_eq!(slabs.ids().count(), 0);
    }

    #[test]
    fn an_empty_object_has_a_slot_of_its_own() {
        assert_eq!((slot_size(0), slot_size(64), slot_size(65)), (64, 64, 128));
    }
}
