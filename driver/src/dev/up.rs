//! `gpuvol-dev up`: a node of one's own, with one volume at one directory.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvol_protocol::types::Bytes;

use super::device::Wish;
use super::directory;
use super::find::{self, Found, Lock};
use super::programs::Programs;
use super::record::{Layout, Phase, Record, Wanted};
use super::supervisor::{open_log, tail};
use super::sweep::sweep;
use super::{Error, Result, place};
use crate::publish::{Best, MountMode};

/// Until the node is up.
const START: Duration = Duration::from_secs(45);
const LOOK: Duration = Duration::from_millis(10);
const SHORTER: &str = "give a shorter one with --state DIR";

/// What `up` was asked for.
#[derive(Debug, Clone)]
pub struct Request {
    /// `None` for a directory below the state directory.
    pub mount: Option<PathBuf>,
    /// Bytes.
    pub capacity: u64,
    pub wish: Wish,
    pub state: Option<PathBuf>,
    pub name: Option<String>,
    pub foreground: bool,
    pub bin_dir: Option<PathBuf>,
    pub store_flags: Vec<String>,
}

/// A node's own volume, by the name that CSI gets.
pub fn volume_name(node: &str) -> String {
    format!("dev-{node}")
}

/// Brings a node up, or finds that it is. Answers what to tell the user. In the foreground it comes back only with an
/// error, because the supervisor takes this process's place.
pub fn run(request: &Request) -> Result<String> {
    let (name, state, mount) = resolve(request)?;
    place::check_length(&state, SHORTER)?;
    check_capacity(request)?;
    Programs::find(request.bin_dir.as_deref())?;
    if let Some(text) = at_mount(&mount, request)? {
        return Ok(text);
    }
    if request.state.is_none() {
        place::make_root(&place::default_root())?;
    }
    let (state_made, _lock) = make_state(&state)?;
    if let Some(record) = Record::read(&state)? {
        if record.mount != mount {
            return Err(Error::NameTaken { name, mount: record.mount, state });
        }
        // Another `up` was quicker.
        if let Some(text) = already(&Found { state: state.clone(), record }, request)? {
            return Ok(text);
        }
    }
    let best = Best::here(&state);
    let before = match directory::prepare(&mount) {
        Ok(before) => before,
        Err(error) => {
            if state_made {
                let _ = fs::remove_dir(&state);
                let _ = fs::remove_dir(place::default_root());
            }
            return Err(error);
        }
    };
    let wanted = Wanted {
        capacity: request.capacity,
        device: request.wish.to_string(),
        mode: best.mode,
        why: best.why,
        bin_dir: request.bin_dir.as_deref().map(place::one_spelling).transpose()?,
        store_flags: request.store_flags.clone(),
    };
    let record = Record::new(name, mount, before, state_made, wanted);
    record.write(&state)?;
    place::make_private(&Layout { state: state.clone() }.logs())?;
    if request.foreground {
        let source = serve_command(&state)?.arg("--foreground").exec();
        sweep(&state, &record);
        return Err(Error::system("become the supervisor")(source));
    }
    match start(&state) {
        Ok(record) => Ok(guide(&state, &record)),
        Err(error) => {
            let record = Record::read(&state).ok().flatten().unwrap_or(record);
            let left = sweep(&state, &record);
            if !left.is_empty() {
                tracing::error!(?left, "left behind");
            }
            Err(error)
        }
    }
}

/// Name, state directory and mount, in their one spelling.
fn resolve(request: &Request) -> Result<(String, PathBuf, PathBuf)> {
    if let Some(name) = &request.name {
        place::check_name(name)?;
    }
    let mount = request.mount.as_deref().map(place::one_spelling).transpose()?;
    let name = request.name.clone().unwrap_or_else(|| mount.as_deref().map_or("default".into(), place::name_of));
    let state = match &request.state {
        Some(state) => place::one_spelling(state)?,
        None => place::default_root().join(&name),
    };
    let mount = mount.unwrap_or_else(|| state.join("mnt"));
    Ok((name, state, mount))
}

/// A volume is a promise of memory; more than there is cannot be kept. GPU memory is the store's to judge.
fn check_capacity(request: &Request) -> Result<()> {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total =
        meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok());
    let memory = total.map_or(u64::MAX, |kib: u64| kib * 1024);
    if request.wish == Wish::Host && request.capacity > memory {
        return Err(Error::Capacity { capacity: request.capacity, memory });
    }
    Ok(())
}

/// What to say of a node at the mount, wherever its state is; waits for another `up` or `down` that is at it.
fn at_mount(mount: &Path, request: &Request) -> Result<Option<String>> {
    let Some(found) = find::by_mount(mount)? else { return Ok(None) };
    let Some(_lock) = Lock::take(&found.state, START)? else { return Ok(None) };
    let Some(record) = Record::read(&found.state)? else { return Ok(None) };
    already(&Found { state: found.state, record }, request)
}

/// What to say of a node that is at the mount already; `None` where it is only the rest of a failed start.
fn already(found: &Found, request: &Request) -> Result<Option<String>> {
    let record = &found.record;
    match &record.phase {
        Phase::Failed(_) if !record.supervisor_lives() => {
            let left = sweep(&found.state, record);
            if left.is_empty() { Ok(None) } else { Err(Error::Left(left)) }
        }
        Phase::Up | Phase::Starting if record.supervisor_lives() => {
            let was = (record.wanted.capacity, record.wanted.device.clone());
            let wanted = (request.capacity, request.wish.to_string());
            if was != wanted {
                let text = |(capacity, device): (u64, String)| format!("{} on {device}", Bytes(capacity));
                let mount = record.mount.clone();
                return Err(Error::OtherArguments { mount, was: text(was), wanted: text(wanted) });
            }
            let record = wait(&found.state, None)?;
            Ok(Some(guide(&found.state, &record).replacen("is up", "is up already", 1)))
        }
        _ => Err(Error::HalfDead { mount: record.mount.clone(), state: found.state.clone() }),
    }
}

/// Makes the state directory, or takes an empty one that is there, and locks it.
fn make_state(state: &Path) -> Result<(bool, Lock)> {
    for _ in 0..8 {
        let made = place::make_private(state)?;
        // `None`: a `down` was quicker.
        let Some(lock) = Lock::take(state, START)? else { continue };
        let mut entries = fs::read_dir(state).map_err(Error::file("list", state))?;
        if !made && entries.next().is_some() && Record::read(state)?.is_none() {
            return Err(Error::StateTaken(state.to_owned()));
        }
        // Below the root of all nodes it is ours, whichever of several that came at once has made it.
        let ours = state.parent() == Some(place::default_root().as_path());
        return Ok((made || ours, lock));
    }
    Err(Error::Late { what: "making the state directory".into(), after: START, logs: state.to_owned() })
}

fn serve_command(state: &Path) -> Result<Command> {
    let program = std::env::current_exe().map_err(Error::system("find this program"))?;
    let mut command = Command::new(program);
    command.arg("serve").arg("--state").arg(state).current_dir("/");
    Ok(command)
}

/// Starts the supervisor and waits until the mount answers.
fn start(state: &Path) -> Result<Record> {
    let log = Layout { state: state.to_owned() }.log(super::record::SUPERVISOR);
    let mut child = serve_command(state)?
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(open_log(&log).map_err(Error::file("open", &log))?)
        .spawn()
        .map_err(Error::system("start the supervisor"))?;
    wait(state, Some(&mut child))
}

/// Waits until a node that starts is up, and says why where it is not.
fn wait(state: &Path, mut child: Option<&mut Child>) -> Result<Record> {
    let until = Instant::now() + START;
    let layout = Layout { state: state.to_owned() };
    loop {
        let ended = child.as_mut().is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
        let record = Record::read(state)?.ok_or_else(|| Error::Failed { why: "it was ended meanwhile".into() })?;
        match record.phase {
            Phase::Up => return Ok(record),
            Phase::Failed(why) => return Err(Error::Failed { why }),
            Phase::Ending => return Err(Error::Failed { why: "it was ended meanwhile".into() }),
            Phase::Starting if ended => {
                let why = format!("the supervisor ended: {}", tail(&layout.log(super::record::SUPERVISOR)));
                return Err(Error::Failed { why });
            }
            Phase::Starting if Instant::now() >= until => {
                return Err(Error::Late { what: "the node's start".into(), after: START, logs: layout.logs() });
            }
            Phase::Starting => std::thread::sleep(LOOK),
        }
    }
}

/// Where a node is, how to use it, and how to end it.
pub fn guide(state: &Path, record: &Record) -> String {
    let mount = record.mount.display();
    let device = record.device.as_deref().unwrap_or("memory");
    let why = &record.wanted.why;
    let how = match record.wanted.mode {
        MountMode::View => "a file system".to_owned(),
        MountMode::Bind => format!("a read-only mount; objects are put and got through its socket, for {why}"),
        MountMode::None => format!("a socket in the directory itself, for {why}"),
    };
    let quoted = format!("'{}'", record.mount.display().to_string().replace('\'', "'\\''"));
    let mut text = String::new();
    let mut line = |what: &str, value: &dyn std::fmt::Display| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  {what:<9} {value}");
    };
    line("volume", &format!("{} in {device}", Bytes(record.wanted.capacity)));
    line("at", &format!("{mount} ({how})"));
    match record.wanted.mode {
        MountMode::View => line("use", &format!("cp FILE {quoted}/name; ls -l {quoted}")),
        MountMode::Bind | MountMode::None => {
            line("use", &format!("gpuvol put FILE {quoted}/name; gpuvol ls {quoted}"));
        }
    }
    line("", &format!("Python: gpuvol.put(\"{mount}/name\", table); gpuvol.get(\"{mount}/name\")"));
    line("look", &"gpuvol dev status");
    line("end", &format!("gpuvol dev down --mount {quoted}"));
    line("logs", &Layout { state: state.to_owned() }.logs().display());
    format!("gpuvol: a node is up\n{}", text.trim_end())
}
