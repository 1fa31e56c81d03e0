//! FUSE's requests, each handed to the part that does its work, and its result handed back.
//!
//! Nothing is cached by the kernel for longer than a request takes (all lifetimes are 0), and node ids never come back
//! for something else, so nothing has ever to be invalidated.

use std::ffi::OsStr;
use std::path::Path;
use std::time::{Duration, SystemTime};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, IoctlFlags,
    LockOwner, OpenFlags, PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use gpuvol_protocol::types::MAX_NAME;
use gpuvol_protocol::view::SetAttributes;

use super::attributes::{BLOCK, permissions, to_ns};
use super::contents::Place;
use super::errno::Failure;
use super::session::View;
use super::xattrs::Answer;

/// How long the kernel may take a name for granted, and a draft's attributes.
const LIFETIME: Duration = Duration::ZERO;
/// Node ids are never used again.
const GENERATION: Generation = Generation(0);

/// Answers with what a request came to.
macro_rules! answer {
    ($outcome:expr, $reply:ident, $value:pat => $done:expr) => {
        match $outcome {
            Ok($value) => $done,
            Err(errno) => $reply.error(errno),
        }
    };
}

impl Filesystem for View {
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let outcome = self.serve(request, "lookup", parent.0, |_| self.find(parent.0, name));
        answer!(outcome, reply, told => reply.entry_with_ttls(&told.lifetime, &LIFETIME, &told.attributes, GENERATION));
    }

    fn getattr(&self, request: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let outcome = self.serve(request, "getattr", node.0, |_| self.attributes(node.0));
        answer!(outcome, reply, told => reply.attr(&told.lifetime, &told.attributes));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = SetAttributes {
            node: node.0,
            mode: mode.map(|mode| permissions(mode).into()),
            uid,
            gid,
            size,
            atime_ns: atime.map(to_ns),
            mtime_ns: mtime.map(to_ns),
        };
        let outcome = self.serve(request, "setattr", node.0, |call| self.change(call, change));
        answer!(outcome, reply, attr => reply.attr(&LIFETIME, &attr));
    }

    fn readlink(&self, request: &Request, node: INodeNo, reply: ReplyData) {
        let outcome = self.serve(request, "readlink", node.0, |_| self.read_link(node.0));
        answer!(outcome, reply, target => reply.data(&target));
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let outcome = self.serve(request, "mknod", parent.0, |call| match mode & libc::S_IFMT {
            libc::S_IFREG => self.make_file(call, parent.0, name, mode & !umask),
            libc::S_IFSOCK => self.make_socket(name),
            _ => Err(Errno::EPERM.into()),
        });
        answer!(outcome, reply, attr => reply.entry(&LIFETIME, &attr, GENERATION));
    }

    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, umask: u32, reply: ReplyEntry) {
        let outcome =
            self.serve(request, "mkdir", parent.0, |call| self.make_directory(call, parent.0, name, mode & !umask));
        answer!(outcome, reply, attr => reply.entry(&LIFETIME, &attr, GENERATION));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.serve(request, "unlink", parent.0, |call| self.remove(call, parent.0, name, false));
        answer!(outcome, reply, () => reply.ok());
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.serve(request, "rmdir", parent.0, |call| self.remove(call, parent.0, name, true));
        answer!(outcome, reply, () => reply.ok());
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let outcome = self.serve(request, "symlink", parent.0, |call| self.make_link(call, parent.0, name, target));
        answer!(outcome, reply, attr => reply.entry(&LIFETIME, &attr, GENERATION));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        let outcome = self.serve(request, "rename", parent.0, |call| self.rename_node(call, from, to, flags));
        answer!(outcome, reply, () => reply.ok());
    }

    fn link(&self, _: &Request, _: INodeNo, _: INodeNo, _: &OsStr, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn open(&self, request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let outcome = self.serve(request, "open", node.0, |call| self.open_file(call, node.0, flags.0));
        answer!(outcome, reply, opening => {
            let handle = FileHandle(opening.handle);
            if opening.backing == 0 {
                reply.opened(handle, opening.flags);
            } else {
                // SAFETY: the id is open on this connection, and ownership is taken back before the wrapper could
                // close it.
                let backing = unsafe { reply.wrap_backing(opening.backing) };
                reply.opened_passthrough(handle, opening.flags, &backing);
                backing.into_raw();
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let outcome = self
            .serve(request, "create", parent.0, |call| self.create_file(call, parent.0, name, mode & !umask, flags));
        answer!(outcome, reply, opening => {
            let (handle, attr) = (FileHandle(opening.handle), &opening.attributes);
            if opening.backing == 0 {
                reply.created(&LIFETIME, attr, GENERATION, handle, opening.flags);
            } else {
                // SAFETY: the id is open on this connection, and ownership is taken back before the wrapper could
                // close it.
                let backing = unsafe { reply.wrap_backing(opening.backing) };
                reply.created_passthrough(&LIFETIME, attr, GENERATION, handle, opening.flags, &backing);
                backing.into_raw();
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size as usize;
        let mut buffer = self.shared.buffers.take(size);
        let at = Place { handle: handle.0, offset };
        let outcome = self.serve(request, "read", node.0, |_| self.read_file(at, &mut buffer[..size]));
        answer!(outcome, reply, got => reply.data(&buffer[..got]));
    }

    fn write(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What comes from mapped pages has its place, whatever the descriptor was opened for.
        let append = flags.0 & libc::O_APPEND != 0 && !write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        let at = Place { handle: handle.0, offset };
        let outcome = self.serve(request, "write", node.0, |call| self.write_file(call, at, data, append));
        answer!(outcome, reply, written => reply.written(written));
    }

    fn flush(&self, request: &Request, node: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        let outcome = self.serve(request, "flush", node.0, |_| self.flush_file(handle.0));
        answer!(outcome, reply, () => reply.ok());
    }

    fn release(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let outcome = self.serve(request, "release", node.0, |call| self.release_file(call, node.0, handle.0));
        answer!(outcome, reply, () => reply.ok());
    }

    fn fsync(&self, request: &Request, node: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let outcome = self.serve(request, "fsync", node.0, |_| self.flush_file(handle.0));
        answer!(outcome, reply, () => reply.ok());
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn readdir(&self, request: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        let outcome = self.serve(request, "readdir", node.0, |_| {
            self.list(node.0, offset, |attr, next, name| reply.add(attr.ino, next, attr.kind, name))
        });
        answer!(outcome, reply, () => reply.ok());
    }

    fn readdirplus(&self, request: &Request, node: INodeNo, _: FileHandle, offset: u64, mut reply: ReplyDirectoryPlus) {
        let outcome = self.serve(request, "readdirplus", node.0, |_| {
            self.list(node.0, offset, |attr, next, name| reply.add(attr.ino, next, name, &LIFETIME, attr, GENERATION))
        });
        answer!(outcome, reply, () => reply.ok());
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, request: &Request, node: INodeNo, reply: ReplyStatfs) {
        let outcome = self.serve(request, "statfs", node.0, |_| self.ask_usage());
        answer!(outcome, reply, usage => {
            let block = u64::from(BLOCK);
            let free = usage.capacity.saturating_sub(usage.used) / block;
            let names = usage.max_entries.saturating_sub(usage.entries);
            let longest = u32::try_from(MAX_NAME).unwrap_or(u32::MAX);
            reply.statfs(usage.capacity / block, free, free, usage.max_entries, names, BLOCK, longest, BLOCK);
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let outcome =
            self.serve(request, "setxattr", node.0, |call| self.set_xattr(call, node.0, name, Some(value), flags));
        answer!(outcome, reply, () => reply.ok());
    }

    fn getxattr(&self, request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let outcome = self.serve(request, "getxattr", node.0, |_| self.xattr(node.0, name, size));
        answer!(outcome, reply, value => give(value, reply));
    }

    fn listxattr(&self, request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        let outcome = self.serve(request, "listxattr", node.0, |_| self.xattrs(node.0, size));
        answer!(outcome, reply, names => give(names, reply));
    }

    fn removexattr(&self, request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let outcome = self.serve(request, "removexattr", node.0, |call| self.set_xattr(call, node.0, name, None, 0));
        answer!(outcome, reply, () => reply.ok());
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // The kernel takes it for all of the mount: always ready, as files are.
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        request: &Request,
        node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let at = Place { handle: handle.0, offset };
        let outcome = self.serve(request, "fallocate", node.0, |_| self.allocate(at, length, mode));
        answer!(outcome, reply, () => reply.ok());
    }

    fn lseek(&self, request: &Request, node: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        let outcome = self.serve(request, "lseek", node.0, |_| {
            let offset = u64::try_from(offset).map_err(|_| Errno::EINVAL)?;
            let found = self.seek_file(Place { handle: handle.0, offset }, whence)?;
            i64::try_from(found).map_err(|_| Failure::from(Errno::EOVERFLOW))
        });
        answer!(outcome, reply, offset => reply.offset(offset));
    }

    fn copy_file_range(
        &self,
        request: &Request,
        node: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (Place { handle: from.0, offset: from_offset }, Place { handle: to.0, offset: to_offset });
        let outcome = self.serve(request, "copy_file_range", node.0, |_| self.copy(from, to, len));
        answer!(outcome, reply, written => reply.written(written));
    }
}

fn give(answer: Answer, reply: ReplyXattr) {
    match answer {
        Answer::Size(size) => reply.size(size),
        Answer::Value(value) => reply.data(&value),
    }
}
