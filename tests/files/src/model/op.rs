//! Operations as they are generated. Numbers that pick something are taken modulo what is there.

/// Where a path comes from.
#[derive(Debug, Clone)]
pub enum Pick {
    /// Something that is there.
    Existing(u16),
    /// A name in a directory that is there, existing or not.
    Child { directory: u16, name: u8 },
    /// A name below something that may not be a directory.
    Below { parent: u16, name: u8 },
    /// As `Existing`, with a slash at the end.
    Slash(u16),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
    Both,
}

#[derive(Debug, Clone, Copy, Default)]
pub struct OpenHow {
    pub create: bool,
    pub exclusive: bool,
    pub truncate: bool,
    pub append: bool,
    pub no_follow: bool,
    pub synchronous: bool,
}

#[derive(Debug, Clone)]
pub struct Data {
    pub length: u32,
    pub seed: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    Replace,
    NoReplace,
    Exchange,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    Current,
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Room {
    Extend,
    KeepSize,
    Punch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrHow {
    Either,
    Create,
    Replace,
}

#[derive(Debug, Clone)]
pub enum Op {
    Open { at: Pick, access: Access, how: OpenHow, mode: u16 },
    Close { handle: u8 },
    Dup { handle: u8 },
    Write { handle: u8, data: Data },
    WriteAt { handle: u8, offset: u32, data: Data },
    Read { handle: u8, length: u32 },
    ReadAt { handle: u8, offset: u32, length: u32 },
    Seek { handle: u8, from: From, offset: i32 },
    Holes { handle: u8 },
    Truncate { handle: u8, size: u32 },
    TruncatePath { at: Pick, size: u32 },
    Allocate { handle: u8, offset: u32, length: u32, room: Room },
    CopyRange { from: u8, to: u8, from_offset: u32, to_offset: u32, length: u32 },
    Sync { handle: u8, data_only: bool },
    StatHandle { handle: u8 },
    ChmodHandle { handle: u8, mode: u16 },
    TimesHandle { handle: u8, times: (u32, u32) },
    Map { handle: u8, writable: bool, page: u8, pages: u8 },
    MapRead { map: u8, offset: u32, length: u32 },
    MapWrite { map: u8, offset: u32, data: Data },
    Unmap { map: u8 },
    Stat { at: Pick, follow: bool },
    List { at: Pick },
    MakeDirectory { at: Pick, mode: u16 },
    RemoveDirectory { at: Pick },
    Unlink { at: Pick },
    Rename { from: Pick, to: Pick, how: RenameHow },
    Symlink { at: Pick, target: u8 },
    ReadLink { at: Pick },
    HardLink { from: Pick, to: Pick },
    MakeFile { at: Pick, mode: u16 },
    Chmod { at: Pick, mode: u16 },
    Chown { at: Pick, uid: Option<u16>, gid: Option<u16> },
    Times { at: Pick, times: (u32, u32), follow: bool },
    SetXattr { at: Pick, name: u8, data: Data, how: XattrHow },
    GetXattr { at: Pick, name: u8 },
    ListXattrs { at: Pick },
    RemoveXattr { at: Pick, name: u8 },
}
