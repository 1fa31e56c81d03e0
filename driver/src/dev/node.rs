//! A running node: keeper, store, mounter and plugin under supervision, and a caller in kubelet's place.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpuvol_protocol::admin::Node as Status;

use super::device::{Chosen, Wish};
use super::kubelet::Kubelet;
use super::programs::{self, Programs};
use super::record::Layout;
use super::supervisor::{Observer, Spec, Supervised};
use super::{Error, Result};
use crate::publish::MountMode;
use crate::store_client::{Deadlines, StoreClient};

/// Until plugin and store answer.
const START: Duration = Duration::from_secs(30);
/// A program that ended this often during the start will not come up.
const MOST_RESTARTS: u32 = 3;
/// How long a program may take to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(3);
/// Host memory that a volume on a GPU may take beside it, for small objects and metadata, in bytes.
const BESIDE_GPU: u64 = 4 << 30;

/// What to run.
#[derive(Debug, Clone)]
pub struct Plan {
    pub layout: Layout,
    /// The directory below which volumes may be published.
    pub targets: PathBuf,
    pub mode: MountMode,
    /// The volume's size in bytes.
    pub capacity: u64,
    pub wish: Wish,
    pub programs: Programs,
    pub store_flags: Vec<String>,
    /// The programs end with this process, however it ends.
    pub tied: bool,
}

/// Processes of a node. Dropping this leaves them running.
#[derive(Debug)]
pub struct Node {
    /// In the order of their start.
    running: Vec<Supervised>,
    layout: Layout,
}

impl Node {
    /// Starts the programs. `observer` hears of every process that is started, now and later.
    pub fn start(plan: &Plan, observer: &Observer) -> Result<Self> {
        let layout = &plan.layout;
        super::place::make_private(&layout.logs())?;
        let mut node = Self { running: Vec::new(), layout: layout.clone() };
        let budget = plan.capacity.max(BESIDE_GPU);
        let mut all = vec![
            (programs::KEEPER, &plan.programs.keeper, programs::state(layout)),
            (programs::STORE, &plan.programs.store, programs::store(layout, budget, &plan.store_flags)),
        ];
        if plan.mode == MountMode::View {
            all.push((programs::MOUNTER, &plan.programs.mounter, programs::state(layout)));
        }
        all.push((programs::PLUGIN, &plan.programs.plugin, programs::plugin(layout, "dev", &plan.targets, plan.mode)));
        for (role, program, arguments) in all {
            let spec = Spec { role, program: program.clone(), arguments, log: layout.log(role), tied: plan.tied };
            node.running.push(Supervised::start(spec, Arc::clone(observer))?);
        }
        Ok(node)
    }

    /// Waits until plugin and store answer, and chooses where the volume will be.
    pub async fn ready(&self, wish: Wish) -> Result<(Kubelet, Chosen)> {
        let until = Instant::now() + START;
        let healthy = || self.running.iter().try_for_each(|program| program.check(MOST_RESTARTS));
        let kubelet = Kubelet::ready(&self.layout.plugin_socket(), &self.layout.logs(), START, healthy).await?;
        let left = until.saturating_duration_since(Instant::now()).max(Duration::from_secs(1));
        let chosen = wish.choose(&status(&self.layout, left).await?)?;
        Ok((kubelet, chosen))
    }

    /// Ends the programs, the keeper last.
    pub async fn stop(mut self) {
        while let Some(program) = self.running.pop() {
            program.stop(GRACE).await;
        }
    }
}

/// The store's own account of the node.
pub async fn status(layout: &Layout, patience: Duration) -> Result<Status> {
    let deadlines = Deadlines { connect: patience, call: patience };
    let store = StoreClient::new(layout.admin_socket(), deadlines);
    let asked = tokio::task::spawn_blocking(move || store.node()).await;
    asked.map_err(|e| Error::system("ask the store")(e.into()))?.map_err(Error::Store)
}
