//! StorageClass parameters, and the volume context that carries them to the node.

use std::collections::HashMap;

use gpuvol_protocol::DeviceUuid;
use gpuvol_protocol::admin::OnLoss;
use gpuvol_protocol::message::Tier;

/// Where objects live: `gpu` (default) or `host`.
pub const TIER: &str = "gpuvol.dev/tier";
/// Which GPU: `auto` (default: that of the first device put) or a UUID. Only with tier `gpu`.
pub const DEVICE: &str = "gpuvol.dev/device";
/// What a publish does after the content was lost: `fail` (default) or `empty`.
pub const ON_LOSS: &str = "gpuvol.dev/on-loss";
/// What a pod sees at the mount path: `view` (default: the volume's files) or `none` (the socket only).
pub const FILES: &str = "gpuvol.dev/files";

const ALLOWED: [&str; 4] = [TIER, DEVICE, ON_LOSS, FILES];
/// Keys with this prefix are the sidecars' own: they pass names of the claim, and are no business of the volume's.
const SIDECARS: &str = "csi.storage.k8s.io/";

/// The pod that a publish is for; kubelet adds these to the volume context (`podInfoOnMount`).
const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
const POD_NAME: &str = "csi.storage.k8s.io/pod.name";

/// What pods see of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// Its files, where the node can mount them.
    View,
    /// Only the store's socket.
    None,
}

impl Files {
    /// As the parameter has it.
    pub fn name(self) -> &'static str {
        match self {
            Files::View => "view",
            Files::None => "none",
        }
    }
}

/// What a StorageClass says about its volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Where objects live.
    pub tier: Tier,
    /// `None` is `auto`.
    pub device: Option<DeviceUuid>,
    /// What a publish does after the content was lost.
    pub on_loss: OnLoss,
    /// What pods see.
    pub files: Files,
}

/// A parameter that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    #[error("unknown parameter {key:?}; allowed are {}", ALLOWED.join(", "))]
    Unknown { key: String },
    #[error("parameter {key} is {value:?}; allowed are {allowed}")]
    Value { key: &'static str, value: String, allowed: &'static str },
    #[error("parameter {DEVICE} is {device}, which needs {TIER}: gpu")]
    DeviceOnHost { device: DeviceUuid },
}

impl Parameters {
    /// From a StorageClass. Every key must be known, so that a typing error does not pass as a default.
    pub fn parse(parameters: &HashMap<String, String>) -> Result<Self, ParameterError> {
        for key in parameters.keys() {
            if !ALLOWED.contains(&key.as_str()) && !key.starts_with(SIDECARS) {
                return Err(ParameterError::Unknown { key: key.clone() });
            }
        }
        Self::read(parameters)
    }

    /// From a volume context, to which provisioner and kubelet add keys of their own.
    pub fn from_context(context: &HashMap<String, String>) -> Result<Self, ParameterError> {
        Self::read(context)
    }

    fn read(from: &HashMap<String, String>) -> Result<Self, ParameterError> {
        let get = |key| from.get(key).map_or("", String::as_str);
        let refuse = |key, value: &str, allowed| Err(ParameterError::Value { key, value: value.to_owned(), allowed });
        let tier = match get(TIER) {
            "" | "gpu" => Tier::Gpu,
            "host" => Tier::Host,
            other => return refuse(TIER, other, "gpu, host"),
        };
        let device = match get(DEVICE) {
            "" | "auto" => None,
            other => match other.parse() {
                Ok(device) => Some(device),
                Err(_) => return refuse(DEVICE, other, "auto, GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx"),
            },
        };
        if let (Tier::Host, Some(device)) = (tier, device) {
            return Err(ParameterError::DeviceOnHost { device });
        }
        let on_loss = match get(ON_LOSS) {
            "" | "fail" => OnLoss::Fail,
            "empty" => OnLoss::Empty,
            other => return refuse(ON_LOSS, other, "fail, empty"),
        };
        let files = match get(FILES) {
            "" | "view" => Files::View,
            "none" => Files::None,
            other => return refuse(FILES, other, "view, none"),
        };
        Ok(Self { tier, device, on_loss, files })
    }

    /// What travels with the volume, every value spelled out.
    pub fn context(&self) -> HashMap<String, String> {
        let device = self.device.map_or_else(|| "auto".to_owned(), |d| d.to_string());
        let on_loss = match self.on_loss {
            OnLoss::Fail => "fail",
            OnLoss::Empty => "empty",
        };
        HashMap::from([
            (TIER.to_owned(), self.tier.name().to_owned()),
            (DEVICE.to_owned(), device),
            (ON_LOSS.to_owned(), on_loss.to_owned()),
            (FILES.to_owned(), self.files.name().to_owned()),
        ])
    }

    /// The device as the store spells it: 16 bytes, or none for `auto`.
    pub fn device_bytes(&self) -> Vec<u8> {
        self.device.map(|d| d.0.to_vec()).unwrap_or_default()
    }
}

/// The pod of a publish as `namespace/name`; empty where kubelet did not say.
pub fn pod(context: &HashMap<String, String>) -> String {
    match (context.get(POD_NAMESPACE), context.get(POD_NAME)) {
        (Some(namespace), Some(name)) => format!("{namespace}/{name}"),
        (None, Some(name)) => name.clone(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f";

    fn parse(pairs: &[(&str, &str)]) -> Result<Parameters, ParameterError> {
        Parameters::parse(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn defaults_are_spelled_out_in_the_context() {
        let parameters = parse(&[]).unwrap();
        assert_eq!(parameters, Parameters { tier: Tier::Gpu, device: None, on_loss: OnLoss::Fail, files: Files::View });
        let context = parameters.context();
        assert_eq!(context[TIER], "gpu");
        assert_eq!(context[DEVICE], "auto");
        assert_eq!(context[ON_LOSS], "fail");
        assert_eq!(context[FILES], "view");
    }

    #[test]
    fn every_value_survives_the_context() {
        for pairs in [
            &[(TIER, "host"), (ON_LOSS, "empty")][..],
            &[(TIER, "gpu"), (DEVICE, UUID)][..],
            &[(DEVICE, "auto"), (FILES, "none"), ("csi.storage.k8s.io/pvc/name", "x")][..],
            &[(FILES, "view")][..],
        ] {
            let parameters = parse(pairs).unwrap();
            let mut context = parameters.context();
            context.insert("storage.kubernetes.io/csiProvisionerIdentity".into(), "1-2-csi.gpuvol.dev".into());
            assert_eq!(Parameters::from_context(&context), Ok(parameters));
        }
    }

    #[test]
    fn errors_name_what_is_allowed() {
        let text = |pairs: &[(&str, &str)]| parse(pairs).unwrap_err().to_string();
        assert!(text(&[("gpuvol.dev/teir", "gpu")]).contains("gpuvol.dev/tier"));
        assert!(text(&[("tier", "gpu")]).contains("gpuvol.dev/tier"));
        assert!(text(&[(TIER, "disk")]).contains("gpu, host"));
        assert!(text(&[(DEVICE, "0")]).contains("GPU-xxxxxxxx"));
        assert!(text(&[(ON_LOSS, "keep")]).contains("fail, empty"));
        assert!(text(&[(FILES, "socket")]).contains("view, none"));
        assert!(text(&[(TIER, "host"), (DEVICE, UUID)]).contains("needs gpuvol.dev/tier: gpu"));
    }

    #[test]
    fn the_pod_is_named_with_its_namespace() {
        let context =
            HashMap::from([(POD_NAMESPACE.to_owned(), "a".to_owned()), (POD_NAME.to_owned(), "b".to_owned())]);
        assert_eq!(pod(&context), "a/b");
        assert_eq!(pod(&HashMap::new()), "");
    }
}
