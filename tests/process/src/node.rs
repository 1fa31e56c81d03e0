//! Starting, killing and asking the processes.

use std::fs;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use gpuvol_client::{ObjectPath, Volume};
use gpuvol_protocol::admin::{AdminAnswer, AdminOp, AdminReply, AdminRequest, Node, NodeStatus, Publish, VolumeSpec};
use gpuvol_protocol::message::Tier;
use gpuvol_protocol::{Channel, Fault, Limits};
use tempfile::TempDir;

/// How long anything may take to come up or happen.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// A binary of this workspace, built if it is not there.
pub fn binary(name: &str, package: &str) -> PathBuf {
    if let Some(directory) = std::env::var_os("GPUVOL_BIN") {
        return PathBuf::from(directory).join(name);
    }
    let exe = std::env::current_exe().unwrap();
    let target = exe.ancestors().find(|d| d.join("deps").is_dir() && d.join(".fingerprint").is_dir()).unwrap();
    let path = target.join(name);
    static BUILT: std::sync::Mutex<Vec<String>> = std::sync::Mutex::new(Vec::new());
    let mut built = BUILT.lock().unwrap();
    if !built.iter().any(|b| b == package) {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--package", package]);
        if target.ends_with("release") {
            cargo.arg("--release");
        }
        assert!(cargo.status().unwrap().success(), "{package} does not build");
        built.push(package.to_owned());
    }
    path
}

/// Keeper and store of one node. Ends both when dropped.
#[derive(Debug)]
pub struct TestNode {
    directory: TempDir,
    keeper: Option<Child>,
    store: Option<Child>,
    store_flags: Vec<String>,
    env: Vec<(String, String)>,
}

impl TestNode {
    pub fn start() -> Self {
        Self::with(&[], &[])
    }

    /// A node whose store sees the fake CUDA driver's GPUs.
    pub fn with_fake_gpu(env: &[(&str, &str)]) -> Self {
        let fake = binary("libgpuvol_fake_cuda.so", "gpuvol-fake-cuda");
        // The store asks NVML; its copier is what uses CUDA.
        let fake = fake.to_str().unwrap();
        let mut all = vec![("GPUVOL_LIBNVML", fake), ("GPUVOL_LIBCUDA", fake)];
        all.extend_from_slice(env);
        Self::with(&["--memfd-devices"], &all)
    }

    pub fn with(store_flags: &[&str], env: &[(&str, &str)]) -> Self {
        let mut node = Self {
            directory: tempfile::Builder::new().prefix("gpuvol").tempdir_in("/tmp").unwrap(),
            keeper: None,
            store: None,
            store_flags: store_flags.iter().map(ToString::to_string).collect(),
            env: env.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        };
        node.start_keeper();
        node.start_store();
        node
    }

    pub fn state(&self) -> &Path {
        self.directory.path()
    }

    fn spawn(&self, name: &str, flags: &[String]) -> Child {
        let log = fs::File::options().create(true).append(true).open(self.state().join(format!("{name}.log"))).unwrap();
        Command::new(binary(name, "gpuvol-store"))
            .arg("--state")
            .arg(self.state())
            .args(flags)
            .envs(self.env.iter().cloned())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    pub fn start_keeper(&mut self) {
        self.keeper = Some(self.spawn("gpuvol-keeper", &[]));
        let socket = self.state().join("keeper/keeper.sock");
        wait_for("the keeper", || UnixStream::connect(&socket).is_ok());
    }

    pub fn start_store(&mut self) {
        self.store = Some(self.spawn("gpuvol-store", &self.store_flags));
        wait_for("the store", || self.try_status().is_some());
    }

    /// SIGKILL.
    pub fn kill_store(&mut self) {
        end(self.store.take());
    }

    /// SIGKILL.
    pub fn kill_keeper(&mut self) {
        end(self.keeper.take());
    }

    pub fn store_pid(&self) -> u32 {
        self.store.as_ref().unwrap().id()
    }

    pub fn keeper_pid(&self) -> u32 {
        self.keeper.as_ref().unwrap().id()
    }

    /// What the store and the keeper logged, for a failing test's output.
    pub fn logs(&self) -> String {
        let read = |name| fs::read_to_string(self.state().join(name)).unwrap_or_default();
        format!("keeper:\n{}store:\n{}", read("gpuvol-keeper.log"), read("gpuvol-store.log"))
    }

    pub fn admin(&self, op: AdminOp, fds: &[BorrowedFd<'_>]) -> Result<AdminAnswer, Fault> {
        admin_call(&self.state().join("store/admin.sock"), op, fds).expect("the admin socket answers")
    }

    fn try_status(&self) -> Option<Node> {
        match admin_call(&self.state().join("store/admin.sock"), AdminOp::NodeStatus(NodeStatus {}), &[])? {
            Ok(AdminAnswer::Node(node)) => Some(node),
            _ => None,
        }
    }

    pub fn status(&self) -> Node {
        self.try_status().expect("the store says how it is")
    }

    /// Waits until the store's status is as wanted: leases end and memory is freed in the background.
    pub fn wait_status(&self, what: &str, mut good: impl FnMut(&Node) -> bool) {
        let mut last = None;
        let start = Instant::now();
        while start.elapsed() < DEADLINE {
            let status = self.status();
            if good(&status) {
                return;
            }
            last = Some(status);
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{what} did not happen: {last:#?}\n{}", self.logs());
    }

    pub fn create_volume(&self, spec: VolumeSpec) -> Result<(), Fault> {
        self.admin(AdminOp::CreateVolume(spec), &[]).map(|_| ())
    }

    /// A volume on the host tier, published for reading and writing.
    pub fn volume(&self, id: &str, capacity: u64) -> TestVolume {
        let spec = VolumeSpec { id: id.into(), name: id.into(), capacity, ..VolumeSpec::default() };
        self.create_volume(spec).unwrap();
        self.publish(id, "rw", false)
    }

    /// A volume on the GPU tier, published for reading and writing.
    pub fn gpu_volume(&self, id: &str, capacity: u64) -> TestVolume {
        let spec =
            VolumeSpec { id: id.into(), name: id.into(), capacity, tier: Tier::Gpu.into(), ..VolumeSpec::default() };
        self.create_volume(spec).unwrap();
        self.publish(id, "rw", false)
    }

    /// One more publish of a volume, as the plugin makes it.
    pub fn publish(&self, volume: &str, name: &str, read_only: bool) -> TestVolume {
        let mount = self.state().join(format!("mnt-{volume}-{name}"));
        fs::create_dir_all(&mount).unwrap();
        let listener = UnixListener::bind(mount.join(".gpuvol.sock")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(mount.join(".gpuvol.sock"), mode).unwrap();
        // A pod of another user must reach its mount.
        fs::set_permissions(self.state(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let publish = Publish {
            publish: format!("{volume}-{name}"),
            volume: volume.into(),
            target: mount.display().to_string(),
            read_only,
            pod: format!("tests/{name}"),
            shared: true,
            arguments: String::new(),
            mount: None,
        };
        self.admin(AdminOp::Publish(publish), &[listener.as_fd()]).unwrap();
        TestVolume { mount }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        end(self.store.take());
        end(self.keeper.take());
    }
}

/// A published volume.
#[derive(Debug, Clone)]
pub struct TestVolume {
    pub mount: PathBuf,
}

impl TestVolume {
    pub fn connect(&self) -> Volume {
        Volume::at_mount(&self.mount).unwrap()
    }
}

/// One admin request; `None` where nobody answers.
pub fn admin_call(socket: &Path, op: AdminOp, fds: &[BorrowedFd<'_>]) -> Option<Result<AdminAnswer, Fault>> {
    let mut channel = Channel::new(UnixStream::connect(socket).ok()?, Limits::default());
    channel.send(&AdminRequest { id: 1, op: Some(op) }, fds).ok()?;
    let (reply, _) = channel.receive::<AdminReply>(Some(DEADLINE)).ok()??;
    match reply.answer? {
        AdminAnswer::Fault(fault) => Some(Err(fault)),
        answer => Some(Ok(answer)),
    }
}

pub fn path(text: &str) -> ObjectPath {
    ObjectPath::new(text).unwrap()
}

pub fn wait_for(what: &str, mut there: impl FnMut() -> bool) {
    let start = Instant::now();
    while !there() {
        assert!(start.elapsed() < DEADLINE, "{what} did not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn end(child: Option<Child>) {
    if let Some(mut child) = child {
        let _ = child.kill();
        let _ = child.wait();
    }
}
