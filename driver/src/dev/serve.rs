//! The supervisor of one node: brings it up, keeps it up, and takes it away when asked to end.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;

use super::answer;
use super::error::chain;
use super::interrupt::Interrupts;
use super::kubelet::Kubelet;
use super::node::{Node, Plan};
use super::process::Identity;
use super::programs::Programs;
use super::record::{Layout, Phase, Record, SUPERVISOR};
use super::supervisor::Observer;
use super::sweep::sweep;
use super::up::{guide, volume_name};
use super::{Error, Result};
use crate::publish::MountMode;

/// How long the mount may take to answer after the publish.
const ANSWER: Duration = Duration::from_secs(10);
/// How long a CSI call may take while the node is taken away; what it would have done is then done without it.
const ENDING: Duration = Duration::from_secs(5);

/// The record of a node that runs, written whenever it changes.
#[derive(Debug, Clone)]
struct Shared {
    layout: Layout,
    record: Arc<Mutex<Record>>,
}

impl Shared {
    fn change(&self, change: impl FnOnce(&mut Record)) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut record);
        // The lock keeps writers in order; the file is small.
        if let Err(error) = record.write(&self.layout.state) {
            tracing::error!(error = chain(&error), "the node's record is out of date");
        }
    }

    fn copy(&self) -> Record {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Runs a node whose record `up` has written, until SIGTERM, SIGINT or a start that fails. In the foreground it stays in
/// its terminal's session and says how to use the node.
pub fn run(state: &Path, foreground: bool) -> Result<()> {
    let record = Record::read(state)?.ok_or_else(|| Error::StateTaken(state.to_owned()))?;
    if !foreground {
        // A session of its own: what ends a terminal does not end the node. It fails where it has one already.
        let _ = rustix::process::setsid();
    }
    let me = Identity::of(std::process::id())
        .ok_or_else(|| Error::system("read /proc/self/stat")(std::io::ErrorKind::NotFound.into()))?;
    let shared = Shared { layout: Layout { state: state.to_owned() }, record: Arc::new(Mutex::new(record)) };
    shared.change(|record| record.note(SUPERVISOR, me, 0));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(Error::system("start the runtime"))?;
    let outcome = serve(&runtime, &shared, foreground);
    runtime.shutdown_timeout(Duration::from_secs(1));
    let left = sweep_unless_failed(&shared, outcome.as_ref().err(), foreground);
    outcome?;
    if left.is_empty() { Ok(()) } else { Err(Error::Left(left)) }
}

/// A node that did not come up stays on record, for `up` to say why; `up` takes it away.
fn sweep_unless_failed(shared: &Shared, error: Option<&Error>, foreground: bool) -> Vec<String> {
    if let Some(error) = error {
        let why = chain(error);
        tracing::error!(why, "the node did not come up");
        if !foreground {
            shared.change(|record| record.phase = Phase::Failed(why));
            return Vec::new();
        }
    }
    sweep(&shared.layout.state, &shared.copy())
}

fn serve(runtime: &Runtime, shared: &Shared, foreground: bool) -> Result<()> {
    runtime.block_on(async {
        let mut interrupts = Interrupts::listen()?;
        let node = Node::start(&plan(shared)?, &observer(shared))?;
        let result = match interrupts.or(rise(&node, shared)).await {
            Ok(kubelet) => {
                shared.change(|record| record.phase = Phase::Up);
                if foreground {
                    println!("{}\nCtrl-C ends it as well.", guide(&shared.layout.state, &shared.copy()));
                }
                interrupts.any().await;
                shared.change(|record| record.phase = Phase::Ending);
                withdraw(kubelet, shared).await;
                Ok(())
            }
            Err(Error::Interrupted) => Ok(()),
            Err(error) => Err(error),
        };
        node.stop().await;
        result
    })
}

fn plan(shared: &Shared) -> Result<Plan> {
    let record = shared.copy();
    let wish = record.wanted.device.parse().map_err(|why| Error::Failed { why })?;
    Ok(Plan {
        layout: shared.layout.clone(),
        targets: record.mount.parent().unwrap_or(Path::new("/")).to_owned(),
        mode: record.wanted.mode,
        capacity: record.wanted.capacity,
        wish,
        programs: Programs::find(record.wanted.bin_dir.as_deref())?,
        store_flags: record.wanted.store_flags,
        tied: false,
    })
}

fn observer(shared: &Shared) -> Observer {
    let shared = shared.clone();
    Arc::new(move |role, identity, restarts| shared.change(|record| record.note(role, identity, restarts)))
}

/// From running programs to a mount that answers, as provisioner and kubelet do it.
async fn rise(node: &Node, shared: &Shared) -> Result<Kubelet> {
    let record = shared.copy();
    let wish = record.wanted.device.parse().map_err(|why| Error::Failed { why })?;
    let (mut kubelet, chosen) = node.ready(wish).await?;
    let name = volume_name(&record.name);
    let volume = kubelet.create(&name, record.wanted.capacity, chosen.parameters()).await?;
    shared.change(|record| {
        record.volume = Some(volume.id.clone());
        record.device = Some(chosen.to_string());
    });
    kubelet.publish(&volume, &record.mount, &record.name).await?;
    if record.wanted.mode == MountMode::View {
        // The publish has asked in the mount itself; a process that waits for a mounter cannot be ended.
        return Ok(kubelet);
    }
    let mount = record.mount.clone();
    let answered = tokio::task::spawn_blocking(move || answer::wait(&mount, ANSWER)).await;
    answered.map_err(|e| Error::system("wait for the mount")(e.into()))??;
    Ok(kubelet)
}

/// Unpublishes and deletes. What fails here is done without the plugin afterwards.
async fn withdraw(mut kubelet: Kubelet, shared: &Shared) {
    let record = shared.copy();
    let Some(volume) = &record.volume else { return };
    if let Err(error) = kubelet.unpublish(volume, &record.mount, ENDING).await {
        tracing::warn!(error = chain(&error), "not unpublished by the plugin");
        return;
    }
    if let Err(error) = kubelet.delete(volume, ENDING).await {
        tracing::warn!(error = chain(&error), "not deleted by the plugin");
    }
}
