//! The store's state in memory, how it comes back from the keeper, and what runs beside the connections.

use std::collections::{BTreeMap, HashMap};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gpuvol_protocol::view::CLOCK_OFFSET;
use gpuvol_protocol::{Code, Fault};

use crate::budget::{Books, Budgets};
use crate::catalogue::lease::LeaseId;
use crate::catalogue::log::Log;
use crate::catalogue::meta;
use crate::catalogue::record::{Fact, VolumeCreated};
use crate::catalogue::state::{Catalogue, Garbage};
use crate::copier::Copier;
use crate::hosting::Hosting;
use crate::inventory::Inventory;
use crate::keeper_link::KeeperLink;
use crate::provision::{Provisioned, Provisions, boot_id};
use crate::watch::{Watch, Watched};

/// Most leases on the node, and of one publish.
pub const MAX_LEASES: usize = 3_000;
pub const MAX_LEASES_OF_PUBLISH: usize = 512;
/// Most connections on the node, and of one publish.
pub const MAX_CONNECTIONS: usize = 1_500;
pub const MAX_CONNECTIONS_OF_PUBLISH: usize = 512;
/// What the store needs descriptors for beside memory: a lease's pipe, a connection and its shutdown handle, a listener for
/// each publish, and some room. The keeper needs fewer.
const OTHER_DESCRIPTORS: usize = MAX_LEASES + 2 * MAX_CONNECTIONS + 1_000;

/// A mounter asks more often than this, or it is gone.
const MOUNTER_SILENCE: Duration = Duration::from_secs(8);

/// How long memory stays after its last use, so that what ends together is freed together, and after the request that
/// ended it was answered. Its quota is free at once.
const REAP_DELAY: Duration = Duration::from_millis(10);

#[derive(Debug, Clone)]
pub struct Config {
    /// Sockets and the volumes' files live below this directory.
    pub state: PathBuf,
    pub budgets: Budgets,
    /// How long to wait for the keeper at start.
    pub keeper_patience: Duration,
    /// Bytes of host memory for copies of objects in GPU memory.
    pub replica_budget: u64,
    /// The copier's program.
    pub copier: PathBuf,
    /// How many descriptors this process may have.
    pub descriptors: usize,
    /// A memfd may stand for device memory: for the fake CUDA driver of the tests.
    pub memfd_devices: bool,
}

#[derive(Debug)]
pub struct Node {
    pub config: Config,
    pub inventory: Inventory,
    pub keeper: KeeperLink,
    pub hosting: Arc<Hosting>,
    pub provisions: Provisions,
    pub started: Instant,
    catalogue: Mutex<Catalogue>,
    /// Something appeared at a path.
    changed: Condvar,
    watch: Watch,
    garbage: Sender<Garbage>,
    connections: Mutex<HashMap<u64, Connection>>,
    next_connection: AtomicU64,
    mounts: Mutex<BTreeMap<String, MountFds>>,
    /// Drafts to be frozen when the opens that are expected have come or not.
    deferred: Mutex<Vec<(String, u64)>>,
    /// Which mounts a mounter said that it serves, and when.
    served: Mutex<Option<(Instant, Vec<String>)>>,
}

#[derive(Debug)]
struct Connection {
    publish: String,
    stream: UnixStream,
}

/// What a mount lives on.
#[derive(Debug, Clone)]
pub struct MountFds {
    pub volume: String,
    pub fuse: Arc<OwnedFd>,
    pub journal: Arc<OwnedFd>,
    clock: Arc<AtomicU64>,
}

impl MountFds {
    pub fn new(volume: &str, fuse: Arc<OwnedFd>, journal: Arc<OwnedFd>) -> Self {
        let mut clock = [0; 8];
        // A clock that cannot be read begins anew: nobody has trusted it either.
        let _ = rustix::io::pread(&journal, &mut clock, CLOCK_OFFSET);
        let mount = Self {
            volume: volume.to_owned(),
            fuse,
            journal,
            clock: Arc::new(AtomicU64::new(u64::from_le_bytes(clock))),
        };
        // What a store before this one was about to show.
        mount.tick();
        mount
    }

    /// The volume's names or attributes have changed: what the mounter knows of them may be old.
    fn tick(&self) {
        let now = self.clock.fetch_add(1, Ordering::Relaxed) + 1;
        if let Err(error) = rustix::io::pwrite(&self.journal, &now.to_le_bytes(), CLOCK_OFFSET) {
            tracing::error!(volume = self.volume, %error, "a mount is not told of a change");
        }
    }
}

/// A connection's place in the table; leaves it when dropped.
#[derive(Debug)]
pub struct ConnectionGuard {
    node: Arc<Node>,
    id: u64,
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.node.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
    }
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Keeper(#[from] Fault),
    #[error(transparent)]
    Log(#[from] crate::catalogue::log::LogError),
    #[error("{what}: {error}")]
    Io { what: String, error: std::io::Error },
}

impl Node {
    /// Takes everything back from the keeper, and starts what runs beside the connections.
    pub fn start(config: Config) -> Result<Arc<Self>, StartError> {
        let io = |what: &str| {
            let what = format!("{what} below {}", config.state.display());
            move |error| StartError::Io { what, error }
        };
        let provisions = Provisions::open(&config.state).map_err(io("the volumes' files"))?;
        let (keeper, held) = KeeperLink::connect(config.state.join("keeper/keeper.sock"), config.keeper_patience)?;
        let taken = TakenBack::sort(held);
        let (log, stale_logs) = pick_log(taken.logs, &keeper)?;
        let (catalogue, mut leftovers) = Catalogue::replay(log, taken.memory)?;
        leftovers.keys.extend(stale_logs.into_iter().chain(taken.stale));
        let (garbage, queue) = channel();
        let watch = Watch::new().map_err(io("epoll"))?;
        let copier = Copier::new(config.copier.clone(), crate::copier::PATIENCE);
        let node = Arc::new(Self {
            hosting: Hosting::new(config.replica_budget, config.descriptors / 16, copier),
            inventory: Inventory::load(),
            keeper,
            provisions,
            started: Instant::now(),
            catalogue: Mutex::new(catalogue),
            changed: Condvar::new(),
            watch,
            garbage,
            connections: Mutex::default(),
            next_connection: AtomicU64::new(1),
            mounts: Mutex::default(),
            served: Mutex::default(),
            deferred: Mutex::default(),
            config,
        });
        node.reconcile_volumes()?;
        node.watch_again(taken.leases, taken.listeners, &mut leftovers);
        node.mount_again(taken.mounts, &mut leftovers);
        node.reap(leftovers);
        node.spawn_workers(queue).map_err(|error| StartError::Io { what: "threads".into(), error })?;
        Ok(node)
    }

    /// Most descriptors of memory on the node: keeper and store each have one of every allocation. Small objects share slabs
    /// and take none of their own.
    pub fn max_memory(&self) -> usize {
        self.config.descriptors.saturating_sub(OTHER_DESCRIPTORS).max(64)
    }

    pub fn catalogue(&self) -> MutexGuard<'_, Catalogue> {
        self.catalogue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The budgets, without what the GPUs say now.
    pub fn books(&self) -> Books<'_> {
        Books { budgets: self.config.budgets, inventory: &self.inventory, devices: Vec::new() }
    }

    /// The budgets, and the GPUs as they are now. Not to be asked for under the catalogue's lock.
    pub fn books_now(&self) -> Books<'_> {
        Books { devices: self.inventory.devices(), ..self.books() }
    }

    /// Wakes everybody who waits for a path.
    pub fn announce(&self) {
        self.changed.notify_all();
    }

    /// Lets go of the catalogue until something is announced or the time is over.
    pub fn wait_change<'g>(&self, guard: MutexGuard<'g, Catalogue>, time: Duration) -> MutexGuard<'g, Catalogue> {
        self.changed.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Gives ended memory and leases back, in the background.
    pub fn reap(&self, mut garbage: Garbage) {
        if !garbage.changed.is_empty() {
            let mounts = self.mounts();
            mounts.values().filter(|mount| garbage.changed.contains(&mount.volume)).for_each(MountFds::tick);
            garbage.changed.clear();
        }
        for lease in &garbage.leases {
            self.watch.remove(&Watched::Lease(*lease));
            self.hosting.end_lease(*lease);
        }
        for (lease, hold) in &garbage.holds {
            self.hosting.end_hold(*lease, *hold);
        }
        for version in &garbage.versions {
            self.hosting.forget(*version);
        }
        if !garbage.is_empty() {
            // The receiver lives as long as the process.
            let _ = self.garbage.send(garbage);
        }
    }

    /// Watches a new lease's pipe. The keeper has it already.
    pub fn watch_lease(&self, lease: LeaseId, pipe: Arc<OwnedFd>) -> Result<(), Fault> {
        self.watch.add(Watched::Lease(lease), pipe).map_err(internal)
    }

    /// Accepts on a publish's listener from now on.
    pub fn watch_listener(&self, publish: &str, listener: Arc<OwnedFd>) -> Result<(), Fault> {
        self.watch.add(Watched::Listener(publish.to_owned()), listener).map_err(internal)
    }

    /// Stops accepting for a publish and ends its connections.
    pub fn end_publish(&self, publish: &str) {
        self.watch.remove(&Watched::Listener(publish.to_owned()));
        for connection in self.connections.lock().unwrap_or_else(PoisonError::into_inner).values() {
            if connection.publish == publish {
                // It may have ended by itself.
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        }
    }

    /// Waits until nobody has a connection through a publish any more: each holds its mount. They were sent away before.
    pub fn wait_for_no_connection(&self, publish: &str, patience: Duration) {
        let start = Instant::now();
        let any = || {
            let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
            connections.values().any(|connection| connection.publish == publish)
        };
        while any() && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Freezes a draft when no open is expected any more, unless somebody writes it then.
    pub fn freeze_soon(&self, volume: &str, draft: u64) {
        self.deferred.lock().unwrap_or_else(PoisonError::into_inner).push((volume.to_owned(), draft));
    }

    fn freeze_deferred(&self) {
        let all = std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner));
        for (volume, draft) in all {
            if let Err(fault) = crate::serve::view::freeze_unless_expected(self, &volume, draft) {
                tracing::error!(volume, node = draft, %fault, "a file that nobody writes any more could not be sealed");
            }
        }
    }

    /// A mounter serves these mounts now.
    pub fn note_served(&self, mounts: Vec<String>) {
        *self.served.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), mounts));
    }

    /// Is there a listener for this publish, and a mounter for its mount if it has one?
    pub fn is_served(&self, publish: &str, mounted: bool) -> bool {
        let served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        let by_mounter = served.as_ref().is_some_and(|(when, mounts)| {
            when.elapsed() < MOUNTER_SILENCE && mounts.iter().any(|served| served == publish)
        });
        (by_mounter || !mounted) && self.watch.has(&Watched::Listener(publish.to_owned()))
    }

    pub fn connection_count(&self) -> usize {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// A place for one more connection, or why there is none.
    pub fn admit(self: &Arc<Self>, publish: &str, stream: &UnixStream) -> Result<ConnectionGuard, Fault> {
        let stream = stream.try_clone().map_err(internal)?;
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let same = connections.values().filter(|c| c.publish == publish).count();
        if same >= MAX_CONNECTIONS_OF_PUBLISH || connections.len() >= MAX_CONNECTIONS {
            let message = format!(
                "too many connections: {same} of this pod (limit {MAX_CONNECTIONS_OF_PUBLISH}), {} on the node (limit {MAX_CONNECTIONS})",
                connections.len()
            );
            return Err(Fault::new(Code::LimitExceeded, message));
        }
        let id = self.next_connection.fetch_add(1, Ordering::Relaxed);
        connections.insert(id, Connection { publish: publish.to_owned(), stream });
        Ok(ConnectionGuard { node: self.clone(), id })
    }

    /// Volumes by their files against volumes by the log: a file is what makes a volume exist.
    fn reconcile_volumes(&self) -> Result<(), StartError> {
        let io = |error| StartError::Io { what: "the volumes' files".into(), error };
        let (files, unreadable) = self.provisions.all().map_err(io)?;
        let mut catalogue = self.catalogue();
        for id in &unreadable {
            if let Ok(volume) = catalogue.volume(id) {
                // What the log knows of it is newer than nothing.
                let file = Provisioned { written: true, ..Provisioned::new(&volume.spec) };
                self.provisions.write(&file).map_err(io)?;
            }
        }
        let unknown: Vec<String> = catalogue
            .volumes
            .keys()
            .filter(|id| !files.iter().any(|f| f.id == id.as_str()) && !unreadable.iter().any(|u| u == id.as_str()))
            .map(|id| id.as_str().to_owned())
            .collect();
        for id in unknown {
            tracing::info!(volume = %id, "its file is gone: finishing its deletion");
            self.reap(catalogue.commit(Fact::VolumeDeleted(id))?);
        }
        for mut file in files {
            let has_all = catalogue.has_all_memory(&file.id);
            if let Ok(volume) = catalogue.volume_mut(&file.id) {
                volume.written = file.written;
                if !has_all && volume.lost_ms == 0 {
                    tracing::error!(volume = %file.id, "a part of its content was lost: the store ended while it gave everything to a new keeper");
                    volume.lost_ms = now_ms();
                    file.lost_ms = volume.lost_ms;
                    self.provisions.write(&file).map_err(io)?;
                }
                continue;
            }
            if file.written && file.lost_ms == 0 {
                file.lost_ms = now_ms();
                tracing::error!(volume = %file.id, "its content was lost: keeper and store were gone together, or the node was rebooted");
            }
            file.boot = boot_id();
            self.provisions.write(&file).map_err(io)?;
            let root = catalogue.new_id();
            let spec = Some(file.spec());
            let root_meta = Some(meta::of_directory(now_ms(), (0, 0)));
            let created = VolumeCreated { spec, lost_ms: file.lost_ms, root, bound_device: Vec::new(), root_meta };
            self.reap(catalogue.commit(Fact::VolumeCreated(created))?);
        }
        Ok(())
    }

    /// Watches leases and listeners that outlived the last store; what no record speaks of is let go.
    fn watch_again(
        &self,
        leases: HashMap<LeaseId, Arc<OwnedFd>>,
        listeners: HashMap<String, Arc<OwnedFd>>,
        leftovers: &mut Garbage,
    ) {
        let mut catalogue = self.catalogue();
        let without_pipe: Vec<LeaseId> =
            catalogue.leases.iter().filter(|(id, l)| !l.mount && !leases.contains_key(id)).map(|(id, _)| *id).collect();
        for id in without_pipe {
            if let Ok(garbage) = catalogue.commit(Fact::LeaseEnded(id.0.to_vec())) {
                leftovers.merge(garbage);
            }
        }
        for (id, pipe) in leases {
            let known = catalogue.leases.contains_key(&id);
            if !known || self.watch_lease(id, pipe).is_err() {
                leftovers.keys.push(id.key());
            }
        }
        for (publish, listener) in listeners {
            let known = catalogue.publishes.contains_key(&publish);
            if !known || self.watch_listener(&publish, listener).is_err() {
                leftovers.keys.push(listener_key(&publish));
            }
        }
    }

    /// Mounts that outlived the last store, and drafts that it was about to freeze.
    fn mount_again(&self, mounts: BTreeMap<String, (Arc<OwnedFd>, Arc<OwnedFd>)>, leftovers: &mut Garbage) {
        let catalogue = self.catalogue();
        for (publish, (fuse, journal)) in mounts {
            let known = catalogue.publishes.get(&publish).filter(|_| catalogue.mounts.contains_key(&publish));
            if let Some(known) = known {
                let mount = MountFds::new(&known.volume, fuse, journal);
                self.mounts().insert(publish, mount);
            } else {
                leftovers.keys.extend([fuse_key(&publish), journal_key(&publish)]);
            }
        }
        drop(catalogue);
        crate::serve::view::freeze_what_nobody_writes(self);
    }

    /// The mounts of this node by their publishes. Not to be held while the catalogue is asked for.
    pub fn mounts(&self) -> MutexGuard<'_, BTreeMap<String, MountFds>> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn_workers(self: &Arc<Self>, queue: Receiver<Garbage>) -> std::io::Result<()> {
        let spawn = |name: &str, body: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.into()).spawn(body).map(|_| ())
        };
        let node = self.clone();
        spawn("reaper", Box::new(move || node.reap_forever(&queue)))?;
        let node = self.clone();
        spawn("watcher", Box::new(move || node.watch_forever()))?;
        let node = self.clone();
        spawn(
            "freezer",
            Box::new(move || {
                loop {
                    std::thread::sleep(Duration::from_millis(20));
                    node.freeze_deferred();
                }
            }),
        )?;
        let node = self.clone();
        spawn(
            "housekeeper",
            Box::new(move || {
                loop {
                    std::thread::sleep(Duration::from_millis(200));
                    node.keeper.check();
                    node.compact_if_wanted();
                    node.catalogue().graves.expire();
                }
            }),
        )
    }

    fn reap_forever(&self, queue: &Receiver<Garbage>) {
        while let Ok(mut garbage) = queue.recv() {
            // The GPU's driver frees gigabytes under a lock that the put which replaced them wants too.
            std::thread::sleep(REAP_DELAY);
            while let Ok(more) = queue.try_recv() {
                garbage.merge(more);
            }
            if !garbage.keys.is_empty() {
                self.keeper.drop_keys(&garbage.keys);
            }
            for (slab, offset, len) in &garbage.holes {
                self.punch(slab, *offset, *len);
            }
            drop(garbage);
        }
    }

    /// Gives pages of a slab back, unless an object has moved in meanwhile.
    fn punch(&self, slab: &OwnedFd, offset: u64, len: u64) {
        use rustix::fs::FallocateFlags;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let catalogue = self.catalogue();
        let free = catalogue.volumes.values().any(|v| {
            v.slabs.ids().any(|id| {
                let same = catalogue.fd(id).is_some_and(|fd| std::ptr::eq(fd.as_ref(), slab));
                same && v.slabs.is_free(id, offset, len)
            })
        });
        if free {
            // Pages that stay are given back with the slab.
            let _ = rustix::fs::fallocate(slab, flags, offset, len);
        }
    }

    fn compact_if_wanted(&self) {
        let generation = {
            let catalogue = self.catalogue();
            if !catalogue.wants_compaction() {
                return;
            }
            catalogue.log().generation() + 1
        };
        let fresh = match Log::create(generation) {
            Ok(fresh) => fresh,
            Err(error) => return tracing::error!(%error, "no new log to compact the catalogue into"),
        };
        let held = hold_log(&self.keeper, &fresh);
        let compacted = held.map_err(|f| f.to_string()).and_then(|()| {
            let mut catalogue = self.catalogue();
            let before = catalogue.log().size();
            let old = catalogue.compact(fresh).map_err(|e| e.to_string())?;
            tracing::info!(before, after = catalogue.log().size(), "compacted the catalogue");
            Ok(old)
        });
        match compacted {
            Ok(old) => self.keeper.drop_keys(&[old]),
            Err(error) => tracing::error!(error, "the catalogue was not compacted"),
        }
    }

    fn watch_forever(self: &Arc<Self>) {
        loop {
            let turned = self.watch.turn(|what, fd| match what {
                Watched::Lease(lease) => self.lease_hung_up(*lease),
                Watched::Listener(publish) => crate::serve::session::accept(self, publish, fd),
            });
            if let Err(error) = turned {
                tracing::error!(%error, "waiting for connections and leases failed");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn lease_hung_up(&self, lease: LeaseId) {
        let ended = self.catalogue().commit(Fact::LeaseEnded(lease.0.to_vec()));
        match ended {
            Ok(mut garbage) => {
                // Also when the lease was not known: its pipe must go.
                garbage.leases.push(lease);
                garbage.keys.push(lease.key());
                tracing::debug!(?lease, "a lease ended");
                self.reap(garbage);
                self.announce();
            }
            Err(fault) => {
                tracing::error!(%fault, ?lease, "the end of a lease was not recorded");
                self.watch.remove(&Watched::Lease(lease));
            }
        }
    }
}

/// What the keeper held, by what it is.
#[derive(Default)]
struct TakenBack {
    logs: Vec<(String, Arc<OwnedFd>)>,
    memory: HashMap<u64, Arc<OwnedFd>>,
    leases: HashMap<LeaseId, Arc<OwnedFd>>,
    listeners: HashMap<String, Arc<OwnedFd>>,
    mounts: BTreeMap<String, (Arc<OwnedFd>, Arc<OwnedFd>)>,
    /// What nobody uses after a store has ended.
    stale: Vec<String>,
}

impl TakenBack {
    fn sort(held: BTreeMap<String, Arc<OwnedFd>>) -> Self {
        let mut taken = Self::default();
        let (mut fuse, mut journals) = (BTreeMap::new(), BTreeMap::new());
        for (key, fd) in held {
            if key.starts_with("log/") {
                taken.logs.push((key, fd));
            } else if let Some(id) = key.strip_prefix("mem/").and_then(|id| id.parse().ok()) {
                taken.memory.insert(id, fd);
            } else if let Some(lease) = LeaseId::from_key(&key) {
                taken.leases.insert(lease, fd);
            } else if let Some(publish) = key.strip_prefix("listener/") {
                taken.listeners.insert(publish.to_owned(), fd);
            } else if let Some(publish) = key.strip_prefix("fuse/") {
                fuse.insert(publish.to_owned(), fd);
            } else if let Some(publish) = key.strip_prefix("journal/") {
                journals.insert(publish.to_owned(), fd);
            } else if key.starts_with("replica/") {
                taken.stale.push(key);
            } else {
                tracing::warn!(key, "the keeper holds something that is not the store's");
            }
        }
        for (publish, fuse) in fuse {
            match journals.remove(&publish) {
                Some(journal) => drop(taken.mounts.insert(publish, (fuse, journal))),
                None => taken.stale.push(fuse_key(&publish)),
            }
        }
        taken.stale.extend(journals.keys().map(|publish| journal_key(publish)));
        taken
    }
}

/// The keeper's name for a publish's listener.
pub fn listener_key(publish: &str) -> String {
    format!("listener/{publish}")
}

/// The keeper's name for a mount's `/dev/fuse`.
pub fn fuse_key(publish: &str) -> String {
    format!("fuse/{publish}")
}

/// The keeper's name for a mount's journal.
pub fn journal_key(publish: &str) -> String {
    format!("journal/{publish}")
}

/// The log that counts, or a new one; and the keys of the others.
fn pick_log(logs: Vec<(String, Arc<OwnedFd>)>, keeper: &KeeperLink) -> Result<(Log, Vec<String>), StartError> {
    let mut stale = Vec::new();
    let mut best: Option<Log> = None;
    for (key, fd) in logs {
        let fd = fd.try_clone().map_err(|error| StartError::Io { what: key.clone(), error })?;
        match Log::open(&key, fd)? {
            Some(log) if best.as_ref().is_none_or(|b| b.generation() < log.generation()) => {
                stale.extend(best.replace(log).map(|b| Log::key(b.generation())));
            }
            _ => stale.push(key),
        }
    }
    if let Some(log) = best {
        return Ok((log, stale));
    }
    let log = Log::create(1)?;
    hold_log(keeper, &log)?;
    log.complete()?;
    Ok((log, stale.into_iter().filter(|key| *key != Log::key(1)).collect()))
}

fn hold_log(keeper: &KeeperLink, log: &Log) -> Result<(), Fault> {
    let fd = log.fd().try_clone_to_owned().map_err(internal)?;
    keeper.hold(&[(Log::key(log.generation()), Arc::new(fd))])
}

/// Milliseconds since the epoch.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Nanoseconds since the epoch.
pub fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// A failure of the machine below us.
pub fn internal(error: impl std::fmt::Display) -> Fault {
    Fault::new(Code::Internal, format!("the store could not do it: {error}"))
}
