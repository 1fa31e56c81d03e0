//! The catalogue: all state of the store, changed one committed fact at a time.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use gpuvol_protocol::admin::Publish;
use gpuvol_protocol::message::Tier;
use gpuvol_protocol::{Code, Fault, VolumeId};

use super::graves::{Grave, Graves};
use super::lease::{Lease, LeaseId};
use super::log::{Log, LogError};
use super::meta;
use super::object::{Content, Object, Reservation};
use super::record::{
    Answered, Attached, BackingNoted, DirectoryMade, Fact, Held, HoldsReleased, LeaseOpened, MetaChanged, Origin,
    Record, Renamed, Reserved, SlabCreated, VolumeCreated,
};
use super::tree::Child;
use super::volume::{Freeing, Volume};

/// Memory and leases that a commit ended. The caller gives them back after it has let go of the catalogue's lock:
/// closing the last descriptor of gigabytes takes time.
#[derive(Debug, Default)]
#[must_use]
pub struct Garbage {
    /// The keeper's names for what ended.
    pub keys: Vec<String>,
    pub fds: Vec<Arc<OwnedFd>>,
    /// Ranges of slabs whose pages can go: descriptor, offset, length.
    pub holes: Vec<(Arc<OwnedFd>, u64, u64)>,
    pub leases: Vec<LeaseId>,
    /// Versions that are gone; their replicas can go.
    pub versions: Vec<u64>,
    /// Volumes whose names or attributes are other ones now.
    pub changed: Vec<String>,
    /// Holds that ended one by one.
    pub holds: Vec<(LeaseId, u64)>,
}

impl Garbage {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
            && self.fds.is_empty()
            && self.holes.is_empty()
            && self.leases.is_empty()
            && self.versions.is_empty()
            && self.holds.is_empty()
            && self.changed.is_empty()
    }

    pub fn merge(&mut self, other: Garbage) {
        self.keys.extend(other.keys);
        self.fds.extend(other.fds);
        self.holes.extend(other.holes);
        self.leases.extend(other.leases);
        self.versions.extend(other.versions);
        self.holds.extend(other.holds);
        self.changed.extend(other.changed);
    }
}

/// The keeper's name for an allocation or a slab.
pub fn memory_key(id: u64) -> String {
    format!("mem/{id}")
}

#[derive(Debug)]
pub struct Catalogue {
    log: Log,
    pub volumes: BTreeMap<VolumeId, Volume>,
    pub publishes: BTreeMap<String, Publish>,
    pub leases: HashMap<LeaseId, Lease>,
    /// The leases of publishes that are mounts.
    pub mounts: HashMap<String, LeaseId>,
    /// Descriptors of allocations and slabs. Not in the log: the keeper has them.
    fds: HashMap<u64, Arc<OwnedFd>>,
    /// What was replaced or removed a moment ago.
    pub graves: Graves,
    next_id: u64,
    compacted_len: u64,
}

impl Catalogue {
    /// The catalogue that a log tells of; for a new log, an empty one.
    pub fn replay(mut log: Log, fds: HashMap<u64, Arc<OwnedFd>>) -> Result<(Self, Garbage), LogError> {
        let mut records = Vec::new();
        log.replay(|record| {
            records.push(record);
            Ok(())
        })?;
        let mut catalogue = Self {
            log,
            volumes: BTreeMap::new(),
            publishes: BTreeMap::new(),
            leases: HashMap::new(),
            mounts: HashMap::new(),
            fds,
            graves: Graves::default(),
            // 1 is what FUSE calls every root.
            next_id: 2,
            compacted_len: 0,
        };
        let mut garbage = Garbage::default();
        for (at, record) in records.into_iter().enumerate() {
            let Some(fact) = record.fact else { continue };
            let applied = catalogue.apply(fact);
            let why = |why| LogError::Contradiction { at: at as u64, why };
            garbage.merge(applied.map_err(why)?);
        }
        catalogue.drop_uncommitted(&mut garbage);
        Ok((catalogue, garbage))
    }

    /// Memory that the keeper holds and no record speaks of: its commit never happened.
    fn drop_uncommitted(&mut self, garbage: &mut Garbage) {
        let known: std::collections::HashSet<u64> = self.volumes.values().flat_map(Volume::memory).collect();
        let unknown: Vec<u64> = self.fds.keys().filter(|id| !known.contains(id)).copied().collect();
        for id in unknown {
            self.next_id = self.next_id.max(id + 1);
            self.free_memory(id, garbage);
        }
    }

    /// A new id for an allocation, slab, version, reservation or directory; never given out twice.
    pub fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    pub fn log(&self) -> &Log {
        &self.log
    }

    pub fn volume(&self, id: &str) -> Result<&Volume, Fault> {
        VolumeId::new(id).ok().and_then(|id| self.volumes.get(&id)).ok_or_else(|| no_volume(id))
    }

    pub fn volume_mut(&mut self, id: &str) -> Result<&mut Volume, Fault> {
        VolumeId::new(id).ok().and_then(|id| self.volumes.get_mut(&id)).ok_or_else(|| no_volume(id))
    }

    pub fn fd(&self, id: u64) -> Option<Arc<OwnedFd>> {
        self.fds.get(&id).cloned()
    }

    /// Registers a descriptor that the keeper already holds, before the fact that speaks of it is committed.
    pub fn adopt_fd(&mut self, id: u64, fd: Arc<OwnedFd>) {
        self.fds.insert(id, fd);
    }

    /// Forgets a descriptor whose fact was not committed after all.
    pub fn disown_fd(&mut self, id: u64) -> Garbage {
        let mut garbage = Garbage::default();
        self.free_memory(id, &mut garbage);
        garbage
    }

    /// Does the lease still live? Asked under the same lock as what is then done for it.
    pub fn lease(&self, id: LeaseId) -> Result<&Lease, Fault> {
        self.leases.get(&id).ok_or_else(|| Fault::new(Code::LeaseEnded, "this client's lease has ended; connect again"))
    }

    /// Is the memory of everything on a volume there?
    pub fn has_all_memory(&self, volume: &str) -> bool {
        self.volume(volume).is_ok_and(|v| v.memory().iter().all(|id| self.fds.contains_key(id)))
    }

    /// How many descriptors of memory the store has.
    pub fn memory_count(&self) -> usize {
        self.fds.len()
    }

    /// Appends a fact to the log, then applies it.
    pub fn commit(&mut self, fact: Fact) -> Result<Garbage, Fault> {
        let internal = |why: String| Fault::new(Code::Internal, format!("the catalogue refused a change: {why}"));
        let record = Record { fact: Some(fact) };
        let before = self.log.size();
        self.log.append(&record).map_err(|e| internal(e.to_string()))?;
        let Some(fact) = record.fact else { return Ok(Garbage::default()) };
        self.apply(fact).map_err(|why| {
            // A refused fact did not happen: no successor may trip over it.
            match self.log.rewind(before) {
                Ok(()) => internal(why),
                Err(error) => internal(format!("{why}; and {error}")),
            }
        })
    }

    fn apply(&mut self, fact: Fact) -> Result<Garbage, String> {
        let mut garbage = Garbage::default();
        let mut freeing = Freeing::default();
        garbage.changed.extend(fact.shows().map(str::to_owned));
        match fact {
            Fact::IdsUsed(id) => self.used(id),
            Fact::VolumeCreated(created) => {
                let id = created.spec.as_ref().map(|s| s.id.clone()).unwrap_or_default();
                self.used(created.root);
                self.volumes.insert(VolumeId::new(id).map_err(|e| e.to_string())?, Volume::new(created));
            }
            Fact::VolumeDeleted(id) => {
                let id = VolumeId::new(id).map_err(|e| e.to_string())?;
                if let Some(volume) = self.volumes.remove(&id) {
                    freeing.memory = volume.memory();
                    freeing.objects = volume.objects.into_values().collect();
                }
                self.end_leases(|lease| lease.volume == id, &mut garbage, &mut freeing);
            }
            Fact::VolumeExpanded(expanded) => {
                let volume = self.known(&expanded.volume)?;
                volume.spec.capacity = expanded.capacity;
                volume.quota.capacity = expanded.capacity;
            }
            Fact::LossAccepted(volume) => self.known(&volume)?.lost_ms = 0,
            Fact::DeviceBound(bound) => self.known(&bound.volume)?.device = bound.device,
            Fact::Published(publish) => {
                self.publishes.insert(publish.publish.clone(), publish);
            }
            Fact::Unpublished(publish) => {
                self.publishes.remove(&publish);
                self.end_leases(|lease| lease.publish == publish, &mut garbage, &mut freeing);
            }
            Fact::LeaseOpened(opened) => {
                let id = LeaseId::from_slice(&opened.lease).ok_or("a lease id of a wrong length")?;
                let publish = self.publishes.get(&opened.publish).ok_or("a lease of an unknown publish")?;
                let volume = VolumeId::new(publish.volume.clone()).map_err(|e| e.to_string())?;
                if opened.mount {
                    self.mounts.insert(opened.publish.clone(), id);
                }
                let mut lease = Lease::new(opened.publish, volume, opened.client);
                lease.mount = opened.mount;
                self.leases.insert(id, lease);
            }
            Fact::LeaseEnded(lease) => {
                let ended = LeaseId::from_slice(&lease);
                if let Some((id, lease)) = ended.and_then(|id| Some((id, self.leases.remove(&id)?))) {
                    self.end_lease(id, &lease, &mut garbage, &mut freeing);
                }
            }
            Fact::Reserved(reserved) => self.reserve(reserved)?,
            Fact::Attached(attached) => {
                for allocation in &attached.allocations {
                    self.used(allocation.id);
                }
                let reservations = &mut self.known(&attached.volume)?.reservations;
                let reservation = reservations.get_mut(&attached.reservation).ok_or("memory for no reservation")?;
                reservation.attached.extend(attached.allocations);
                self.answered(attached.origin.as_ref(), 0);
            }
            Fact::ReservationDropped(dropped) => {
                let volume = self.known(&dropped.volume)?;
                if let Some(reservation) = volume.drop_reservation(dropped.reservation, &mut freeing) {
                    self.forget_reservation(&reservation);
                }
            }
            Fact::Sealed(sealed) => {
                self.used(sealed.version);
                for allocation in &sealed.allocations {
                    self.used(allocation.id);
                }
                let reservation = self.known(&sealed.volume)?.seal(&sealed, &mut freeing)?;
                if let Some(reservation) = reservation {
                    self.forget_reservation(&reservation);
                }
                self.answered(sealed.origin.as_ref(), sealed.version);
            }
            Fact::SlabCreated(created) => {
                self.used(created.slab);
                self.known(&created.volume)?.slabs.add(created.slab);
            }
            Fact::Held(held) => self.hold(&held, &mut freeing)?,
            Fact::HoldsReleased(released) => self.release(&released, &mut garbage, &mut freeing),
            Fact::Renamed(renamed) => self.rename(&renamed, &mut freeing)?,
            Fact::Unlinked(unlinked) => {
                self.bury_directory(&unlinked.volume, unlinked.parent, &unlinked.name)?;
                let volume = self.known(&unlinked.volume)?;
                let child = volume.tree.remove(unlinked.parent, &unlinked.name)?;
                volume.tree.touch(unlinked.parent, unlinked.time_ns);
                volume.child(child, &mut freeing);
                self.answered(unlinked.origin.as_ref(), 0);
            }
            Fact::DirectoryMade(made) => {
                self.used(made.directory);
                let meta = made.meta.unwrap_or_else(|| meta::of_directory(made.time_ms, (0, 0)));
                let tree = &mut self.known(&made.volume)?.tree;
                tree.make_directory(made.parent, &made.name, made.directory, meta, made.cookie)?;
                self.answered(made.origin.as_ref(), made.directory);
            }
            Fact::DraftMade(mut made) => {
                self.used(made.node);
                let (origin, node) = (made.origin.take(), made.node);
                self.known(&made.volume)?.make_draft(made)?;
                self.answered(origin.as_ref(), node);
            }
            Fact::DraftGrown(grown) => {
                self.used(grown.memory);
                self.known(&grown.volume)?.grow_draft(&grown)?;
            }
            Fact::DraftShown(node) => self.known(&node.volume)?.show_draft(node.node, &mut freeing)?,
            Fact::DraftDropped(node) => self.known(&node.volume)?.drop_draft(node.node, &mut freeing)?,
            Fact::DraftJoined(joined) => self.known(&joined.volume)?.join_draft(joined.node, joined.publish)?,
            Fact::BackingNoted(noted) => self.note_backing(&noted),
            Fact::MetaChanged(changed) => self.change_meta(changed)?,
            Fact::Answered(answered) => self.answered(answered.origin.as_ref(), answered.version),
        }
        for object in std::mem::take(&mut freeing.objects) {
            garbage.versions.push(object.version);
            self.bury(object);
        }
        for (slab, offset, len) in freeing.holes {
            garbage.holes.extend(self.fd(slab).map(|fd| (fd, offset, len)));
        }
        for id in freeing.memory {
            self.free_memory(id, &mut garbage);
        }
        Ok(garbage)
    }

    /// Keeps a freed version's bytes for a moment, before its memory is let go of.
    fn bury(&mut self, object: Object) {
        let mut grave = Grave { content: Vec::new(), fds: Vec::new(), object };
        match &grave.object.content {
            Content::Slot(slot) => {
                let Some(slab) = self.fds.get(&slot.slab) else { return };
                let len = usize::try_from(slot.len).unwrap_or(0);
                grave.content = vec![0; len];
                if rustix::io::pread(slab, &mut grave.content, slot.offset) != Ok(len) {
                    return;
                }
            }
            Content::Segments { allocations, .. } if grave.object.tier() == Tier::Host => {
                grave.fds = allocations.iter().filter_map(|a| self.fds.get(&a.id).cloned()).collect();
                if grave.fds.len() != allocations.len() {
                    return;
                }
            }
            Content::Segments { .. } | Content::Draft(_) | Content::Link(_) => return,
        }
        self.graves.bury(grave);
    }

    /// Remembers a directory that is about to go.
    fn bury_directory(&mut self, volume: &str, parent: u64, name: &[u8]) -> Result<(), String> {
        let tree = &self.known(volume)?.tree;
        if let Some(Child::Directory(id)) = tree.child(parent, name)
            && let Some(meta) = tree.meta(id).cloned()
        {
            self.graves.bury_directory(id, meta);
        }
        Ok(())
    }

    fn used(&mut self, id: u64) {
        self.next_id = self.next_id.max(id + 1);
    }

    fn known(&mut self, volume: &str) -> Result<&mut Volume, String> {
        self.volume_mut(volume).map_err(|fault| fault.message)
    }

    fn free_memory(&mut self, id: u64, garbage: &mut Garbage) {
        if let Some(fd) = self.fds.remove(&id) {
            garbage.fds.push(fd);
            garbage.keys.push(memory_key(id));
        }
    }

    fn reserve(&mut self, reserved: Reserved) -> Result<(), String> {
        self.used(reserved.reservation);
        if let Some(allocation) = &reserved.allocation {
            self.used(allocation.id);
        }
        let origin = reserved.origin.clone().unwrap_or_default();
        if let Some(lease) = LeaseId::from_slice(&origin.lease).and_then(|id| self.leases.get_mut(&id)) {
            lease.reservations.insert(origin.request, reserved.reservation);
        }
        let tier = reserved.tier();
        self.known(&reserved.volume)?.reserve(
            reserved.reservation,
            Reservation {
                origin,
                path: reserved.path,
                charge: reserved.charge,
                tier,
                device: reserved.device,
                allocation: reserved.allocation,
                attached: Vec::new(),
            },
        );
        Ok(())
    }

    fn forget_reservation(&mut self, reservation: &Reservation) {
        if let Some(lease) = LeaseId::from_slice(&reservation.origin.lease).and_then(|id| self.leases.get_mut(&id)) {
            lease.reservations.remove(&reservation.origin.request);
        }
    }

    fn hold(&mut self, held: &Held, freeing: &mut Freeing) -> Result<(), String> {
        let origin = held.origin.as_ref().ok_or("a hold of nobody")?;
        let id = LeaseId::from_slice(&origin.lease).ok_or("a lease id of a wrong length")?;
        let before = self.leases.get(&id).ok_or("a hold of an unknown lease")?.holds.get(&origin.request).copied();
        // The same request again is the same hold, and moves with the path where that was replaced meanwhile.
        if before == Some(held.version) {
            return Ok(());
        }
        let volume = self.known(&held.volume)?;
        volume.hold(held.version)?;
        if let Some(before) = before {
            volume.release(before, freeing);
        }
        if held.write {
            volume.count_writer(held.version, true);
        }
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.holds.insert(origin.request, held.version);
            if held.write {
                lease.writing.insert(origin.request);
            }
        }
        Ok(())
    }

    fn release(&mut self, released: &HoldsReleased, garbage: &mut Garbage, freeing: &mut Freeing) {
        let Some(id) = LeaseId::from_slice(&released.lease) else { return };
        let Some(lease) = self.leases.get_mut(&id) else { return };
        let Some(volume) = self.volumes.get_mut(&lease.volume) else { return };
        for hold in &released.holds {
            garbage.holds.push((id, *hold));
            lease.backings.remove(hold);
            let wrote = lease.writing.remove(hold);
            let Some(version) = lease.holds.remove(hold) else { continue };
            if wrote {
                volume.count_writer(version, false);
            }
            volume.release(version, freeing);
        }
    }

    fn rename(&mut self, r: &Renamed, freeing: &mut Freeing) -> Result<(), String> {
        if !r.exchange {
            self.bury_directory(&r.volume, r.to_parent, &r.to_name)?;
        }
        let volume = self.known(&r.volume)?;
        let (from, to) = ((r.from_parent, r.from_name.as_slice()), (r.to_parent, r.to_name.as_slice()));
        if r.exchange {
            volume.tree.exchange(from, to)?;
        } else if let Some(child) = volume.tree.rename(from, to)? {
            volume.child(child, freeing);
        }
        volume.tree.touch(r.from_parent, r.time_ns);
        volume.tree.touch(r.to_parent, r.time_ns);
        let moved = volume.tree.child(r.to_parent, &r.to_name).map(Child::id);
        if let Some(meta) = moved.and_then(|id| volume.meta_mut(id)).filter(|_| r.time_ns != 0) {
            meta.ctime_ns = r.time_ns;
        }
        self.answered(r.origin.as_ref(), 0);
        Ok(())
    }

    fn note_backing(&mut self, noted: &BackingNoted) {
        let Some(origin) = &noted.origin else { return };
        if let Some(lease) = LeaseId::from_slice(&origin.lease).and_then(|id| self.leases.get_mut(&id))
            && lease.holds.contains_key(&origin.request)
        {
            lease.backings.insert(origin.request, noted.backing);
        }
    }

    fn change_meta(&mut self, changed: MetaChanged) -> Result<(), String> {
        let volume = self.known(&changed.volume)?;
        let meta = volume.meta_mut(changed.node).ok_or_else(|| format!("no node {}", changed.node))?;
        *meta = changed.meta.unwrap_or_default();
        Ok(())
    }

    fn answered(&mut self, origin: Option<&Origin>, version: u64) {
        let Some(origin) = origin else { return };
        if let Some(lease) = LeaseId::from_slice(&origin.lease).and_then(|id| self.leases.get_mut(&id)) {
            lease.remember(origin.request, version);
        }
    }

    fn end_leases(&mut self, ended: impl Fn(&Lease) -> bool, garbage: &mut Garbage, freeing: &mut Freeing) {
        let ids: Vec<LeaseId> = self.leases.iter().filter(|(_, l)| ended(l)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(lease) = self.leases.remove(&id) {
                self.end_lease(id, &lease, garbage, freeing);
            }
        }
    }

    fn end_lease(&mut self, id: LeaseId, lease: &Lease, garbage: &mut Garbage, freeing: &mut Freeing) {
        garbage.leases.push(id);
        if lease.mount {
            self.mounts.remove(&lease.publish);
        } else {
            garbage.keys.push(id.key());
        }
        let Some(volume) = self.volumes.get_mut(&lease.volume) else { return };
        for (hold, version) in &lease.holds {
            if lease.writing.contains(hold) {
                volume.count_writer(*version, false);
            }
            volume.release(*version, freeing);
        }
        for reservation in lease.reservations.values() {
            volume.drop_reservation(*reservation, freeing);
        }
    }

    /// Is most of the log about what is gone?
    pub fn wants_compaction(&self) -> bool {
        const SMALL: u64 = 8 * 1024 * 1024;
        self.log.size() > SMALL && self.log.size() > self.compacted_len.saturating_mul(3)
    }

    /// Writes all state into `fresh`, which the keeper already holds, and goes on with it. Answers the key of the log
    /// that no longer counts.
    pub fn compact(&mut self, mut fresh: Log) -> Result<String, LogError> {
        for fact in self.facts() {
            fresh.append(&Record { fact: Some(fact) })?;
        }
        fresh.complete()?;
        let old = Log::key(self.log.generation());
        self.compacted_len = fresh.size();
        self.log = fresh;
        Ok(old)
    }

    /// The facts that make this state from nothing.
    pub fn facts(&self) -> Vec<Fact> {
        let mut facts = vec![Fact::IdsUsed(self.next_id.saturating_sub(1))];
        for volume in self.volumes.values() {
            facts.push(Fact::VolumeCreated(VolumeCreated {
                spec: Some(volume.spec.clone()),
                lost_ms: volume.lost_ms,
                root: volume.tree.root(),
                bound_device: volume.device.clone(),
                root_meta: volume.tree.meta(volume.tree.root()).cloned(),
            }));
        }
        facts.extend(self.publishes.values().cloned().map(Fact::Published));
        for (id, lease) in &self.leases {
            facts.push(Fact::LeaseOpened(LeaseOpened {
                lease: id.0.to_vec(),
                publish: lease.publish.clone(),
                client: lease.client.clone(),
                mount: lease.mount,
            }));
        }
        for (id, volume) in &self.volumes {
            volume_facts(id.as_str(), volume, &mut facts);
        }
        for (id, lease) in &self.leases {
            let origin = |request| Some(Origin { lease: id.0.to_vec(), request });
            let volume = lease.volume.as_str();
            facts.extend(lease.holds.iter().map(|(request, version)| {
                let write = lease.writing.contains(request);
                Fact::Held(Held { origin: origin(*request), volume: volume.to_owned(), version: *version, write })
            }));
            facts.extend(lease.backings.iter().map(|(request, backing)| {
                Fact::BackingNoted(BackingNoted { origin: origin(*request), backing: *backing })
            }));
            facts.extend(
                lease
                    .answered()
                    .map(|(request, version)| Fact::Answered(Answered { origin: origin(request), version })),
            );
        }
        facts
    }

    /// Bytes of host memory that objects of GPU-tier volumes take: promised by nobody's capacity on the host tier.
    pub fn host_bytes_of_gpu_volumes(&self) -> u64 {
        let on_gpu = self.volumes.values().filter(|v| v.tier() == Tier::Gpu);
        on_gpu.map(|v| v.quota.used_on(Tier::Host)).sum()
    }
}

fn volume_facts(id: &str, volume: &Volume, facts: &mut Vec<Fact>) {
    for (parent, name, directory, cookie) in volume.tree.directories() {
        facts.push(Fact::DirectoryMade(DirectoryMade {
            volume: id.to_owned(),
            origin: None,
            parent,
            name: name.to_vec(),
            directory,
            time_ms: volume.tree.time_ms(directory),
            meta: volume.tree.meta(directory).cloned(),
            cookie,
        }));
    }
    for slab in volume.slabs.ids() {
        facts.push(Fact::SlabCreated(SlabCreated { volume: id.to_owned(), slab }));
    }
    let sealed = |version, parent, name: &[u8], cookie| {
        let object = volume.objects.get(&version);
        object.and_then(|o| o.to_record(id, parent, name, cookie)).map(Fact::Sealed)
    };
    let mut drafts = Vec::new();
    for (parent, name, version, cookie) in volume.tree.objects() {
        match volume.draft(version) {
            None => facts.extend(sealed(version, parent, name, cookie)),
            Some(draft) => {
                // Its base first, at the same name.
                facts.extend(sealed(draft.base, parent, name, cookie));
                drafts.push((version, cookie));
            }
        }
    }
    for object in volume.objects.values().filter(|o| !o.visible) {
        facts.extend(object.to_record(id, 0, b"", 0).map(Fact::Sealed));
        if object.as_draft().is_some() {
            drafts.push((object.version, 0));
        }
    }
    for (node, cookie) in drafts {
        let Some((made, grown)) = volume.draft_records(id, node, cookie) else { continue };
        facts.extend([Fact::DraftMade(made), Fact::DraftGrown(grown)]);
    }
    for (reservation, r) in &volume.reservations {
        facts.push(Fact::Reserved(Reserved {
            volume: id.to_owned(),
            origin: Some(r.origin.clone()),
            reservation: *reservation,
            path: r.path.clone(),
            charge: r.charge,
            tier: r.tier.into(),
            device: r.device.clone(),
            allocation: r.allocation.clone(),
        }));
        if !r.attached.is_empty() {
            facts.push(Fact::Attached(Attached {
                volume: id.to_owned(),
                origin: None,
                reservation: *reservation,
                allocations: r.attached.clone(),
            }));
        }
    }
}

fn no_volume(id: &str) -> Fault {
    Fault::new(Code::NotFound, format!("no volume {id:.128?} on this node; `gpuvol doctor` lists the volumes that are"))
}
