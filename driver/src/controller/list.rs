//! Pages of the list of volumes.
//!
//! A token names the last volume of the page before, and pages are in the order of ids: what is created or deleted
//! meanwhile shifts no other volume out of a page or into two.

use gpuvol_protocol::VolumeId;
use tonic::Status;

use super::to_csi;
use crate::csi::list_volumes_response::Entry;
use crate::csi::{ListVolumesRequest, ListVolumesResponse};
use crate::store_client::StoreClient;
use crate::topology::NodeTopology;

/// Begins every token, so that no id and hardly anything else is one.
const TOKEN: &str = "after:";
/// Most volumes in one page, whatever was asked.
const MOST: u32 = 500;

/// A page that was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    after: String,
    limit: u32,
}

impl Page {
    pub fn parse(request: &ListVolumesRequest) -> Result<Self, Status> {
        let limit = match u32::try_from(request.max_entries) {
            Ok(0) => MOST,
            Ok(n) => n.min(MOST),
            Err(_) => {
                let text = format!("max_entries is {}; 0 or more are allowed", request.max_entries);
                return Err(Status::invalid_argument(text));
            }
        };
        let after = match request.starting_token.as_str() {
            "" => String::new(),
            token => token
                .strip_prefix(TOKEN)
                .and_then(|id| VolumeId::new(id).ok())
                .ok_or_else(|| Status::aborted("starting_token is not one of this plugin's; list from the beginning"))?
                .to_string(),
        };
        Ok(Self { after, limit })
    }

    pub fn read(&self, store: &StoreClient, here: &NodeTopology) -> Result<ListVolumesResponse, Status> {
        let page = store.list_volumes(&self.after, self.limit)?;
        let entries = page
            .volumes
            .iter()
            .map(|volume| Ok(Entry { volume: Some(to_csi(volume, None, here)?), status: None }))
            .collect::<Result<Vec<_>, Status>>()?;
        let last = entries.last().and_then(|entry| entry.volume.as_ref());
        let next_token = last.filter(|_| page.more).map(|v| format!("{TOKEN}{}", v.volume_id)).unwrap_or_default();
        Ok(ListVolumesResponse { entries, next_token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(max_entries: i32, token: &str) -> Result<Page, tonic::Code> {
        let request = ListVolumesRequest { max_entries, starting_token: token.into() };
        Page::parse(&request).map_err(|status| status.code())
    }

    #[test]
    fn tokens_that_are_not_ours_abort() {
        assert_eq!(parse(0, "after:gv-1"), Ok(Page { after: "gv-1".into(), limit: MOST }));
        assert_eq!(parse(3, ""), Ok(Page { after: String::new(), limit: 3 }));
        for token in ["invalid-token", "gv-1", "after:", "after:../x", "1"] {
            assert_eq!(parse(0, token), Err(tonic::Code::Aborted), "{token}");
        }
        assert_eq!(parse(-1, ""), Err(tonic::Code::InvalidArgument));
    }
}
