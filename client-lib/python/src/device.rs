//! What `device=` of a put means.

use std::path::Path;

use gpuvol_client::{Code, DeviceUuid, Error, Fault, Result, Tier, volume_at};
use gpuvol_memory::cuda::visible_devices;

/// The GPU to copy host data into; `None` leaves it in host memory.
///
/// * `host`, or nothing: host memory.
/// * `auto`: GPU memory where the volume is one of GPU memory and this process sees its GPU, else host memory.
/// * `gpu`: the volume's GPU, or the first that this process sees where the volume has none yet.
/// * `GPU-...`: that one.
pub fn upload(path: &Path, device: Option<&str>) -> Result<Option<[u8; 16]>> {
    let must = match device {
        None | Some("host") => return Ok(None),
        Some("auto") => false,
        Some("gpu") => true,
        Some(uuid) => {
            let refused = |source| Error::Path { path: "device".to_owned(), source };
            return uuid.parse::<DeviceUuid>().map(|uuid| Some(uuid.0)).map_err(refused);
        }
    };
    let Some((volume, inside)) = volume_at(path)? else {
        let what = "it is on no gpu-volume, so it cannot go into GPU memory";
        return if must { Err(Error::Unsupported { path: path.display().to_string(), what }) } else { Ok(None) };
    };
    if !must && volume.tier() != Tier::Gpu {
        return Ok(None);
    }
    let bound = <[u8; 16]>::try_from(volume.usage()?.device.as_slice()).ok();
    let visible = match visible_devices() {
        Ok(visible) => visible,
        Err(_) if !must => return Ok(None),
        Err(error) => {
            let message = format!("{inside}: this process can use no GPU: {error}");
            return Err(Error::Refused(Fault::new(Code::DeviceUnknown, message)));
        }
    };
    match bound {
        // One that is not visible is named by the put itself.
        Some(bound) => Ok((must || visible.iter().any(|d| d.uuid == bound)).then_some(bound)),
        None => match visible.first() {
            Some(first) => Ok(Some(first.uuid)),
            None if must => {
                let message = format!("{inside}: this process sees no GPU; give the pod one");
                Err(Error::Refused(Fault::new(Code::DeviceUnknown, message)))
            }
            None => Ok(None),
        },
    }
}
