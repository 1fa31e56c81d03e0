//! What this driver can do, said once: everything advertised here is exercised by csi-sanity.

use crate::csi::controller_service_capability::{self, rpc::Type as ControllerType};
use crate::csi::node_service_capability::{self, rpc::Type as NodeType};
use crate::csi::plugin_capability::{self, service::Type as ServiceType, volume_expansion::Type as ExpansionType};
use crate::csi::volume_capability::access_mode::Mode;
use crate::csi::volume_capability::{AccessType, MountVolume};
use crate::csi::{ControllerServiceCapability, NodeServiceCapability, PluginCapability, VolumeCapability};

/// The name under which Kubernetes knows this driver.
pub const DRIVER_NAME: &str = "csi.gpuvol.dev";

/// The plugin as a whole.
pub fn plugin() -> Vec<PluginCapability> {
    let service = |of| plugin_capability::Type::Service(plugin_capability::Service { r#type: i32::from(of) });
    let growth = plugin_capability::VolumeExpansion { r#type: ExpansionType::Online.into() };
    [
        service(ServiceType::ControllerService),
        service(ServiceType::VolumeAccessibilityConstraints),
        plugin_capability::Type::VolumeExpansion(growth),
    ]
    .map(|of| PluginCapability { r#type: Some(of) })
    .into()
}

/// The Controller service.
pub fn controller() -> Vec<ControllerServiceCapability> {
    [
        ControllerType::CreateDeleteVolume,
        ControllerType::ListVolumes,
        ControllerType::GetCapacity,
        ControllerType::SingleNodeMultiWriter,
    ]
    .map(|of| ControllerServiceCapability {
        r#type: Some(controller_service_capability::Type::Rpc(controller_service_capability::Rpc {
            r#type: of.into(),
        })),
    })
    .into()
}

/// The Node service.
pub fn node() -> Vec<NodeServiceCapability> {
    [
        NodeType::GetVolumeStats,
        NodeType::VolumeCondition,
        NodeType::ExpandVolume,
        NodeType::SingleNodeMultiWriter,
        NodeType::VolumeMountGroup,
    ]
    .map(|of| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc { r#type: of.into() })),
    })
    .into()
}

/// A use of a volume that this driver offers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// Nothing may be written, whatever the publish says.
    pub read_only: bool,
    /// Several publishes at once.
    pub shared: bool,
    /// The access mode's name in the specification.
    pub mode: &'static str,
    /// The pod's fsGroup, a GID. Whoever has the mount may connect, so nothing depends on it.
    pub group: Option<u32>,
}

/// A use of a volume that this driver does not offer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    #[error("volume capability is missing")]
    Missing,
    #[error("volume capability has no access type; use mount")]
    NoType,
    #[error("block volumes are not offered: a gpu-volume is a directory of objects; use volumeMode Filesystem")]
    Block,
    #[error("volume capability has no access mode; allowed are {ALLOWED_MODES}")]
    NoMode,
    #[error("access mode {0} is not offered, because GPU memory is on one node; allowed are {ALLOWED_MODES}")]
    Mode(String),
    #[error("file system type {0:?} is not offered: a gpu-volume has none; leave fsType out")]
    FileSystem(String),
    #[error("mount option {0:?} is not offered; allowed are ro, rw")]
    MountOption(String),
    #[error("volume mount group {0:?} is not a group id")]
    Group(String),
}

const ALLOWED_MODES: &str =
    "SINGLE_NODE_WRITER, SINGLE_NODE_READER_ONLY, SINGLE_NODE_SINGLE_WRITER, SINGLE_NODE_MULTI_WRITER";

impl Access {
    /// Reads one capability, or says why it is not offered.
    pub fn parse(capability: Option<&VolumeCapability>) -> Result<Self, AccessError> {
        let capability = capability.ok_or(AccessError::Missing)?;
        let mount = match &capability.access_type {
            None => return Err(AccessError::NoType),
            Some(AccessType::Block(_)) => return Err(AccessError::Block),
            Some(AccessType::Mount(mount)) => mount,
        };
        let number = capability.access_mode.ok_or(AccessError::NoMode)?.mode;
        let mode = Mode::try_from(number).map_err(|_| AccessError::Mode(number.to_string()))?;
        let (read_only, shared) = match mode {
            Mode::Unknown => return Err(AccessError::NoMode),
            Mode::SingleNodeWriter | Mode::SingleNodeSingleWriter => (false, false),
            Mode::SingleNodeReaderOnly => (true, false),
            Mode::SingleNodeMultiWriter => (false, true),
            Mode::MultiNodeReaderOnly | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter => {
                return Err(AccessError::Mode(mode.as_str_name().to_owned()));
            }
        };
        let read_only = read_only || read_only_option(mount)?;
        Ok(Self { read_only, shared, mode: mode.as_str_name(), group: group(mount)? })
    }

    /// All of them, for the calls that ask about several uses at once; none is an error too.
    pub fn parse_all(capabilities: &[VolumeCapability]) -> Result<Vec<Self>, AccessError> {
        if capabilities.is_empty() {
            return Err(AccessError::Missing);
        }
        capabilities.iter().map(|capability| Self::parse(Some(capability))).collect()
    }
}

fn read_only_option(mount: &MountVolume) -> Result<bool, AccessError> {
    if !mount.fs_type.is_empty() {
        return Err(AccessError::FileSystem(mount.fs_type.clone()));
    }
    let mut read_only = false;
    for flag in &mount.mount_flags {
        match flag.as_str() {
            "ro" => read_only = true,
            "rw" => {}
            // The flag itself may be sensitive by the specification, but a name that was mistyped has to be shown.
            other => return Err(AccessError::MountOption(other.split('=').next().unwrap_or_default().to_owned())),
        }
    }
    Ok(read_only)
}

fn group(mount: &MountVolume) -> Result<Option<u32>, AccessError> {
    match mount.volume_mount_group.as_str() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(|_| AccessError::Group(text.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::csi::volume_capability::{AccessMode, BlockVolume};

    fn mount(mode: Mode, mount: MountVolume) -> VolumeCapability {
        let access_mode = Some(AccessMode { mode: mode.into() });
        VolumeCapability { access_type: Some(AccessType::Mount(mount)), access_mode }
    }

    fn flags(flags: &[&str]) -> MountVolume {
        MountVolume { mount_flags: flags.iter().map(|f| (*f).to_owned()).collect(), ..MountVolume::default() }
    }

    #[test]
    fn all_uses_on_one_node_are_offered() {
        for (mode, read_only, shared) in [
            (Mode::SingleNodeWriter, false, false),
            (Mode::SingleNodeSingleWriter, false, false),
            (Mode::SingleNodeReaderOnly, true, false),
            (Mode::SingleNodeMultiWriter, false, true),
        ] {
            let access = Access::parse(Some(&mount(mode, MountVolume::default()))).unwrap();
            assert_eq!((access.read_only, access.shared), (read_only, shared), "{}", access.mode);
        }
    }

    #[test]
    fn everything_else_is_refused_with_a_way_out() {
        let parse = |capability| Access::parse(Some(&capability)).unwrap_err().to_string();
        for mode in [Mode::MultiNodeReaderOnly, Mode::MultiNodeSingleWriter, Mode::MultiNodeMultiWriter] {
            assert!(parse(mount(mode, MountVolume::default())).contains("SINGLE_NODE_MULTI_WRITER"));
        }
        let access_mode = Some(AccessMode { mode: Mode::SingleNodeWriter.into() });
        let block = VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), access_mode };
        assert!(parse(block).contains("Filesystem"));
        assert!(parse(mount(Mode::SingleNodeWriter, flags(&["noatime"]))).contains("noatime"));
        let ext4 = MountVolume { fs_type: "ext4".into(), ..MountVolume::default() };
        assert!(parse(mount(Mode::SingleNodeWriter, ext4)).contains("ext4"));
        assert_eq!(Access::parse(None), Err(AccessError::Missing));
        assert_eq!(Access::parse_all(&[]), Err(AccessError::Missing));
    }

    #[test]
    fn the_value_of_a_mount_option_is_not_repeated() {
        let error = Access::parse(Some(&mount(Mode::SingleNodeWriter, flags(&["password=hunter2"])))).unwrap_err();
        assert!(!error.to_string().contains("hunter2"));
    }

    #[test]
    fn options_and_group_are_read() {
        assert!(Access::parse(Some(&mount(Mode::SingleNodeWriter, flags(&["ro"])))).unwrap().read_only);
        let group = |text: &str| {
            let with = MountVolume { volume_mount_group: text.into(), ..MountVolume::default() };
            Access::parse(Some(&mount(Mode::SingleNodeWriter, with))).map(|access| access.group)
        };
        assert_eq!(group("1000"), Ok(Some(1000)));
        assert_eq!(group("wheel"), Err(AccessError::Group("wheel".into())));
    }
}
