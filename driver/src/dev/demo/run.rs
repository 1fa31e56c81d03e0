//! The stages, one after the other, first by gpu-volume and then by files.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

use super::measure::{Outcome, lines, outcome};
use super::site::{Site, scores_agree};
use super::{FILES, Report, Request, STAGES, VOLUME};
use crate::dev::device::Chosen;
use crate::dev::error::chain;
use crate::dev::interrupt::Interrupts;
use crate::dev::kubelet::{Kubelet, Volume};
use crate::dev::namespace::{DATA, Isolation};
use crate::dev::node::{Node, Plan};
use crate::dev::programs::Programs;
use crate::dev::python::Python;
use crate::dev::record::Layout;
use crate::dev::{Error, Result};
use crate::publish::Best;

/// The volume's size, in bytes: a promise; memory is taken when something is written.
const CAPACITY: u64 = 4 << 30;
/// How long one stage may take.
const STAGE: Duration = Duration::from_secs(600);
/// How long a CSI call may take while the node is taken away.
const ENDING: Duration = Duration::from_secs(5);

/// What every stage is run with.
struct Stages<'a> {
    request: &'a Request,
    python: &'a Python,
    site: &'a Site,
    isolated: bool,
}

/// What kubelet has done and has to undo.
struct Published {
    kubelet: Kubelet,
    volume: Option<Volume>,
    target: Option<PathBuf>,
}

/// The whole demo; whatever happens, the node is taken away before this returns.
pub async fn all(
    request: &Request,
    python: &Python,
    isolation: &Isolation,
    site: &Site,
    interrupts: &mut Interrupts,
) -> Result<Report> {
    let stages = Stages { request, python, site, isolated: !matches!(isolation, Isolation::None(_)) };
    let (device, first) = by_volume(&stages, interrupts).await?;
    let mut ways = vec![first];
    for via in FILES {
        ways.push(interrupts.or(stages.by_files(via)).await?);
    }
    let isolation = match isolation {
        Isolation::Mounts => "each stage in a mount namespace of its own".into(),
        Isolation::User => "each stage in a mount namespace of its own, in a user namespace".into(),
        Isolation::None(why) => format!("all in this mount namespace, because no other is permitted ({why})"),
    };
    Ok(Report { device, disk: site.disk(), isolation, scores_agree: scores_agree(&ways), ways })
}

/// A node, a volume on it, and the stages.
async fn by_volume(stages: &Stages<'_>, interrupts: &mut Interrupts) -> Result<(String, Outcome)> {
    let (request, site) = (stages.request, stages.site);
    let plan = Plan {
        layout: Layout { state: site.state() },
        targets: site.targets(),
        mode: Best::here(&site.state()).mode,
        capacity: CAPACITY,
        wish: request.wish,
        programs: Programs::find(request.bin_dir.as_deref())?,
        store_flags: request.store_flags.clone(),
        tied: true,
    };
    let node = Node::start(&plan, &(Arc::new(|_, _, _| {}) as _))?;
    let result = match interrupts.or(node.ready(request.wish)).await {
        Err(error) => Err(error),
        Ok((kubelet, chosen)) => {
            let mut published = Published { kubelet, volume: None, target: None };
            let result = interrupts.or(publish_and_run(stages, &mut published, &chosen)).await;
            let ended = published.end().await;
            result.and_then(|outcome| ended.map(|()| (chosen.to_string(), outcome)))
        }
    };
    node.stop().await;
    result
}

async fn publish_and_run(stages: &Stages<'_>, published: &mut Published, chosen: &Chosen) -> Result<Outcome> {
    let volume = published.kubelet.create("demo", CAPACITY, chosen.parameters()).await?;
    published.volume = Some(volume.clone());
    let device = match chosen {
        Chosen::Host => None,
        Chosen::Gpu(uuid, _) => Some(uuid.to_string()),
    };
    let (started, mut printed) = (Instant::now(), Vec::new());
    for stage in STAGES {
        let target = stages.site.target(&format!("demo-{stage}"), &volume.id)?;
        published.target = Some(target.clone());
        published.kubelet.publish(&volume, &target, stage).await?;
        printed.extend(lines(&stages.run(stage, VOLUME, &target, device.as_deref()).await?));
        published.kubelet.unpublish(&volume.id, &target, ENDING).await?;
        published.target = None;
    }
    outcome(VOLUME, &printed, started.elapsed().as_secs_f64())
}

impl Published {
    /// Undoes what was done, as far as the plugin still does it.
    async fn end(mut self) -> Result<()> {
        let Some(volume) = self.volume else { return Ok(()) };
        if let Some(target) = &self.target {
            self.kubelet.unpublish(&volume.id, target, ENDING).await?;
        }
        self.kubelet.delete(&volume.id, ENDING).await
    }
}

impl Stages<'_> {
    /// The three stages with a plain directory at `/data`.
    async fn by_files(&self, via: &str) -> Result<Outcome> {
        let (started, mut printed) = (Instant::now(), Vec::new());
        for stage in STAGES {
            printed.extend(lines(&self.run(stage, via, &self.site.files_of(via), None).await?));
        }
        outcome(via, &printed, started.elapsed().as_secs_f64())
    }

    /// Runs one stage to its end and answers what it printed.
    async fn run(&self, stage: &str, via: &str, data: &Path, device: Option<&str>) -> Result<String> {
        let child = self.command(stage, via, data, device)?.spawn().map_err(Error::system("start a stage"))?;
        let group = Group::of(&child);
        let output = tokio::time::timeout(STAGE, child.wait_with_output()).await;
        let (status, out, err) = match output {
            Err(_) => (format!("it took longer than {STAGE:?}"), String::new(), String::new()),
            Ok(Err(error)) => (chain(&error), String::new(), String::new()),
            Ok(Ok(output)) => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
                let (out, err) = (text(&output.stdout), text(&output.stderr));
                if output.status.success() {
                    group.ended();
                    return Ok(out);
                }
                (said(output.status), out, err)
            }
        };
        Err(Error::Stage { stage: stage.into(), via: via.into(), status, output: format!("{out}\n{err}") })
    }

    fn command(&self, stage: &str, via: &str, data: &Path, device: Option<&str>) -> Result<Command> {
        let program = std::env::current_exe().map_err(Error::system("find this program"))?;
        let mut command = Command::new(program);
        if self.isolated {
            command.arg("stage").arg("--data").arg(data).arg("--scratch").arg(self.site.scratch());
            // The state and the targets of the node; by volume, the files of the other ways too.
            let files = (via == VOLUME).then(|| self.site.files());
            for hidden in [self.site.state(), self.site.targets(), self.site.scratch()].into_iter().chain(files) {
                command.arg("--hide").arg(hidden);
            }
        } else {
            command.arg("tied");
        }
        let data = if self.isolated { Path::new(DATA) } else { data };
        let extension = if via == VOLUME { "arrow" } else { via };
        command.arg("--").arg(&self.python.interpreter).arg(self.python.scripts.join(format!("{stage}.py")));
        command.args(["--via", via]);
        for (option, holder, name) in [
            ("--output", "read", "flights"),
            ("--input", "clean", "flights"),
            ("--output", "clean", "features"),
            ("--input", "train", "features"),
        ] {
            if holder == stage {
                command.arg(option).arg(data.join(format!("{name}.{extension}")));
            }
        }
        if let Some(device) = device {
            command.args(["--device", device]);
        }
        if let (Some(rows), "read") = (self.request.rows, stage) {
            command.arg("--rows").arg(rows.to_string());
        }
        command
            .env("TMPDIR", self.site.temporary())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        Ok(command)
    }
}

fn said(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended".into(),
    }
}

/// A stage and what it started, killed unless the stage ended by itself.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // It may be gone already.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}
