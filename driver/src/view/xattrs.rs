//! Extended attributes. Only `user.` is the store's: of the others the kernel asks for some at every write, and none is
//! ever there.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use fuser::Errno;
use gpuvol_protocol::view::{GetXattr, ListXattrs, MAX_XATTR_VALUE, SetXattr, ViewOp};

use super::errno::Result;
use super::names;
use super::session::{Call, View};

const OURS: &[u8] = b"user.";
/// Longest name, `XATTR_NAME_MAX` of Linux.
const MAX_NAME: usize = 255;

/// What a caller who gives room for `size` bytes gets; 0 asks how many are needed.
#[derive(Debug)]
pub(super) enum Answer {
    Size(u32),
    Value(Vec<u8>),
}

impl Answer {
    fn to(value: Vec<u8>, size: u32) -> Result<Self> {
        let len = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
        match size {
            0 => Ok(Answer::Size(len)),
            size if len > size => Err(Errno::ERANGE.into()),
            _ => Ok(Answer::Value(value)),
        }
    }
}

fn is_ours(name: &OsStr) -> bool {
    name.as_bytes().starts_with(OURS)
}

impl View {
    pub(super) fn xattr(&self, node: u64, name: &OsStr, size: u32) -> Result<Answer> {
        if node == names::SOCKET || !is_ours(name) {
            return Err(Errno::ENODATA.into());
        }
        let name = name.as_bytes().to_vec();
        Answer::to(self.ask_value(ViewOp::GetXattr(GetXattr { node, name }))?, size)
    }

    pub(super) fn xattrs(&self, node: u64, size: u32) -> Result<Answer> {
        if node == names::SOCKET {
            return Answer::to(Vec::new(), size);
        }
        Answer::to(self.ask_value(ViewOp::ListXattrs(ListXattrs { node }))?, size)
    }

    /// `value`: none takes the attribute away.
    pub(super) fn set_xattr(
        &self,
        call: Call,
        node: u64,
        name: &OsStr,
        value: Option<&[u8]>,
        flags: i32,
    ) -> Result<()> {
        self.writable()?;
        if node == names::SOCKET || !is_ours(name) {
            return Err(Errno::EOPNOTSUPP.into());
        }
        if name.len() > MAX_NAME {
            return Err(Errno::ERANGE.into());
        }
        if value.is_some_and(|value| value.len() > MAX_XATTR_VALUE) {
            return Err(Errno::E2BIG.into());
        }
        let set = SetXattr {
            node,
            name: name.as_bytes().to_vec(),
            value: value.map(<[u8]>::to_vec),
            create: flags & libc::XATTR_CREATE != 0,
            replace: flags & libc::XATTR_REPLACE != 0,
        };
        self.ask_done(call.unique, ViewOp::SetXattr(set))
    }
}
