//! Living through facts, replaying them, and compacting them give the same state.

use std::collections::HashMap;
use std::sync::Arc;

use gpuvol_protocol::admin::{Publish, VolumeSpec};
use gpuvol_protocol::message::{Allocation, AllocationKind, Segment};
use proptest::prelude::*;

use super::draft::Draft;
use super::lease::LeaseId;
use super::log::Log;
use super::record::{
    DirectoryMade, DraftGrown, DraftMade, Fact, Held, HoldsReleased, LeaseOpened, Meta, MetaChanged, NodeOf, Origin,
    Renamed, ReservationDropped, Reserved, Sealed, SlabCreated, Unlinked, VolumeCreated,
};
use super::state::{Catalogue, Garbage};
use super::tree::Child;

const VOLUME: &str = "v";

#[derive(Debug, Clone)]
enum Step {
    Small { name: u8, len: u16 },
    Large { name: u8, pages: u8 },
    Reserve { lease: u8, request: u8, pages: u8 },
    DropReservation { at: u8 },
    Unlink { name: u8 },
    Rename { from: u8, to: u8 },
    Mkdir { name: u8 },
    Open { lease: u8, request: u8, name: u8 },
    Release { lease: u8, request: u8 },
    EndLease { lease: u8 },
    Write { lease: u8, request: u8, name: u8 },
    Grow { at: u8, pages: u8 },
    Show { at: u8 },
    Freeze { at: u8, large: bool },
    DropDraft { at: u8 },
    Exchange { one: u8, other: u8 },
    Chmod { name: u8, mode: u32 },
    Restart,
    Compact,
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    let lease = 0..3_u8;
    prop_oneof![
        4 => (name.clone(), 0..9000_u16).prop_map(|(name, len)| Step::Small { name, len }),
        4 => (name.clone(), 1..5_u8).prop_map(|(name, pages)| Step::Large { name, pages }),
        2 => (lease.clone(), any::<u8>(), 1..5_u8).prop_map(|(lease, request, pages)| Step::Reserve { lease, request, pages }),
        1 => any::<u8>().prop_map(|at| Step::DropReservation { at }),
        2 => name.clone().prop_map(|name| Step::Unlink { name }),
        2 => (name.clone(), name.clone()).prop_map(|(from, to)| Step::Rename { from, to }),
        1 => name.clone().prop_map(|name| Step::Mkdir { name }),
        4 => (lease.clone(), any::<u8>(), name).prop_map(|(lease, request, name)| Step::Open { lease, request, name }),
        3 => (lease.clone(), any::<u8>()).prop_map(|(lease, request)| Step::Release { lease, request }),
        1 => lease.clone().prop_map(|lease| Step::EndLease { lease }),
        5 => (lease, any::<u8>(), 0..6_u8).prop_map(|(lease, request, name)| Step::Write { lease, request, name }),
        4 => (any::<u8>(), 0..4_u8).prop_map(|(at, pages)| Step::Grow { at, pages }),
        2 => any::<u8>().prop_map(|at| Step::Show { at }),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(at, large)| Step::Freeze { at, large }),
        2 => any::<u8>().prop_map(|at| Step::DropDraft { at }),
        1 => (0..6_u8, 0..6_u8).prop_map(|(one, other)| Step::Exchange { one, other }),
        1 => (0..6_u8, 0..0o1000_u32).prop_map(|(name, mode)| Step::Chmod { name, mode }),
        1 => Just(Step::Restart),
        1 => Just(Step::Compact),
    ]
}

/// A catalogue, and the keeper that its memory is in.
struct World {
    catalogue: Catalogue,
    kept: HashMap<u64, Arc<std::os::fd::OwnedFd>>,
    generation: u64,
}

impl World {
    fn new() -> Self {
        let log = Log::create(1).unwrap();
        log.complete().unwrap();
        let (mut catalogue, _) = Catalogue::replay(log, HashMap::new()).unwrap();
        let spec = Some(VolumeSpec { id: VOLUME.into(), capacity: 1 << 40, ..VolumeSpec::default() });
        let root = catalogue.new_id();
        let _ =
            catalogue.commit(Fact::VolumeCreated(VolumeCreated { spec, root, ..VolumeCreated::default() })).unwrap();
        let publish = Publish { publish: "p".into(), volume: VOLUME.into(), ..Publish::default() };
        let _ = catalogue.commit(Fact::Published(publish)).unwrap();
        Self { catalogue, kept: HashMap::new(), generation: 1 }
    }

    fn commit(&mut self, fact: Fact) {
        let garbage = self.catalogue.commit(fact).unwrap();
        self.free(&garbage);
    }

    fn free(&mut self, garbage: &Garbage) {
        for key in &garbage.keys {
            if let Some(id) = key.strip_prefix("mem/").and_then(|id| id.parse().ok()) {
                assert!(self.kept.remove(&id).is_some(), "{key} was freed twice");
            }
        }
    }

    fn memory(&mut self) -> u64 {
        let id = self.catalogue.new_id();
        let fd = Arc::new(std::os::fd::OwnedFd::from(std::fs::File::open("/dev/null").unwrap()));
        self.kept.insert(id, fd.clone());
        self.catalogue.adopt_fd(id, fd);
        id
    }

    fn lease(&mut self, n: u8) -> LeaseId {
        let id = LeaseId([n; 16]);
        if self.catalogue.lease(id).is_err() {
            let opened = LeaseOpened { lease: id.0.to_vec(), publish: "p".into(), client: "c".into(), mount: false };
            self.commit(Fact::LeaseOpened(opened));
        }
        id
    }

    fn root(&self) -> u64 {
        self.catalogue.volume(VOLUME).unwrap().tree.root()
    }

    fn child(&self, name: u8) -> Option<Child> {
        self.catalogue.volume(VOLUME).unwrap().tree.child(self.root(), &[b'a' + name])
    }

    fn sealed(&mut self, name: u8) -> Sealed {
        let (version, parent) = (self.catalogue.new_id(), self.root());
        Sealed { volume: VOLUME.into(), version, parent, name: vec![b'a' + name], ..Sealed::default() }
    }

    fn take(&mut self, step: &Step) {
        let volume = || VOLUME.to_owned();
        match *step {
            Step::Small { name, .. } | Step::Large { name, .. }
                if matches!(self.child(name), Some(Child::Directory(_))) => {}
            Step::Small { name, len } => {
                let len = u64::from(len);
                if self.catalogue.volume(VOLUME).unwrap().slabs.find(len).is_none() {
                    let slab = self.memory();
                    self.commit(Fact::SlabCreated(SlabCreated { volume: volume(), slab }));
                }
                let slot = self.catalogue.volume(VOLUME).unwrap().slabs.find(len);
                let sealed = Sealed { slot, ..self.sealed(name) };
                self.commit(Fact::Sealed(sealed));
            }
            Step::Large { name, pages } => {
                let len = u64::from(pages) * 4096;
                let id = self.memory();
                let allocations = vec![Allocation { id, kind: AllocationKind::Memfd.into(), len, device: vec![] }];
                let segments = vec![Segment { len, ..Segment::default() }];
                let sealed = Sealed { allocations, segments, ..self.sealed(name) };
                self.commit(Fact::Sealed(sealed));
            }
            Step::Reserve { lease, request, pages } => {
                let lease = self.lease(lease);
                let len = u64::from(pages) * 4096;
                if self.catalogue.lease(lease).unwrap().reservations.contains_key(&u64::from(request)) {
                    return;
                }
                let (reservation, id) = (self.catalogue.new_id(), self.memory());
                self.commit(Fact::Reserved(Reserved {
                    volume: volume(),
                    origin: Some(Origin { lease: lease.0.to_vec(), request: request.into() }),
                    reservation,
                    charge: len,
                    allocation: Some(Allocation { id, len, ..Allocation::default() }),
                    ..Reserved::default()
                }));
            }
            Step::DropReservation { at } => {
                let reservations = &self.catalogue.volume(VOLUME).unwrap().reservations;
                let picked = reservations.keys().nth(usize::from(at) % reservations.len().max(1)).copied();
                if let Some(reservation) = picked {
                    self.commit(Fact::ReservationDropped(ReservationDropped { volume: volume(), reservation }));
                }
            }
            Step::Unlink { name } => {
                if self.child(name).is_some() {
                    let parent = self.root();
                    self.commit(Fact::Unlinked(Unlinked {
                        volume: volume(),
                        origin: None,
                        parent,
                        name: vec![b'a' + name],
                        ..Unlinked::default()
                    }));
                }
            }
            Step::Rename { from, to } => {
                let kinds = (self.child(from), self.child(to));
                let fits = match kinds {
                    (Some(Child::Object(_)), Some(Child::Directory(_))) | (None, _) => false,
                    (Some(Child::Directory(_)), Some(Child::Object(_))) => false,
                    (Some(_), _) => from != to,
                };
                if fits {
                    let parent = self.root();
                    self.commit(Fact::Renamed(Renamed {
                        volume: volume(),
                        origin: None,
                        from_parent: parent,
                        from_name: vec![b'a' + from],
                        to_parent: parent,
                        to_name: vec![b'a' + to],
                        ..Renamed::default()
                    }));
                }
            }
            Step::Mkdir { name } => {
                if self.child(name).is_none() {
                    let (parent, directory) = (self.root(), self.catalogue.new_id());
                    let name = vec![b'a' + name];
                    let made = DirectoryMade { volume: volume(), parent, name, directory, ..DirectoryMade::default() };
                    self.commit(Fact::DirectoryMade(made));
                }
            }
            Step::Open { lease, request, name } => {
                let lease = self.lease(lease);
                if let Some(Child::Object(version)) = self.child(name) {
                    let origin = Some(Origin { lease: lease.0.to_vec(), request: request.into() });
                    self.commit(Fact::Held(Held { origin, volume: volume(), version, write: false }));
                }
            }
            Step::Release { lease, request } => {
                let lease = self.lease(lease);
                let holds = vec![request.into(), 1_000_000];
                self.commit(Fact::HoldsReleased(HoldsReleased { lease: lease.0.to_vec(), holds }));
            }
            Step::EndLease { lease } => self.commit(Fact::LeaseEnded(vec![lease; 16])),
            Step::Write { lease, request, name } => self.write(lease, request, name),
            Step::Grow { at, pages } => {
                let Some((node, draft)) = self.draft(at) else { return };
                let memory = if draft.memory == 0 { self.memory() } else { draft.memory };
                let charge = draft.charge + u64::from(pages) * 4096;
                self.commit(Fact::DraftGrown(DraftGrown {
                    volume: volume(),
                    node,
                    memory,
                    charge,
                    truncated: pages == 3,
                }));
            }
            Step::Show { at } => {
                let Some((node, _)) = self.draft(at) else { return };
                self.commit(Fact::DraftShown(NodeOf { volume: volume(), node }));
            }
            Step::Freeze { at, large } => self.freeze(at, large),
            Step::DropDraft { at } => {
                let Some((node, _)) = self.draft(at).filter(|(_, draft)| draft.writers == 0) else { return };
                self.commit(Fact::DraftDropped(NodeOf { volume: volume(), node }));
            }
            Step::Exchange { one, other } => {
                if self.child(one).is_some() && self.child(other).is_some() {
                    let root = self.root();
                    self.commit(Fact::Renamed(Renamed {
                        volume: volume(),
                        from_parent: root,
                        from_name: vec![b'a' + one],
                        to_parent: root,
                        to_name: vec![b'a' + other],
                        exchange: true,
                        time_ns: 7,
                        ..Renamed::default()
                    }));
                }
            }
            Step::Chmod { name, mode } => {
                if let Some(child) = self.child(name) {
                    let meta = Some(Meta { mode, ctime_ns: mode.into(), ..Meta::default() });
                    self.commit(Fact::MetaChanged(MetaChanged { volume: volume(), node: child.id(), meta }));
                }
            }
            Step::Restart => self.restart(),
            Step::Compact => {
                self.generation += 1;
                let before = self.catalogue.facts();
                let _old = self.catalogue.compact(Log::create(self.generation).unwrap()).unwrap();
                assert_same(&before, &self.catalogue.facts());
            }
        }
    }

    /// A mount opens a file for writing.
    fn write(&mut self, lease: u8, request: u8, name: u8) {
        let lease = self.lease(lease);
        let base = match self.child(name) {
            Some(Child::Directory(_)) => return,
            Some(Child::Object(id)) => id,
            None => 0,
        };
        let mut node = base;
        if self.catalogue.volume(VOLUME).unwrap().draft(base).is_none() {
            let parent = self.root();
            node = self.catalogue.new_id();
            self.commit(Fact::DraftMade(DraftMade {
                volume: VOLUME.into(),
                node,
                parent,
                name: vec![b'a' + name],
                base,
                owners: vec!["p".into()],
                time_ns: 5_000_000,
                ..DraftMade::default()
            }));
        }
        if !self.catalogue.lease(lease).unwrap().holds.contains_key(&u64::from(request)) {
            let origin = Some(Origin { lease: lease.0.to_vec(), request: request.into() });
            self.commit(Fact::Held(Held { origin, volume: VOLUME.into(), version: node, write: true }));
        }
    }

    fn draft(&self, at: u8) -> Option<(u64, Draft)> {
        let volume = self.catalogue.volume(VOLUME).unwrap();
        let mut all: Vec<_> = volume.drafts().map(|(object, draft)| (object.version, draft.clone())).collect();
        all.sort_by_key(|(node, _)| *node);
        let at = usize::from(at) % all.len().max(1);
        all.into_iter().nth(at)
    }

    fn freeze(&mut self, at: u8, large: bool) {
        let Some((node, draft)) = self.draft(at).filter(|(_, draft)| draft.writers == 0) else { return };
        if !self.catalogue.volume(VOLUME).unwrap().objects[&node].visible {
            return;
        }
        let mut sealed = Sealed { volume: VOLUME.into(), version: node, freezes: true, ..Sealed::default() };
        if large && draft.memory != 0 {
            let len = draft.charge.max(1);
            let allocation = Allocation { id: draft.memory, len, ..Allocation::default() };
            (sealed.allocations, sealed.segments) = (vec![allocation], vec![Segment { len, ..Segment::default() }]);
        } else {
            if self.catalogue.volume(VOLUME).unwrap().slabs.find(9).is_none() {
                let slab = self.memory();
                self.commit(Fact::SlabCreated(SlabCreated { volume: VOLUME.into(), slab }));
            }
            sealed.slot = self.catalogue.volume(VOLUME).unwrap().slabs.find(9);
        }
        self.commit(Fact::Sealed(sealed));
    }

    fn restart(&mut self) {
        let before = self.catalogue.facts();
        let fd = self.catalogue.log().fd().try_clone_to_owned().unwrap();
        let log = Log::open("log", fd).unwrap().unwrap();
        let (catalogue, garbage) = Catalogue::replay(log, self.kept.clone()).unwrap();
        assert!(garbage.keys.iter().all(|key| !key.starts_with("mem/")), "memory was lost: {garbage:?}");
        self.catalogue = catalogue;
        assert_same(&before, &self.catalogue.facts());
    }
}

/// The same facts, in whatever order maps give them. Ids that were given out and never used may differ.
fn assert_same(one: &[Fact], other: &[Fact]) {
    let sorted = |facts: &[Fact]| {
        let known = facts.iter().filter(|f| !matches!(f, Fact::IdsUsed(_)));
        let mut texts: Vec<String> = known.map(|f| format!("{f:?}")).collect();
        texts.sort();
        texts
    };
    assert_eq!(sorted(one), sorted(other));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn every_history_is_told_again_by_its_log(steps in prop::collection::vec(step(), 1..120)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
            let volume = world.catalogue.volume(VOLUME).unwrap();
            let objects: u64 = volume.objects.values().map(super::object::Object::charge).sum();
            let reserved: u64 = volume.reservations.values().map(|r| r.charge).sum();
            prop_assert_eq!(volume.quota.used(), objects + reserved);
            prop_assert_eq!(volume.memory().len(), world.kept.len());
        }
        world.restart();
        // Without names and leases nothing is left.
        for lease in 0..3 {
            world.take(&Step::EndLease { lease });
        }
        for name in 0..6 {
            world.take(&Step::Unlink { name });
        }
        prop_assert_eq!(world.catalogue.volume(VOLUME).unwrap().quota.used(), 0);
        prop_assert!(world.kept.is_empty(), "kept: {:?}", world.kept);
    }
}
