//! A volume's numbers and condition, as kubelet wants them.

use gpuvol_protocol::admin::Volume;

use crate::csi::volume_usage::Unit;
use crate::csi::{NodeGetVolumeStatsResponse, VolumeCondition, VolumeUsage};

/// `fault`: what is wrong with the publish itself.
pub(super) fn stats(volume: &Volume, fault: Option<String>) -> NodeGetVolumeStatsResponse {
    let usage = volume.usage.clone().unwrap_or_default();
    let capacity = volume.spec.as_ref().map_or(usage.capacity, |spec| spec.capacity);
    NodeGetVolumeStatsResponse {
        usage: vec![
            numbers(Unit::Bytes, capacity, usage.used),
            numbers(Unit::Inodes, usage.max_entries, usage.entries),
        ],
        volume_condition: Some(condition(volume, fault)),
    }
}

fn numbers(unit: Unit, total: u64, used: u64) -> VolumeUsage {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    VolumeUsage {
        available: number(total.saturating_sub(used)),
        total: number(total),
        used: number(used),
        unit: unit.into(),
    }
}

fn condition(volume: &Volume, fault: Option<String>) -> VolumeCondition {
    let message = if !volume.condition.is_empty() {
        volume.condition.clone()
    } else if volume.lost_ms != 0 {
        format!(
            "the volume's content was lost {} ms after the epoch, by a reboot or because keeper and store ended \
             together; write it again, or delete the volume",
            volume.lost_ms
        )
    } else if let Some(fault) = fault {
        fault
    } else {
        return VolumeCondition { abnormal: false, message: "the volume is published and the store serves it".into() };
    };
    VolumeCondition { abnormal: true, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpuvol_protocol::admin::VolumeSpec;
    use gpuvol_protocol::message::Usage;

    #[test]
    fn numbers_add_up_and_lost_content_is_abnormal() {
        let spec = VolumeSpec { capacity: 100, ..VolumeSpec::default() };
        let usage = Usage { used: 30, entries: 2, max_entries: 10, ..Usage::default() };
        let mut volume = Volume { spec: Some(spec), usage: Some(usage), ..Volume::default() };
        let response = stats(&volume, None);
        let (bytes, inodes) = (&response.usage[0], &response.usage[1]);
        assert_eq!((bytes.total, bytes.used, bytes.available), (100, 30, 70));
        assert_eq!((inodes.total, inodes.used, inodes.available), (10, 2, 8));
        assert!(!response.volume_condition.unwrap().abnormal);
        assert!(stats(&volume, Some("no mount".into())).volume_condition.unwrap().abnormal);
        volume.lost_ms = 7;
        let condition = stats(&volume, None).volume_condition.unwrap();
        assert!(condition.abnormal && condition.message.contains("lost"));
    }
}
