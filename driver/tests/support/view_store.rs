//! A store for mounters, in memory: one volume, files as the view's protocol has them, and faults on demand.
#![allow(dead_code, reason = "every test program uses a part of it")]

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use gpuvol_protocol::message::{Allocation, AllocationKind, Done, Segment, Usage};
use gpuvol_protocol::view::*;
use gpuvol_protocol::{Channel, Code, Fault, Limits};
use rustix::fs::MemfdFlags;

/// Sealed files up to this size come whole.
const WHOLE: u64 = 64 * 1024;

type Answer = Result<(ViewAnswer, Vec<OwnedFd>), Fault>;
/// Names and nodes by cookie.
type Listing = BTreeMap<u64, (Vec<u8>, u64)>;
type Matcher = Box<dyn Fn(&ViewOp) -> bool + Send>;

pub struct ViewStore {
    socket: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    volume: Mutex<Volume>,
    /// Notified at every change of `volume`.
    changed: Condvar,
    connections: Mutex<Vec<UnixStream>>,
    /// Requests that match have their effect and no answer.
    hold: Mutex<Option<Matcher>>,
}

#[derive(Default)]
pub struct Volume {
    nodes: HashMap<u64, (Node, Body)>,
    handles: HashMap<u64, Handle>,
    /// What requests with an id did.
    done: HashMap<(String, u64), ViewAnswer>,
    sessions: Vec<(Session, OwnedFd, OwnedFd)>,
    last: u64,
    pub capacity: u64,
    /// How often each kind of request came.
    pub counts: HashMap<&'static str, u64>,
    pub held: u64,
    pub released_failed: u64,
}

enum Body {
    Directory { names: Listing, parent: u64, cookie: u64 },
    Link(Vec<u8>),
    Sealed { memory: File, allocation: u64 },
    Draft { memory: Option<File>, base: Vec<u8> },
}

#[derive(Clone)]
struct Handle {
    publish: String,
    node: u64,
    write: bool,
    backing: u32,
}

impl ViewStore {
    pub fn new(state: &Path) -> Self {
        std::fs::create_dir_all(state.join("store")).unwrap();
        let mut volume = Volume { capacity: 1 << 30, ..Volume::default() };
        let root =
            volume.add(NodeKind::Directory, 0o777, Body::Directory { names: BTreeMap::new(), parent: ROOT, cookie: 0 });
        assert_eq!(root, ROOT);
        let shared = Shared {
            volume: Mutex::new(volume),
            changed: Condvar::new(),
            connections: Mutex::default(),
            hold: Mutex::default(),
        };
        let store = Self { socket: state.join("store/view.sock"), shared: Arc::new(shared) };
        store.start();
        store
    }

    /// Listens anew; the volume is what it was.
    pub fn start(&self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let shared = Arc::clone(&self.shared);
        std::thread::spawn(move || {
            for socket in listener.incoming() {
                let socket = socket.unwrap();
                shared.connections.lock().unwrap().push(socket.try_clone().unwrap());
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || shared.serve(socket));
            }
        });
    }

    /// Breaks every connection and takes the socket away.
    pub fn stop(&self) {
        std::fs::remove_file(&self.socket).unwrap();
        for socket in self.shared.connections.lock().unwrap().drain(..) {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    pub fn volume(&self) -> std::sync::MutexGuard<'_, Volume> {
        self.shared.volume.lock().unwrap()
    }

    pub fn publish(&self, session: Session, fuse: OwnedFd, journal: OwnedFd) {
        self.volume().sessions.push((session, fuse, journal));
        self.shared.changed.notify_all();
    }

    pub fn unpublish(&self, publish: &str) {
        self.volume().sessions.retain(|(session, ..)| session.publish != publish);
        self.shared.changed.notify_all();
    }

    /// From now on requests that match have their effect and no answer.
    pub fn hold(&self, matcher: impl Fn(&ViewOp) -> bool + Send + 'static) {
        *self.shared.hold.lock().unwrap() = Some(Box::new(matcher));
    }

    /// Answers again. What was held stays unanswered, and its connection is broken.
    pub fn answer(&self) {
        *self.shared.hold.lock().unwrap() = None;
        self.shared.changed.notify_all();
    }

    pub fn wait(&self, what: &str, until: impl Fn(&Volume) -> bool) {
        let start = Instant::now();
        while !until(&self.volume()) {
            assert!(start.elapsed() < Duration::from_secs(10), "{what} did not happen");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The memory of a draft below the root.
    pub fn memory(&self, name: &str) -> File {
        let mut volume = self.volume();
        let node = volume.find(ROOT, name.as_bytes()).unwrap();
        match &volume.nodes[&node].1 {
            Body::Draft { memory: Some(memory), .. } => memory.try_clone().unwrap(),
            _ => panic!("{name} is no draft with memory"),
        }
    }

    /// A sealed file below the root, as the client library would put it.
    pub fn seal(&self, name: &str, content: &[u8]) -> u64 {
        let memory = memfd();
        memory.write_all_at(content, 0).unwrap();
        let mut volume = self.volume();
        let allocation = volume.last + 1000;
        let node = volume.add(NodeKind::File, 0o644, Body::Sealed { memory, allocation });
        volume.link(ROOT, name.as_bytes(), node);
        node
    }
}

impl Drop for ViewStore {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Shared {
    fn serve(&self, socket: UnixStream) {
        let mut channel = Channel::new(socket, Limits::default());
        while let Ok(Some((request, _))) = channel.receive::<ViewRequest>(None) {
            let Some(op) = request.op.clone() else { return };
            let answer = match &op {
                ViewOp::Sessions(sessions) => self.sessions(sessions),
                _ => self.volume.lock().unwrap().answer(&request),
            };
            if self.holds(&op) {
                return;
            }
            let (answer, fds) = answer.unwrap_or_else(|fault| (ViewAnswer::Fault(fault), Vec::new()));
            let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
            if channel.send(&ViewReply { answer: Some(answer) }, &fds).is_err() {
                return;
            }
        }
    }

    fn holds(&self, op: &ViewOp) -> bool {
        let matches = || self.hold.lock().unwrap().as_ref().is_some_and(|matcher| matcher(op));
        if !matches() {
            return false;
        }
        let mut volume = self.volume.lock().unwrap();
        volume.held += 1;
        while matches() {
            volume = self.changed.wait_timeout(volume, Duration::from_millis(20)).unwrap().0;
        }
        volume.held -= 1;
        true
    }

    fn sessions(&self, asked: &Sessions) -> Answer {
        let until = Instant::now() + Duration::from_millis(asked.wait_ms);
        let mut volume = self.volume.lock().unwrap();
        loop {
            let listed: Vec<_> = volume.sessions.iter().map(|(session, ..)| session.publish.clone()).collect();
            let same = listed.len() == asked.known.len() && listed.iter().all(|p| asked.known.contains(p));
            let left = until.saturating_duration_since(Instant::now());
            if !same || left.is_zero() {
                break;
            }
            volume = self.changed.wait_timeout(volume, left).unwrap().0;
        }
        let mut list = SessionList::default();
        let mut fds = Vec::new();
        for (session, fuse, journal) in &volume.sessions {
            let mut session = session.clone();
            let of = |handle: &&Handle| handle.publish == session.publish && handle.backing != 0;
            session.backings = volume.handles.values().filter(of).map(|handle| handle.backing).collect();
            if !asked.known.contains(&session.publish) {
                if fds.len() + 2 > gpuvol_protocol::fdpass::MAX_FDS {
                    continue;
                }
                fds.extend([fuse.try_clone().unwrap(), journal.try_clone().unwrap()]);
            }
            list.sessions.push(session);
        }
        Ok((ViewAnswer::Sessions(list), fds))
    }
}

fn memfd() -> File {
    File::from(rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap())
}

fn fault(code: Code, what: &str) -> Fault {
    Fault::new(code, what)
}

fn done() -> Answer {
    Ok((ViewAnswer::Done(Done {}), Vec::new()))
}

impl Volume {
    pub fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or(0)
    }

    /// Distinct ids of the kernel's that are noted.
    pub fn backings(&self) -> std::collections::BTreeSet<u32> {
        self.handles.values().map(|handle| handle.backing).filter(|backing| *backing != 0).collect()
    }

    pub fn open_handles(&self) -> usize {
        self.handles.len()
    }

    fn add(&mut self, kind: NodeKind, mode: u32, body: Body) -> u64 {
        self.last += 1;
        let node =
            Node { id: self.last, kind: kind.into(), mode, links: 1, mtime_ns: 1_000_000_000, ..Node::default() };
        self.nodes.insert(self.last, (node, body));
        self.last
    }

    fn node(&self, id: u64) -> Result<Node, Fault> {
        let (node, body) = self.nodes.get(&id).ok_or_else(|| fault(Code::NotFound, "no such node"))?;
        let mut node = node.clone();
        match body {
            Body::Directory { .. } => {}
            Body::Link(target) => node.size = target.len() as u64,
            Body::Sealed { memory, .. } => node.size = memory.metadata().unwrap().size(),
            Body::Draft { memory, base } => {
                node.draft = true;
                node.size = memory.as_ref().map_or(base.len() as u64, |memory| memory.metadata().unwrap().size());
            }
        }
        node.allocated = node.size;
        Ok(node)
    }

    fn names(&mut self, directory: u64) -> Result<(&mut Listing, &mut u64), Fault> {
        match self.nodes.get_mut(&directory) {
            Some((_, Body::Directory { names, cookie, .. })) => Ok((names, cookie)),
            Some(_) => Err(fault(Code::NotADirectory, "not a directory")),
            None => Err(fault(Code::NotFound, "no such directory")),
        }
    }

    fn find(&mut self, directory: u64, name: &[u8]) -> Result<u64, Fault> {
        let found = self.names(directory)?.0.values().find(|(known, _)| known == name).map(|(_, id)| *id);
        found.ok_or_else(|| fault(Code::NotFound, "no such name"))
    }

    fn link(&mut self, directory: u64, name: &[u8], node: u64) {
        let (names, cookie) = self.names(directory).unwrap();
        if let Some((_, id)) = names.values_mut().find(|(known, _)| known == name) {
            *id = node;
            return;
        }
        *cookie += 1;
        names.insert(*cookie, (name.to_vec(), node));
    }

    fn unlink(&mut self, directory: u64, name: &[u8]) {
        self.names(directory).unwrap().0.retain(|_, (known, _)| known != name);
    }

    fn answer(&mut self, request: &ViewRequest) -> Answer {
        let Some(op) = &request.op else { return Err(fault(Code::Protocol, "nothing asked")) };
        let key = (request.publish.clone(), request.unique);
        if request.unique != 0
            && let Some(known) = self.done.get(&key)
        {
            return match known {
                ViewAnswer::Opened(opened) if opened.handle != 0 => self.describe(opened.handle),
                known => Ok((known.clone(), Vec::new())),
            };
        }
        let answer = self.act(&request.publish, request.unique, op)?;
        if request.unique != 0 {
            self.done.insert(key, answer.0.clone());
        }
        Ok(answer)
    }

    fn act(&mut self, publish: &str, unique: u64, op: &ViewOp) -> Answer {
        let kind = match op {
            ViewOp::Lookup(_) => "lookup",
            ViewOp::OpenFile(_) => "open",
            ViewOp::Backing(_) => "backing",
            ViewOp::Reserve(_) => "reserve",
            ViewOp::Flush(_) => "flush",
            ViewOp::Release(_) => "release",
            ViewOp::GetNode(_) => "getattr",
            ViewOp::MakeDirectory(_) => "mkdir",
            ViewOp::GetXattr(_) => "getxattr",
            ViewOp::Describe(_) => "describe",
            _ => "other",
        };
        *self.counts.entry(kind).or_default() += 1;
        let node = |node: Node| Ok((ViewAnswer::Node(node), Vec::new()));
        match op {
            ViewOp::Sessions(_) => Err(fault(Code::Internal, "answered elsewhere")),
            ViewOp::Lookup(lookup) => {
                let found = self.find(lookup.parent, &lookup.name)?;
                node(self.node(found)?)
            }
            ViewOp::GetNode(get) => node(self.node(get.node)?),
            ViewOp::ReadDirectory(read) => self.list(read),
            ViewOp::OpenFile(open) => self.open(publish, unique, open),
            ViewOp::CreateFile(create) => self.create(publish, unique, create),
            ViewOp::Describe(describe) => self.describe(describe.handle),
            ViewOp::Backing(note) => {
                self.handle(note.handle)?.backing = note.backing;
                done()
            }
            ViewOp::Reserve(reserve) => self.reserve(reserve),
            ViewOp::Flush(flush) => self.handle(flush.handle).and_then(|_| done()),
            ViewOp::Release(release) => self.release(release),
            ViewOp::SetAttributes(set) => {
                if let Some(size) = set.size {
                    self.resize(set.node, size)?;
                }
                let (known, _) = self.nodes.get_mut(&set.node).ok_or_else(|| fault(Code::NotFound, "no node"))?;
                known.mode = set.mode.unwrap_or(known.mode);
                known.uid = set.uid.unwrap_or(known.uid);
                known.gid = set.gid.unwrap_or(known.gid);
                known.mtime_ns = set.mtime_ns.unwrap_or(known.mtime_ns);
                node(self.node(set.node)?)
            }
            ViewOp::MakeDirectory(make) => {
                self.vacant(make.parent, &make.name)?;
                let body = Body::Directory { names: BTreeMap::new(), parent: make.parent, cookie: 0 };
                let id = self.add(NodeKind::Directory, make.mode, body);
                self.link(make.parent, &make.name, id);
                node(self.node(id)?)
            }
            ViewOp::MakeLink(make) => {
                self.vacant(make.parent, &make.name)?;
                let id = self.add(NodeKind::Link, 0o777, Body::Link(make.target.clone()));
                self.link(make.parent, &make.name, id);
                node(self.node(id)?)
            }
            ViewOp::ReadLink(read) => match self.nodes.get(&read.node) {
                Some((_, Body::Link(target))) => Ok((ViewAnswer::Value(Value { value: target.clone() }), Vec::new())),
                _ => Err(fault(Code::InvalidArgument, "not a link")),
            },
            ViewOp::Remove(remove) => {
                let id = self.find(remove.parent, &remove.name)?;
                if let Some((_, Body::Directory { names, .. })) = self.nodes.get(&id)
                    && !names.is_empty()
                {
                    return Err(fault(Code::NotEmpty, "not empty"));
                }
                self.unlink(remove.parent, &remove.name);
                done()
            }
            ViewOp::RenameNode(rename) => {
                let id = self.find(rename.parent, &rename.name)?;
                if rename.no_replace && self.find(rename.new_parent, &rename.new_name).is_ok() {
                    return Err(fault(Code::AlreadyExists, "it is there"));
                }
                if rename.exchange {
                    let other = self.find(rename.new_parent, &rename.new_name)?;
                    self.link(rename.parent, &rename.name, other);
                } else {
                    self.unlink(rename.parent, &rename.name);
                }
                self.link(rename.new_parent, &rename.new_name, id);
                done()
            }
            ViewOp::GetXattr(_) => Err(fault(Code::NoData, "no attribute")),
            ViewOp::ListXattrs(_) => {
                Ok((ViewAnswer::Value(Value { value: b"user.gpuvol.kind\0".to_vec() }), Vec::new()))
            }
            ViewOp::SetXattr(_) => done(),
            ViewOp::StatVolume(_) => {
                let usage = Usage {
                    capacity: self.capacity,
                    entries: self.nodes.len() as u64,
                    max_entries: 1000,
                    ..Usage::default()
                };
                Ok((ViewAnswer::Usage(usage), Vec::new()))
            }
        }
    }

    fn vacant(&mut self, directory: u64, name: &[u8]) -> Result<(), Fault> {
        match self.find(directory, name) {
            Ok(_) => Err(fault(Code::AlreadyExists, "it is there")),
            Err(fault) if fault.code() == Code::NotFound => Ok(()),
            Err(fault) => Err(fault),
        }
    }

    fn list(&mut self, read: &ReadDirectory) -> Answer {
        let parent = match self.nodes.get(&read.node) {
            Some((_, Body::Directory { parent, .. })) => *parent,
            _ => return Err(fault(Code::NotADirectory, "not a directory")),
        };
        let all: Vec<_> =
            self.names(read.node)?.0.range(read.after + 1..).map(|(c, (n, id))| (*c, n.clone(), *id)).collect();
        // Pages smaller than asked for are allowed.
        let limit = (read.limit as usize).min(20);
        let names = all.iter().take(limit);
        let names =
            names.map(|(cookie, name, id)| Name { name: name.clone(), cookie: *cookie, node: self.node(*id).ok() });
        let names = Names { names: names.collect(), more: all.len() > limit, parent };
        Ok((ViewAnswer::Names(names), Vec::new()))
    }

    fn handle(&mut self, handle: u64) -> Result<&mut Handle, Fault> {
        self.handles.get_mut(&handle).ok_or_else(|| fault(Code::NotFound, "no such handle"))
    }

    fn open(&mut self, publish: &str, unique: u64, open: &OpenFile) -> Answer {
        let Some((_, body)) = self.nodes.get_mut(&open.node) else { return Err(fault(Code::NotFound, "no node")) };
        match body {
            Body::Sealed { memory, .. } if open.write => {
                let base = read_all(memory);
                let draft = self.add(NodeKind::File, 0o644, Body::Draft { memory: None, base });
                let ids: Vec<u64> = self.nodes.keys().copied().collect();
                for id in ids {
                    if let Some((_, Body::Directory { names, .. })) = self.nodes.get_mut(&id) {
                        names.values_mut().filter(|(_, of)| *of == open.node).for_each(|(_, of)| *of = draft);
                    }
                }
                return Ok((ViewAnswer::Opened(Opened { stale: true, ..Opened::default() }), Vec::new()));
            }
            Body::Draft { .. } if open.truncate => self.resize(open.node, 0)?,
            Body::Sealed { .. } | Body::Draft { .. } => {}
            _ => return Err(fault(Code::IsADirectory, "not a file")),
        }
        let handle = Handle { publish: publish.to_owned(), node: open.node, write: open.write, backing: 0 };
        self.handles.insert(unique, handle);
        let (answer, fds) = self.describe(unique)?;
        let ViewAnswer::Opened(mut opened) = answer else { unreachable!() };
        let others =
            || self.handles.iter().filter(|(id, of)| **id != unique && of.node == open.node && of.publish == publish);
        let noted = others().map(|(_, of)| of.backing).max();
        opened.passthrough = open.passthrough && opened.segments.len() == 1 && noted != Some(0);
        if opened.passthrough {
            opened.backing = noted.unwrap_or(0);
        }
        Ok((ViewAnswer::Opened(opened), fds))
    }

    fn create(&mut self, publish: &str, unique: u64, create: &CreateFile) -> Answer {
        let id = match self.find(create.parent, &create.name) {
            Ok(_) if create.exclusive => return Err(fault(Code::AlreadyExists, "it is there")),
            Ok(id) => id,
            Err(_) => {
                let id = self.add(NodeKind::File, create.mode, Body::Draft { memory: None, base: Vec::new() });
                let (node, _) = self.nodes.get_mut(&id).unwrap();
                (node.uid, node.gid) = (create.uid, create.gid);
                self.link(create.parent, &create.name, id);
                id
            }
        };
        if create.closed {
            return Ok((ViewAnswer::Node(self.node(id)?), Vec::new()));
        }
        let open = OpenFile { node: id, write: create.write, truncate: create.truncate, passthrough: false };
        self.open(publish, unique, &open)
    }

    fn describe(&mut self, handle: u64) -> Answer {
        let known = self.handle(handle)?.clone();
        let node = self.node(known.node)?;
        let size = node.size;
        let mut opened =
            Opened { node: Some(node), write: known.write, handle, backing: known.backing, ..Opened::default() };
        opened.passthrough = known.backing != 0;
        let mut fds = Vec::new();
        match &self.nodes[&known.node].1 {
            Body::Sealed { memory, .. } if size <= WHOLE => opened.content = read_all(memory),
            Body::Sealed { memory, allocation } => {
                let kind = AllocationKind::Memfd.into();
                opened.allocations = vec![Allocation { id: *allocation, kind, len: size, ..Allocation::default() }];
                opened.segments = vec![Segment { len: size, ..Segment::default() }];
                fds.push(memory.try_clone().unwrap().into());
            }
            Body::Draft { memory: Some(memory), .. } => {
                opened.memory = true;
                opened.reserved = memory.metadata().unwrap().blocks() * 512;
                fds.push(memory.try_clone().unwrap().into());
            }
            Body::Draft { base, .. } => opened.content = base.clone(),
            _ => return Err(fault(Code::Internal, "a handle of no file")),
        }
        Ok((ViewAnswer::Opened(opened), fds))
    }

    fn reserve(&mut self, reserve: &Reserve) -> Answer {
        let taken: u64 = self
            .nodes
            .values()
            .map(|(_, body)| match body {
                Body::Sealed { memory, .. } | Body::Draft { memory: Some(memory), .. } => {
                    memory.metadata().unwrap().blocks() * 512
                }
                _ => 0,
            })
            .sum();
        let capacity = self.capacity;
        let Some((_, Body::Draft { memory, base })) = self.nodes.get_mut(&reserve.node) else {
            return Err(fault(Code::Stale, "no draft"));
        };
        let own = memory.as_ref().map_or(0, |memory| memory.metadata().unwrap().blocks() * 512);
        let least = reserve.size.max(base.len() as u64);
        let free = capacity - (taken - own);
        if least > free {
            return Err(fault(Code::QuotaExceeded, "the volume is full"));
        }
        let memory = memory.get_or_insert_with(|| {
            let fresh = memfd();
            fresh.write_all_at(base, 0).unwrap();
            fresh
        });
        let room = (least + reserve.ahead).min(free);
        let keep = rustix::fs::FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&*memory, keep, 0, room.max(1)).unwrap();
        let fds = vec![memory.try_clone().unwrap().into()];
        let opened = Opened { node: Some(self.node(reserve.node)?), memory: true, reserved: room, ..Opened::default() };
        Ok((ViewAnswer::Opened(opened), fds))
    }

    fn resize(&mut self, node: u64, size: u64) -> Result<(), Fault> {
        if let Some((_, Body::Draft { memory, base })) = self.nodes.get_mut(&node) {
            let memory = memory.get_or_insert_with(|| {
                let fresh = memfd();
                fresh.write_all_at(base, 0).unwrap();
                fresh
            });
            memory.set_len(size).unwrap();
            return Ok(());
        }
        Err(fault(Code::Stale, "sealed"))
    }

    fn release(&mut self, release: &Release) -> Answer {
        let handle = self.handles.remove(&release.handle).ok_or_else(|| fault(Code::NotFound, "no such handle"))?;
        self.released_failed += u64::from(release.failed);
        let writers = self.handles.values().filter(|other| other.node == handle.node && other.write).count();
        if handle.write && writers == 0 {
            let allocation = self.last + 5000;
            if let Some((_, body)) = self.nodes.get_mut(&handle.node)
                && let Body::Draft { memory, base } = body
            {
                let memory = memory.take().unwrap_or_else(memfd);
                if memory.metadata().unwrap().size() == 0 {
                    memory.write_all_at(base, 0).unwrap();
                }
                *body = Body::Sealed { memory, allocation };
            }
        }
        done()
    }
}

fn read_all(memory: &File) -> Vec<u8> {
    let mut bytes = vec![0; memory.metadata().unwrap().size() as usize];
    memory.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}
