//! One volume: its names, objects, reservations, slabs and quota.

use std::collections::{BTreeMap, HashMap};

use gpuvol_protocol::admin::VolumeSpec;
use gpuvol_protocol::message::{Tier, Usage};

use super::meta;
use super::object::{Content, Object, Reservation, charge_of};
use super::quota::{Quota, Share};
use super::record::{Meta, Sealed, Slot, VolumeCreated};
use super::slab::{Freed, Slabs};
use super::tree::{Child, Tree};

/// Memory that nothing refers to any more.
#[derive(Debug, Default)]
pub struct Freeing {
    /// Ids of allocations and slabs.
    pub memory: Vec<u64>,
    /// Ranges of slabs without objects: slab, offset, length.
    pub holes: Vec<(u64, u64, u64)>,
    /// Versions that are gone.
    pub objects: Vec<Object>,
}

#[derive(Debug)]
pub struct Volume {
    pub spec: VolumeSpec,
    /// The GPU that its device memory is on, once known.
    pub device: Vec<u8>,
    /// When its content was lost, in milliseconds since the epoch; 0 where it was not.
    pub lost_ms: u64,
    /// This store has noted in the volume's file that something was put into it.
    pub written: bool,
    pub tree: Tree,
    pub quota: Quota,
    pub slabs: Slabs,
    pub objects: HashMap<u64, Object>,
    pub reservations: BTreeMap<u64, Reservation>,
}

impl Volume {
    pub fn new(created: VolumeCreated) -> Self {
        let spec = created.spec.unwrap_or_default();
        let device = if created.bound_device.is_empty() { spec.device.clone() } else { created.bound_device };
        Self {
            device,
            lost_ms: created.lost_ms,
            written: false,
            tree: Tree::new(created.root, created.root_meta.unwrap_or_else(|| meta::of_directory(0, (0, 0)))),
            quota: Quota::new(spec.capacity),
            slabs: Slabs::default(),
            objects: HashMap::new(),
            reservations: BTreeMap::new(),
            spec,
        }
    }

    pub fn tier(&self) -> Tier {
        self.spec.tier_or_host()
    }

    /// Most objects and directories: one for each KiB of capacity, as a file system has inodes.
    pub fn max_entries(&self) -> u64 {
        (self.quota.capacity / 1024).clamp(1024, 10_000_000)
    }

    pub fn usage(&self, leases: u64) -> Usage {
        Usage {
            entries: self.tree.entries(),
            max_entries: self.max_entries(),
            leases,
            tier: self.tier().into(),
            device: self.device.clone(),
            ..self.quota.usage()
        }
    }

    pub fn reserve(&mut self, id: u64, reservation: Reservation) {
        self.quota.take(Share::Reserved, reservation.tier, reservation.charge);
        self.reservations.insert(id, reservation);
    }

    /// Gives a reservation's bytes back; its memfd, if any, is freed unless an object took it over.
    pub fn drop_reservation(&mut self, id: u64, freeing: &mut Freeing) -> Option<Reservation> {
        let reservation = self.reservations.remove(&id)?;
        self.quota.give_back(Share::Reserved, reservation.tier, reservation.charge);
        freeing.memory.extend(reservation.memory().map(|a| a.id));
        Some(reservation)
    }

    /// An object appears at its name; what was there is hidden.
    pub fn seal(&mut self, record: &Sealed, freeing: &mut Freeing) -> Result<Option<Reservation>, String> {
        let mut object = Object::from_record(record);
        let mut replaced = None;
        if let Content::Slot(slot) = &object.content {
            // First: what goes below may be the last of its slab.
            self.slabs.take(slot)?;
        }
        if record.freezes {
            self.freeze(&mut object, freeing)?;
        } else if !record.hidden {
            replaced = self.tree.put_object(record.parent, &record.name, record.version, record.cookie)?;
            if record.cookie == 0 && replaced.is_none() {
                self.tree.touch(record.parent, object.meta.mtime_ns);
            }
        }
        let reservation = match record.reservation {
            0 => None,
            id => {
                let mut own = Freeing::default();
                let reservation = self.drop_reservation(id, &mut own);
                let kept = |id: &u64| record.allocations.iter().any(|a| a.id == *id);
                freeing.memory.extend(own.memory.into_iter().filter(|id| !kept(id)));
                reservation
            }
        };
        let share = if object.visible { Share::Sealed } else { Share::Pinned };
        self.quota_parts(&object).iter().for_each(|(tier, bytes)| self.quota.take(share, *tier, *bytes));
        self.objects.insert(object.version, object);
        if let Some(old) = replaced {
            self.hide(old, freeing);
        }
        Ok(reservation)
    }

    /// A draft becomes the sealed `object`: same node, same handles, same name.
    fn freeze(&mut self, object: &mut Object, freeing: &mut Freeing) -> Result<(), String> {
        let Some(Object { content: Content::Draft(draft), holds, visible, .. }) = self.objects.remove(&object.version)
        else {
            return Err(format!("no draft {} to freeze", object.version));
        };
        (object.holds, object.visible) = (holds, visible);
        self.quota.give_back(Share::Reserved, Tier::Host, draft.charge);
        let kept = object.memory().any(|id| id == draft.memory);
        if draft.memory != 0 && !kept {
            freeing.memory.push(draft.memory);
        }
        self.let_go_of_base(draft.base, object.version, freeing);
        Ok(())
    }

    /// A version loses its name. It is freed now, or when the last hold on it ends.
    pub fn hide(&mut self, version: u64, freeing: &mut Freeing) {
        let Some(object) = self.objects.get_mut(&version).filter(|o| o.visible) else { return };
        object.visible = false;
        if let Content::Draft(draft) = &object.content {
            let (base, open) = (draft.base, object.holds > 0);
            self.hide_base(base, version, freeing);
            if !open {
                self.free(version, Share::Reserved, freeing);
            }
            return;
        }
        if object.holds == 0 {
            self.free(version, Share::Sealed, freeing);
            return;
        }
        let object = object.clone();
        for (tier, bytes) in self.quota_parts(&object) {
            self.quota.give_back(Share::Sealed, tier, bytes);
            self.quota.take(Share::Pinned, tier, bytes);
        }
    }

    pub fn hold(&mut self, version: u64) -> Result<(), String> {
        let object = self.objects.get_mut(&version).ok_or_else(|| format!("no version {version}"))?;
        object.holds += 1;
        Ok(())
    }

    pub fn release(&mut self, version: u64, freeing: &mut Freeing) {
        let Some(object) = self.objects.get_mut(&version) else { return };
        object.holds = object.holds.saturating_sub(1);
        if object.holds == 0 && !object.visible {
            let share = if object.as_draft().is_some() { Share::Reserved } else { Share::Pinned };
            self.free(version, share, freeing);
        }
    }

    /// A mount's handle that may write is there, or gone.
    pub fn count_writer(&mut self, node: u64, comes: bool) {
        if let Some(draft) = self.draft_mut(node) {
            draft.writers = if comes { draft.writers + 1 } else { draft.writers.saturating_sub(1) };
        }
    }

    pub fn child(&mut self, child: Child, freeing: &mut Freeing) {
        if let Child::Object(version) = child {
            self.hide(version, freeing);
        }
    }

    /// What a node has beside its content.
    pub fn meta_mut(&mut self, node: u64) -> Option<&mut Meta> {
        match self.objects.get_mut(&node) {
            Some(object) => Some(&mut object.meta),
            None => self.tree.meta_mut(node),
        }
    }

    /// Every allocation and slab of the volume.
    pub fn memory(&self) -> Vec<u64> {
        let objects = self.objects.values().flat_map(Object::memory);
        let reserved = self.reservations.values().flat_map(Reservation::memory).map(|a| a.id);
        objects.chain(reserved).chain(self.slabs.ids()).collect()
    }

    fn free(&mut self, version: u64, share: Share, freeing: &mut Freeing) {
        let Some(object) = self.objects.remove(&version) else { return };
        for (tier, bytes) in self.quota_parts(&object) {
            self.quota.give_back(share, tier, bytes);
        }
        freeing.memory.extend(object.memory());
        match &object.content {
            Content::Slot(slot) => self.free_slot(slot, freeing),
            Content::Draft(draft) => self.let_go_of_base(draft.base, version, freeing),
            Content::Segments { .. } | Content::Link(_) => {}
        }
        freeing.objects.push(object);
    }

    fn free_slot(&mut self, slot: &Slot, freeing: &mut Freeing) {
        match self.slabs.give_back(slot) {
            Freed::Slab => freeing.memory.push(slot.slab),
            Freed::Pages(_, 0) => {}
            Freed::Pages(offset, len) => freeing.holes.push((slot.slab, offset, len)),
        }
    }

    /// An object's bytes by the tier that they are in: device memory, and the host's part of it.
    fn quota_parts(&self, object: &Object) -> [(Tier, u64); 2] {
        let device: u64 = match &object.content {
            Content::Segments { allocations, .. } => {
                let on_device: Vec<_> = allocations.iter().filter(|a| !a.device.is_empty()).cloned().collect();
                charge_of(&on_device, &[])
            }
            Content::Slot(_) | Content::Draft(_) | Content::Link(_) => 0,
        };
        [(Tier::Gpu, device), (Tier::Host, object.charge() - device)]
    }
}
