//! A node for the tests: the real keeper and store over a state directory, volumes published as the plugin does it.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gpuvol_protocol::admin::{AdminAnswer, AdminOp, AdminReply, AdminRequest, Publish, VolumeSpec};
use gpuvol_protocol::message::Tier;
use gpuvol_protocol::{Channel, Limits};
use serde_json::Value;
use tempfile::TempDir;

pub const MIB: u64 = 1 << 20;
const DEADLINE: Duration = Duration::from_secs(20);

/// Arguments of mixed types.
macro_rules! args {
    ($($argument:expr),* $(,)?) => { vec![$(std::ffi::OsString::from($argument)),*] };
}
pub(crate) use args;

/// Ends its processes, by their ids, when dropped.
pub struct Node {
    directory: TempDir,
    processes: Vec<Child>,
    /// Of the command too.
    environment: Vec<(&'static str, PathBuf)>,
}

impl Node {
    pub fn start() -> Self {
        Self::with(&[], Vec::new())
    }

    /// A node with the GPUs of the fake CUDA driver, which the command sees too.
    pub fn with_fake_gpu() -> Self {
        let library = built("libgpuvol_fake_cuda.so", "gpuvol-fake-cuda");
        Self::with(&["--memfd-devices"], vec![("GPUVOL_LIBNVML", library.clone()), ("GPUVOL_LIBCUDA", library)])
    }

    fn with(flags: &[&str], environment: Vec<(&'static str, PathBuf)>) -> Self {
        // Paths of sockets end at 107 bytes.
        let directory = tempfile::Builder::new().prefix("gv").tempdir_in("/tmp").unwrap();
        let mut node = Self { directory, processes: Vec::new(), environment };
        node.spawn("gpuvol-keeper", &[]);
        wait_for("the keeper", || UnixStream::connect(node.state().join("keeper/keeper.sock")).is_ok());
        node.spawn("gpuvol-store", flags);
        wait_for("the store", || UnixStream::connect(node.state().join("store/admin.sock")).is_ok());
        node
    }

    fn spawn(&mut self, name: &str, flags: &[&str]) {
        let log = fs::File::create(self.state().join(format!("{name}.log"))).unwrap();
        let mut command = Command::new(built(name, "gpuvol-store"));
        command.arg("--state").arg(self.state()).args(flags).envs(self.environment.iter().cloned());
        self.processes.push(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap());
    }

    pub fn state(&self) -> &Path {
        self.directory.path()
    }

    /// A directory for ordinary files.
    pub fn plain(&self, name: &str) -> PathBuf {
        let path = self.state().join("plain");
        fs::create_dir_all(&path).unwrap();
        path.join(name)
    }

    pub fn kill_store(&mut self) {
        end(self.processes.pop().unwrap());
    }

    /// It is there, and does nothing.
    pub fn stop_store(&self) {
        let pid = rustix::process::Pid::from_child(self.processes.last().unwrap());
        rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    }

    pub fn admin(&self, op: AdminOp, fds: &[BorrowedFd<'_>]) -> AdminAnswer {
        let socket = UnixStream::connect(self.state().join("store/admin.sock")).unwrap();
        let mut channel = Channel::new(socket, Limits::default());
        channel.send(&AdminRequest { id: 1, op: Some(op) }, fds).unwrap();
        let (reply, _) = channel.receive::<AdminReply>(Some(DEADLINE)).unwrap().unwrap();
        match reply.answer.unwrap() {
            AdminAnswer::Fault(fault) => panic!("{fault}"),
            answer => answer,
        }
    }

    pub fn create(&self, id: &str, capacity: u64, tier: Tier) {
        let spec = VolumeSpec { id: id.into(), name: id.into(), capacity, tier: tier.into(), ..VolumeSpec::default() };
        self.admin(AdminOp::CreateVolume(spec), &[]);
    }

    /// Publishes a volume; answers where it is mounted.
    pub fn publish(&self, volume: &str, name: &str, read_only: bool) -> PathBuf {
        let mount = self.state().join(name);
        fs::create_dir_all(&mount).unwrap();
        let listener = UnixListener::bind(mount.join(".gpuvol.sock")).unwrap();
        let publish = Publish {
            publish: name.into(),
            volume: volume.into(),
            target: mount.display().to_string(),
            read_only,
            pod: "default/stage".into(),
            shared: true,
            arguments: String::new(),
            mount: None,
        };
        self.admin(AdminOp::Publish(publish), &[listener.as_fd()]);
        mount
    }

    /// A host volume, created and published under its id.
    pub fn volume(&self, id: &str, capacity: u64) -> PathBuf {
        self.create(id, capacity, Tier::Host);
        self.publish(id, id, false)
    }

    /// The command, ready to get arguments.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpuvol"));
        command.current_dir(self.state()).envs(self.environment.iter().cloned()).env_remove("NO_COLOR");
        command.env_remove("CLICOLOR_FORCE").stdin(Stdio::null());
        command
    }

    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Ran {
        Ran(self.command().args(arguments).output().unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["gpuvol-keeper.log", "gpuvol-store.log"] {
                eprintln!("{name}:\n{}", fs::read_to_string(self.state().join(name)).unwrap_or_default());
            }
        }
        while let Some(process) = self.processes.pop() {
            end(process);
        }
    }
}

fn end(mut process: Child) {
    let _ = process.kill();
    let _ = process.wait();
}

/// What a command did.
pub struct Ran(pub Output);

impl Ran {
    /// Panics where it failed; its standard output otherwise.
    #[track_caller]
    pub fn ok(self) -> String {
        assert!(self.0.status.success(), "{:?}: {}", self.0.status, self.err());
        assert_eq!(self.err(), "");
        String::from_utf8(self.0.stdout).unwrap()
    }

    #[track_caller]
    pub fn json(self) -> Value {
        serde_json::from_str(&self.ok()).unwrap()
    }

    /// Panics unless it ended with this code; its standard error otherwise.
    #[track_caller]
    pub fn fails(self, code: i32) -> String {
        let error = self.err();
        assert_eq!(self.0.status.code(), Some(code), "{error}");
        assert!(code == 2 || error.starts_with("gpuvol: "), "{error}");
        error
    }

    /// Failed, and said so in its report only.
    #[track_caller]
    pub fn fails_quietly(self) {
        assert_eq!(self.0.status.code(), Some(1), "{}", self.err());
        assert_eq!(self.err(), "");
    }

    pub fn err(&self) -> String {
        String::from_utf8(self.0.stderr.clone()).unwrap()
    }
}

/// A file that the workspace builds, built once where it is not there.
fn built(name: &str, package: &str) -> PathBuf {
    static BUILDING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = BUILDING.lock().unwrap();
    let target = Path::new(env!("CARGO_BIN_EXE_gpuvol")).parent().unwrap();
    let path = target.join(name);
    if !path.exists() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--package", package]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "{package} does not build");
    }
    path
}

fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < DEADLINE, "{what} did not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}
