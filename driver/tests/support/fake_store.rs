//! A store that does what a test tells it to: volumes and publishes in memory, faults on demand.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use gpuvol_csi::store_client::ADMIN_SOCKET;
use gpuvol_protocol::admin::{
    AdminAnswer, AdminOp, AdminReply, AdminRequest, Capacity, Node, Publish, Publishes, Volume, VolumeSpec, Volumes,
};
use gpuvol_protocol::message::{Done, Usage};
use gpuvol_protocol::{Channel, Code, Fault, Limits};

use super::fake_mounter::{self, FakeMounter};

/// What happens to the next call of a kind.
#[derive(Debug, Clone)]
pub enum Script {
    /// Answers this instead of doing it.
    Refuse(Code),
    /// Does it only after this time.
    Delay(Duration),
    /// Does it and closes the connection instead of answering.
    DoneButSilent,
    /// Does it as always.
    Pass,
}

#[derive(Default)]
struct State {
    volumes: BTreeMap<String, VolumeSpec>,
    publishes: BTreeMap<String, Served>,
    mounter: fake_mounter::Script,
    lost: BTreeMap<String, u64>,
    budget: u64,
    script: VecDeque<(&'static str, Script)>,
    calls: Vec<&'static str>,
}

/// What the store and its mounter hold of a publish.
struct Served {
    publish: Publish,
    listener: Option<OwnedFd>,
    mounter: Option<FakeMounter>,
}

/// The store, serving until the test ends.
pub struct FakeStore {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
}

impl FakeStore {
    pub fn start(state_directory: &Path) -> Self {
        let socket = state_directory.join(ADMIN_SOCKET);
        let state = Arc::new(Mutex::new(State { budget: 1 << 40, ..State::default() }));
        let store = Self { state, socket };
        store.listen();
        store
    }

    pub fn listen(&self) {
        std::fs::create_dir_all(self.socket.parent().unwrap()).unwrap();
        let _ = std::fs::remove_file(&self.socket);
        let listener = UnixListener::bind(&self.socket).unwrap();
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, state) = (stream.unwrap(), Arc::clone(&state));
                std::thread::spawn(move || serve(stream, &state));
            }
        });
    }

    /// Nobody can connect any more, as if the store were not running.
    pub fn hide(&self) {
        std::fs::remove_file(&self.socket).unwrap();
    }

    pub fn next(&self, call: &'static str, script: Script) {
        self.state.lock().unwrap().script.push_back((call, script));
    }

    pub fn set_budget(&self, bytes: u64) {
        self.state.lock().unwrap().budget = bytes;
    }

    /// The volume's content was lost, and it is not to be published.
    pub fn lose(&self, id: &str) {
        self.state.lock().unwrap().lost.insert(id.to_owned(), 1);
    }

    pub fn volumes(&self) -> Vec<String> {
        self.state.lock().unwrap().volumes.keys().cloned().collect()
    }

    pub fn publishes(&self) -> Vec<Publish> {
        self.state.lock().unwrap().publishes.values().map(|served| served.publish.clone()).collect()
    }

    /// What mounters do from now on, those that serve already included.
    pub fn mounter(&self, script: fake_mounter::Script) {
        let mut state = self.state.lock().unwrap();
        state.mounter = script;
        for mounter in state.publishes.values().filter_map(|served| served.mounter.as_ref()) {
            mounter.follow(script);
        }
    }

    /// Every mounter ends and nobody keeps its descriptor: mounts are left without a server.
    pub fn lose_mounts(&self) {
        self.state.lock().unwrap().publishes.values_mut().for_each(|served| served.mounter = None);
    }

    /// Closes every listener and forgets no publish: what is left when a listener is lost.
    pub fn close_listeners(&self) {
        self.state.lock().unwrap().publishes.values_mut().for_each(|served| served.listener = None);
    }

    /// Loses every publish, as when keeper and store ended together.
    pub fn forget_publishes(&self) {
        self.state.lock().unwrap().publishes.clear();
    }

    /// How often a call was made since the last look.
    pub fn take_calls(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.state.lock().unwrap().calls)
    }
}

fn serve(stream: UnixStream, state: &Mutex<State>) {
    let mut channel = Channel::new(stream, Limits::default());
    while let Ok(Some((request, fds))) = channel.receive::<AdminRequest>(None) {
        let op = request.op.unwrap();
        let script = {
            let mut state = state.lock().unwrap();
            state.calls.push(name(&op));
            let at = state.script.iter().position(|(call, _)| *call == name(&op));
            at.and_then(|at| state.script.remove(at)).map(|(_, script)| script)
        };
        let answer = match script {
            Some(Script::Refuse(code)) => Err(Fault::new(code, "refused by the test")),
            Some(Script::Delay(time)) => {
                std::thread::sleep(time);
                handle(&mut state.lock().unwrap(), op, fds)
            }
            Some(Script::DoneButSilent) => {
                let _ = handle(&mut state.lock().unwrap(), op, fds);
                return;
            }
            None | Some(Script::Pass) => handle(&mut state.lock().unwrap(), op, fds),
        };
        let answer = Some(answer.unwrap_or_else(AdminAnswer::Fault));
        if channel.send(&AdminReply { id: request.id, answer }, &[]).is_err() {
            return;
        }
    }
}

fn name(op: &AdminOp) -> &'static str {
    match op {
        AdminOp::CreateVolume(_) => "create",
        AdminOp::DeleteVolume(_) => "delete",
        AdminOp::GetVolume(_) => "get",
        AdminOp::ListVolumes(_) => "list",
        AdminOp::ExpandVolume(_) => "expand",
        AdminOp::GetCapacity(_) => "capacity",
        AdminOp::Publish(_) => "publish",
        AdminOp::Unpublish(unpublish) if unpublish.listener_only => "close",
        AdminOp::Unpublish(_) => "unpublish",
        AdminOp::ListPublishes(_) => "publishes",
        AdminOp::NodeStatus(_) => "node",
    }
}

fn handle(state: &mut State, op: AdminOp, mut fds: Vec<OwnedFd>) -> Result<AdminAnswer, Fault> {
    let promised: u64 = state.volumes.values().map(|v| v.capacity).sum();
    let free = state.budget.saturating_sub(promised);
    let done = Ok(AdminAnswer::Done(Done {}));
    match op {
        AdminOp::CreateVolume(spec) => {
            if spec.capacity > free {
                return Err(Fault::new(Code::OutOfMemory, "no room"));
            }
            state.volumes.insert(spec.id.clone(), spec.clone());
            Ok(AdminAnswer::Volume(report(state, &spec.id)?))
        }
        AdminOp::DeleteVolume(delete) => {
            if state.publishes.values().any(|served| served.publish.volume == delete.id) {
                return Err(Fault::new(Code::InUse, "it is published"));
            }
            state.volumes.remove(&delete.id);
            done
        }
        AdminOp::GetVolume(get) => Ok(AdminAnswer::Volume(report(state, &get.id)?)),
        AdminOp::ListVolumes(list) => {
            let mut ids = state.volumes.keys().filter(|id| **id > list.after);
            let volumes =
                ids.by_ref().take(list.limit as usize).map(|id| report(state, id)).collect::<Result<_, _>>()?;
            let more = ids.next().is_some();
            Ok(AdminAnswer::Volumes(Volumes { volumes, more }))
        }
        AdminOp::ExpandVolume(expand) => {
            let volume = state.volumes.get_mut(&expand.id).ok_or_else(|| Fault::new(Code::NotFound, "no volume"))?;
            if expand.capacity > volume.capacity + free {
                return Err(Fault::new(Code::OutOfMemory, "no room"));
            }
            volume.capacity = expand.capacity;
            Ok(AdminAnswer::Volume(report(state, &expand.id)?))
        }
        AdminOp::GetCapacity(_) => Ok(AdminAnswer::Capacity(Capacity { available: free, maximum: free / 2 })),
        AdminOp::Publish(publish) => {
            if state.lost.contains_key(&publish.volume) {
                return Err(Fault::new(Code::ContentLost, "its content was lost"));
            }
            let (id, descriptor) = (publish.publish.clone(), fds.remove(0));
            if publish.mount.is_some() {
                let mounter = Some(FakeMounter::start(descriptor, state.mounter));
                state.publishes.insert(id, Served { publish, listener: None, mounter });
            } else {
                let served = Served { publish, listener: None, mounter: None };
                state.publishes.entry(id).or_insert(served).listener = Some(descriptor);
            }
            done
        }
        AdminOp::Unpublish(unpublish) if unpublish.listener_only => {
            if let Some(served) = state.publishes.get_mut(&unpublish.publish) {
                served.listener = None;
            }
            done
        }
        AdminOp::Unpublish(unpublish) => {
            state.publishes.remove(&unpublish.publish);
            done
        }
        AdminOp::ListPublishes(_) => {
            let dumb = |s: &&Served| s.listener.is_none() || (s.publish.mount.is_some() && s.mounter.is_none());
            let unserved = state.publishes.values().filter(dumb).map(|s| s.publish.publish.clone()).collect();
            let publishes = state.publishes.values().map(|s| s.publish.clone()).collect();
            Ok(AdminAnswer::Publishes(Publishes { publishes, unserved }))
        }
        AdminOp::NodeStatus(_) => Ok(AdminAnswer::Node(Node { keeper_connected: true, ..Node::default() })),
    }
}

fn report(state: &State, id: &str) -> Result<Volume, Fault> {
    let spec = state.volumes.get(id).ok_or_else(|| Fault::new(Code::NotFound, format!("no volume {id}")))?;
    let usage = Usage { capacity: spec.capacity, used: 4096, entries: 1, max_entries: 100, ..Usage::default() };
    let lost_ms = state.lost.get(id).copied().unwrap_or(0);
    Ok(Volume { spec: Some(spec.clone()), usage: Some(usage), lost_ms, ..Volume::default() })
}
