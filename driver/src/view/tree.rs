//! Directories, links and attributes.

use std::ffi::OsStr;
use std::path::Path;

use fuser::{Errno, FileAttr, RenameFlags};
use gpuvol_protocol::view::{
    GetNode, Lookup, MAX_LINK, MakeDirectory, MakeLink, ReadDirectory, ReadLink, Remove, RenameNode, SetAttributes,
    ViewOp,
};

use super::attributes::{Described, of_directory, permissions};
use super::draft::Landlord;
use super::errno::{Failure, Result};
use super::names;
use super::session::{Call, View};

/// Names that are asked for at a time.
const PAGE: u32 = 128;
/// Where a listing's own entries are; the store's names follow, each two after its cookie.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl View {
    pub(super) fn find(&self, parent: u64, name: &OsStr) -> Result<FileAttr> {
        if names::is_socket(name) {
            let made = self.journal.socket_made();
            return if made { Ok(names::socket()) } else { Err(Errno::ENOENT.into()) };
        }
        let name = names::sought(name)?;
        if let Some(known) = self.remembered.name(parent, &name) {
            self.found.note(known.ino.0, parent, &name);
            return Ok(known);
        }
        let as_of = self.remembered.clock();
        let node = self.ask_node(0, ViewOp::Lookup(Lookup { parent, name: name.clone() }))?;
        self.remembered.keep(as_of, &node, Some((parent, &name)));
        self.found.note(node.id, parent, &name);
        Ok(node.attributes())
    }

    pub(super) fn attributes(&self, node: u64) -> Result<FileAttr> {
        if node == names::SOCKET {
            return Ok(names::socket());
        }
        if let Some(known) = self.remembered.node(node) {
            return Ok(known);
        }
        let as_of = self.remembered.clock();
        let node = self.ask_node(0, ViewOp::GetNode(GetNode { node }))?;
        self.remembered.keep(as_of, &node, None);
        Ok(node.attributes())
    }

    pub(super) fn change(&self, call: Call, change: SetAttributes) -> Result<FileAttr> {
        self.writable()?;
        if change.node == names::SOCKET {
            return Ok(names::socket());
        }
        let resized = change.size.and_then(|size| Some((size, self.shared.drafts.find(&self.volume, change.node)?)));
        let Some((size, draft)) = resized else {
            return Ok(self.ask_node(call.unique, ViewOp::SetAttributes(change))?.attributes());
        };
        let _turn = self.take_turn(&draft.turn)?;
        let result = self.ask_node(call.unique, ViewOp::SetAttributes(change));
        draft.forget_reservation();
        let node = result?;
        if draft.memory().is_none() {
            // It has some now, and reads as that.
            draft.room_in_turn(self, size)?;
        }
        Ok(node.attributes())
    }

    /// Binding the hidden socket makes it: once, while nobody else can see the mount.
    pub(super) fn make_socket(&self, name: &OsStr) -> Result<FileAttr> {
        if !names::is_socket(name) {
            return Err(Errno::EPERM.into());
        }
        self.journal.make_socket().map_err(Failure::system("noting the socket"))?;
        Ok(names::socket())
    }

    pub(super) fn make_directory(&self, call: Call, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr> {
        self.writable()?;
        let (name, mode) = (names::fresh(name)?, permissions(mode).into());
        let make = MakeDirectory { parent, name, mode, uid: call.uid, gid: call.gid };
        Ok(self.ask_node(call.unique, ViewOp::MakeDirectory(make))?.attributes())
    }

    pub(super) fn make_link(&self, call: Call, parent: u64, name: &OsStr, target: &Path) -> Result<FileAttr> {
        self.writable()?;
        let (name, target) = (names::fresh(name)?, target.as_os_str().as_encoded_bytes().to_vec());
        if target.len() > MAX_LINK {
            return Err(Errno::ENAMETOOLONG.into());
        }
        let make = MakeLink { parent, name, target, uid: call.uid, gid: call.gid };
        Ok(self.ask_node(call.unique, ViewOp::MakeLink(make))?.attributes())
    }

    pub(super) fn read_link(&self, node: u64) -> Result<Vec<u8>> {
        self.ask_value(ViewOp::ReadLink(ReadLink { node }))
    }

    pub(super) fn remove(&self, call: Call, parent: u64, name: &OsStr, directory: bool) -> Result<()> {
        self.writable()?;
        let remove = Remove { parent, name: names::movable(name)?, directory };
        self.ask_done(call.unique, ViewOp::Remove(remove))
    }

    pub(super) fn rename_node(
        &self,
        call: Call,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        flags: RenameFlags,
    ) -> Result<()> {
        self.writable()?;
        let (no_replace, exchange) = match flags {
            f if f.is_empty() => (false, false),
            RenameFlags::RENAME_NOREPLACE => (true, false),
            RenameFlags::RENAME_EXCHANGE => (false, true),
            _ => return Err(Errno::EINVAL.into()),
        };
        let rename = RenameNode {
            parent: from.0,
            name: names::movable(from.1)?,
            new_parent: to.0,
            new_name: names::movable(to.1)?,
            no_replace,
            exchange,
        };
        self.ask_done(call.unique, ViewOp::RenameNode(rename))
    }

    /// Gives a directory's entries from `offset` to `add`, each with the offset after it, until that says it is full.
    pub(super) fn list(
        &self,
        node: u64,
        offset: u64,
        mut add: impl FnMut(&FileAttr, u64, &OsStr) -> bool,
    ) -> Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let mut after = offset.saturating_sub(DOT_DOT);
        let mut first = true;
        loop {
            let as_of = self.remembered.clock();
            let page = self.ask_names(ReadDirectory { node, after, limit: PAGE })?;
            if std::mem::take(&mut first) {
                let own = [(DOT, node, "."), (DOT_DOT, page.parent, "..")];
                for (at, node, name) in own.into_iter().filter(|(at, ..)| *at > offset) {
                    if add(&of_directory(node), at, OsStr::new(name)) {
                        return Ok(());
                    }
                }
            }
            for name in &page.names {
                let directory = node;
                let node = name.node.as_ref().ok_or(Failure::Confused("a name without its node"))?;
                self.remembered.keep(as_of, node, Some((directory, &name.name)));
                if add(&node.attributes(), name.cookie.saturating_add(DOT_DOT), OsStr::from_bytes(&name.name)) {
                    return Ok(());
                }
            }
            match page.names.last() {
                Some(last) if page.more => after = last.cookie,
                _ => return Ok(()),
            }
        }
    }
}
