//! Quota for memory that is being made.

use gpuvol_protocol::Fault;
use gpuvol_protocol::message::Tier;

use crate::catalogue::quota::Share;
use crate::catalogue::state::Catalogue;
use crate::node::Node;

/// Quota taken for memory that is being made; given back unless [`Pending::settle`] is called under the lock that
/// commits.
pub struct Pending<'n> {
    node: &'n Node,
    volume: &'n str,
    tier: Tier,
    bytes: u64,
}

impl<'n> Pending<'n> {
    /// Takes it, under the lock that found that there is room.
    pub fn take(
        node: &'n Node,
        catalogue: &mut Catalogue,
        volume: &'n str,
        tier: Tier,
        bytes: u64,
    ) -> Result<Self, Fault> {
        catalogue.volume_mut(volume)?.quota.take(Share::Pending, tier, bytes);
        Ok(Self { node, volume, tier, bytes })
    }

    pub fn settle(mut self, catalogue: &mut Catalogue) {
        if let Ok(volume) = catalogue.volume_mut(self.volume) {
            volume.quota.give_back(Share::Pending, self.tier, self.bytes);
        }
        self.bytes = 0;
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        if let Ok(volume) = self.node.catalogue().volume_mut(self.volume) {
            volume.quota.give_back(Share::Pending, self.tier, self.bytes);
        }
    }
}
