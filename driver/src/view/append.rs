//! Appending: at the end of the file as it is now, for all pods that append to it, and once for each request.
//!
//! The kernel's offset is where it thought that the file ended. Appends to one draft take turns. Where each goes is
//! noted in the mount's journal before its bytes are written, so that a request that is sent again to a successor is
//! written to the same place. Until then nobody's may go there: see [`super::draft::Unfinished`].

use super::draft::{Draft, Landlord};
use super::errno::{Failure, Result};
use super::session::{Call, View};

impl View {
    pub(super) fn append(&self, call: Call, draft: &Draft, bytes: &[u8]) -> Result<()> {
        let _turn = self.take_turn(&draft.turn)?;
        let before = if call.resent { self.journal.find(call.unique, draft.node) } else { None };
        let offset = match before {
            Some(slot) if slot.done => return Ok(()),
            Some(slot) => slot.offset,
            None => {
                // The memory is there and has room before a place in it is promised.
                let end = self.end(draft)?;
                draft.room_in_turn(self, end.saturating_add(bytes.len() as u64))?;
                self.end(draft)?
            }
        };
        let noted = self
            .journal
            .begin(call.unique, draft.node, offset, bytes.len() as u64)
            .map_err(Failure::system("noting an append"))?;
        let written = draft.write_in_turn(self, bytes, offset);
        let settled = if written.is_ok() { self.journal.finish(&noted) } else { self.journal.forget(&noted) };
        self.shared.drafts.finished(&self.publish, call.unique);
        settled.map_err(Failure::system("noting an append"))?;
        written
    }

    /// Where the next append goes.
    fn end(&self, draft: &Draft) -> Result<u64> {
        Ok(draft.size()?.max(self.shared.drafts.promised_end(&self.volume, draft.node)))
    }
}
