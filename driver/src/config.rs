//! Command-line flags, checked once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::publish::{Best, MountMode};
use crate::target::Roots;

/// CSI plugin of gpuvol: volumes whose files live in GPU memory.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-csi", version)]
pub struct Flags {
    /// Socket to serve CSI on, for example unix:///csi/csi.sock.
    #[arg(long, env = "CSI_ENDPOINT", value_name = "URL")]
    endpoint: String,
    /// Socket to register with kubelet on, for example unix:///registration/csi.gpuvol.dev-reg.sock; without it a
    /// node-driver-registrar sidecar has to do it.
    #[arg(long, value_name = "URL")]
    registration: Option<String>,
    /// The endpoint's path as kubelet sees it; needed where the plugin's container sees another one.
    #[arg(long, value_name = "PATH", requires = "registration")]
    kubelet_endpoint: Option<PathBuf>,
    /// The node's state directory, shared with keeper and store; must outlive pods and reboots.
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// The node's name in Kubernetes.
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    node_name: String,
    /// Directory below which target paths may be; repeat it for several.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/kubelet")]
    kubelet_dir: Vec<PathBuf>,
    /// The most that a volume is at its target path; by default a view where FUSE can be used, else bind.
    #[arg(long, value_enum)]
    mount: Option<MountFlag>,
    /// How long the requests in a mount may stay unanswered before it is ended, in seconds: more than gpuvol-mounter's
    /// own --deadline, after which that answers with an error.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    hang_deadline: u32,
    /// What to log: error, warn, info, debug, trace, or a filter by module. Requests and secrets are logged at no level.
    #[arg(long, env = "GPUVOL_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MountFlag {
    /// A file system with the volume's files; needs /dev/fuse, and gpuvol-mounter on the node.
    View,
    /// A read-only mount of a directory that holds the store's socket.
    Bind,
    /// The socket in the target directory itself, where mounting is not permitted.
    None,
}

/// What the plugin runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// Absolute path of the socket to serve.
    pub endpoint: PathBuf,
    /// Where kubelet learns of the plugin, if the plugin sees to that itself.
    pub registration: Option<Registration>,
    /// Absolute path of the state directory.
    pub state: PathBuf,
    /// The node's name in Kubernetes, and CSI's node id.
    pub node_name: String,
    /// Below which target paths may be.
    pub roots: Roots,
    /// The most that a volume is at its target; `None` for what can be had.
    pub mount: Option<MountMode>,
    /// How long a mount may answer nothing.
    pub hang_deadline: Duration,
    /// A filter for [`crate::logging::start`].
    pub log: String,
}

/// How the plugin makes itself known to kubelet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Absolute path of the socket to serve, in kubelet's `plugins_registry`.
    pub socket: PathBuf,
    /// Absolute path of the CSI socket, as kubelet sees it.
    pub endpoint: PathBuf,
}

/// A flag that cannot be.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{flag} is {value:?}; want unix:// and an absolute path, for example unix:///csi/csi.sock")]
    Socket { flag: &'static str, value: String },
    #[error("--kubelet-endpoint is {}; want an absolute path", .0.display())]
    KubeletEndpoint(PathBuf),
    #[error("--state is {}; want an absolute path", .0.display())]
    State(PathBuf),
    #[error("--node-name is {0:?}; want a node's name, 1 to 253 characters of a-z, 0-9, '-' and '.'")]
    NodeName(String),
    #[error("--kubelet-dir must be an absolute path without '..'")]
    KubeletDir,
}

impl Flags {
    /// Checks every flag, so that nobody has to do it later.
    pub fn check(self) -> Result<Config, ConfigError> {
        let endpoint = socket("--endpoint", &self.endpoint)?;
        let registration = match &self.registration {
            Some(url) => {
                let endpoint = self.kubelet_endpoint.unwrap_or_else(|| endpoint.clone());
                if !endpoint.is_absolute() {
                    return Err(ConfigError::KubeletEndpoint(endpoint));
                }
                Some(Registration { socket: socket("--registration", url)?, endpoint })
            }
            None => None,
        };
        if !self.state.is_absolute() {
            return Err(ConfigError::State(self.state));
        }
        let name = &self.node_name;
        let fine = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
        if !(1..=253).contains(&name.len()) || !name.chars().all(fine) {
            return Err(ConfigError::NodeName(self.node_name));
        }
        Ok(Config {
            endpoint,
            registration,
            state: self.state,
            node_name: self.node_name,
            roots: Roots::new(self.kubelet_dir).ok_or(ConfigError::KubeletDir)?,
            mount: self.mount.map(|flag| match flag {
                MountFlag::View => MountMode::View,
                MountFlag::Bind => MountMode::Bind,
                MountFlag::None => MountMode::None,
            }),
            hang_deadline: Duration::from_secs(self.hang_deadline.into()),
            log: self.log,
        })
    }
}

fn socket(flag: &'static str, url: &str) -> Result<PathBuf, ConfigError> {
    url.strip_prefix("unix://")
        .or_else(|| url.strip_prefix("unix:"))
        .map(PathBuf::from)
        .filter(|path| path.is_absolute() && path.file_name().is_some())
        .ok_or_else(|| ConfigError::Socket { flag, value: url.to_owned() })
}

impl Config {
    /// How volumes appear: as asked for, or as a view where that can be had, and else as a bind mount.
    pub fn mount_mode(&self) -> MountMode {
        if let Some(mode) = self.mount {
            return mode;
        }
        let best = Best::here(Path::new("/"));
        if best.mode == MountMode::View {
            return MountMode::View;
        }
        tracing::warn!(why = best.why, "volumes are published without a view of their files");
        // Where nothing can be mounted, a publish says so.
        MountMode::Bind
    }

    /// The store's administration socket.
    pub fn store_socket(&self) -> PathBuf {
        self.state.join(Path::new(crate::store_client::ADMIN_SOCKET))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(more: &[&str]) -> Result<Config, ConfigError> {
        let mut all = vec!["gpuvol-csi", "--state", "/s", "--node-name", "n1", "--endpoint", "unix:///e/csi.sock"];
        all.extend(more);
        Flags::try_parse_from(all).unwrap().check()
    }

    #[test]
    fn flags_become_a_config() {
        let config = check(&["--kubelet-dir", "/a", "--kubelet-dir", "/b", "--mount", "none"]).unwrap();
        assert_eq!(config.endpoint, Path::new("/e/csi.sock"));
        assert_eq!(config.store_socket(), Path::new("/s/store/admin.sock"));
        assert_eq!(config.mount, Some(MountMode::None));
        assert_eq!(config.registration, None);
        let config = check(&["--registration", "unix:///r/reg.sock", "--kubelet-endpoint", "/k/csi.sock"]).unwrap();
        let want = Registration { socket: "/r/reg.sock".into(), endpoint: "/k/csi.sock".into() };
        assert_eq!(config.registration, Some(want));
    }

    #[test]
    fn wrong_flags_say_what_is_wanted() {
        let wrong = |flag: &str, value: &str| {
            let mut all = vec!["gpuvol-csi"];
            for (name, fine) in [("--state", "/s"), ("--node-name", "n1"), ("--endpoint", "unix:///e/csi.sock")] {
                all.extend([name, if name == flag { value } else { fine }]);
            }
            Flags::try_parse_from(all).unwrap().check().unwrap_err()
        };
        assert!(matches!(wrong("--endpoint", "tcp://0.0.0.0:1"), ConfigError::Socket { .. }));
        assert!(matches!(wrong("--endpoint", "unix://csi.sock"), ConfigError::Socket { .. }));
        assert!(matches!(wrong("--state", "state"), ConfigError::State(_)));
        assert!(matches!(wrong("--node-name", "a b"), ConfigError::NodeName(_)));
        assert_eq!(check(&["--kubelet-dir", "kubelet"]).unwrap_err(), ConfigError::KubeletDir);
    }
}
