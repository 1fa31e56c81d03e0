//! Which operations, how often, with which numbers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::op::{Access, Data, From, Op, OpenHow, Pick, RenameHow, Room, XattrHow};

/// Sequences of up to `longest` operations.
pub fn sequence(longest: usize) -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..=longest)
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        30 => on_handles(),
        14 => on_maps(),
        12 => opening(),
        18 => on_names(),
        10 => on_attributes(),
    ]
}

fn opening() -> impl Strategy<Value = Op> {
    (pick(), access(), open_how(), mode()).prop_map(|(at, access, how, mode)| Op::Open { at, access, how, mode })
}

fn on_handles() -> impl Strategy<Value = Op> {
    let handle = any::<u8>;
    prop_oneof![
        4 => handle().prop_map(|handle| Op::Close { handle }),
        1 => handle().prop_map(|handle| Op::Dup { handle }),
        6 => (handle(), data()).prop_map(|(handle, data)| Op::Write { handle, data }),
        6 => (handle(), place(), data()).prop_map(|(handle, offset, data)| Op::WriteAt { handle, offset, data }),
        4 => (handle(), place()).prop_map(|(handle, length)| Op::Read { handle, length }),
        5 => (handle(), place(), place()).prop_map(|(handle, offset, length)| Op::ReadAt { handle, offset, length }),
        2 => (handle(), whence(), -20_000..20_000i32).prop_map(|(handle, from, offset)| Op::Seek { handle, from, offset }),
        1 => handle().prop_map(|handle| Op::Holes { handle }),
        3 => (handle(), place()).prop_map(|(handle, size)| Op::Truncate { handle, size }),
        2 => (handle(), place(), place(), room())
            .prop_map(|(handle, offset, length, room)| Op::Allocate { handle, offset, length, room }),
        2 => (handle(), handle(), place(), place(), place()).prop_map(|(from, to, from_offset, to_offset, length)| {
            Op::CopyRange { from, to, from_offset, to_offset, length }
        }),
        2 => (handle(), any::<bool>()).prop_map(|(handle, data_only)| Op::Sync { handle, data_only }),
        2 => handle().prop_map(|handle| Op::StatHandle { handle }),
        1 => (handle(), mode()).prop_map(|(handle, mode)| Op::ChmodHandle { handle, mode }),
        1 => (handle(), any::<(u32, u32)>()).prop_map(|(handle, times)| Op::TimesHandle { handle, times }),
    ]
}

fn on_maps() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (any::<u8>(), any::<bool>(), 0..3u8, 1..20u8)
            .prop_map(|(handle, writable, page, pages)| Op::Map { handle, writable, page, pages }),
        3 => (any::<u8>(), place(), place()).prop_map(|(map, offset, length)| Op::MapRead { map, offset, length }),
        3 => (any::<u8>(), place(), data()).prop_map(|(map, offset, data)| Op::MapWrite { map, offset, data }),
        2 => any::<u8>().prop_map(|map| Op::Unmap { map }),
    ]
}

fn on_names() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => (old(), any::<bool>()).prop_map(|(at, follow)| Op::Stat { at, follow }),
        2 => old().prop_map(|at| Op::List { at }),
        4 => (new(), mode()).prop_map(|(at, mode)| Op::MakeDirectory { at, mode }),
        2 => old().prop_map(|at| Op::RemoveDirectory { at }),
        4 => old().prop_map(|at| Op::Unlink { at }),
        6 => (old(), pick(), rename_how()).prop_map(|(from, to, how)| Op::Rename { from, to, how }),
        2 => (new(), any::<u8>()).prop_map(|(at, target)| Op::Symlink { at, target }),
        1 => old().prop_map(|at| Op::ReadLink { at }),
        1 => (old(), pick()).prop_map(|(from, to)| Op::HardLink { from, to }),
        1 => (new(), mode()).prop_map(|(at, mode)| Op::MakeFile { at, mode }),
        3 => (old(), place()).prop_map(|(at, size)| Op::TruncatePath { at, size }),
    ]
}

fn on_attributes() -> impl Strategy<Value = Op> {
    let owner = || prop::option::of(prop::sample::select(vec![0u16, 1, 1000, 65534]));
    prop_oneof![
        3 => (old(), mode()).prop_map(|(at, mode)| Op::Chmod { at, mode }),
        1 => (old(), owner(), owner()).prop_map(|(at, uid, gid)| Op::Chown { at, uid, gid }),
        2 => (old(), any::<(u32, u32)>(), any::<bool>()).prop_map(|(at, times, follow)| Op::Times { at, times, follow }),
        3 => (old(), any::<u8>(), xattr_value(), xattr_how())
            .prop_map(|(at, name, data, how)| Op::SetXattr { at, name, data, how }),
        2 => (old(), any::<u8>()).prop_map(|(at, name)| Op::GetXattr { at, name }),
        1 => old().prop_map(|at| Op::ListXattrs { at }),
        1 => (old(), any::<u8>()).prop_map(|(at, name)| Op::RemoveXattr { at, name }),
    ]
}

/// Half of them are there.
fn pick() -> impl Strategy<Value = Pick> {
    pick_of(10, 10)
}

fn old() -> impl Strategy<Value = Pick> {
    pick_of(20, 4)
}

fn new() -> impl Strategy<Value = Pick> {
    pick_of(4, 20)
}

fn pick_of(existing: u32, child: u32) -> impl Strategy<Value = Pick> {
    prop_oneof![
        existing => any::<u16>().prop_map(Pick::Existing),
        child => (any::<u16>(), any::<u8>()).prop_map(|(directory, name)| Pick::Child { directory, name }),
        1 => (any::<u16>(), any::<u8>()).prop_map(|(parent, name)| Pick::Below { parent, name }),
        1 => any::<u16>().prop_map(Pick::Slash),
    ]
}

fn access() -> impl Strategy<Value = Access> {
    prop_oneof![4 => Just(Access::Read), 3 => Just(Access::Write), 5 => Just(Access::Both)]
}

fn open_how() -> impl Strategy<Value = OpenHow> {
    let flag = |percent: u32| prop::bool::weighted(f64::from(percent) / 100.0);
    (flag(60), flag(8), flag(20), flag(15), flag(5), flag(3)).prop_map(
        |(create, exclusive, truncate, append, no_follow, synchronous)| OpenHow {
            create,
            exclusive,
            truncate,
            append,
            no_follow,
            synchronous,
        },
    )
}

/// Offsets and lengths: mostly small, at times about pages and bigger steps, seldom far.
fn place() -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0..300u32,
        6 => 0..20_000u32,
        3 => (0..5u32, -2..=2i32).prop_map(|(page, off)| (page * 4096).saturating_add_signed(off)),
        2 => (-2..=2i32).prop_map(|off| 65_536u32.saturating_add_signed(off)),
        1 => 0..600_000u32,
        1 => (-2..=2i32).prop_map(|off| (1u32 << 20).saturating_add_signed(off)),
    ]
}

fn data() -> impl Strategy<Value = Data> {
    (place(), any::<u16>()).prop_map(|(length, seed)| Data { length, seed })
}

fn xattr_value() -> impl Strategy<Value = Data> {
    let length = prop_oneof![8 => 0..40u32, 1 => 0..3_000u32];
    (length, any::<u16>()).prop_map(|(length, seed)| Data { length, seed })
}

/// Mostly such that the owner may go on.
fn mode() -> impl Strategy<Value = u16> {
    prop_oneof![8 => Just(0o755), 4 => Just(0o644), 2 => 0..=0o777u16, 1 => Just(0o1777)]
}

fn whence() -> impl Strategy<Value = From> {
    prop_oneof![Just(From::Start), Just(From::Current), Just(From::End)]
}

fn room() -> impl Strategy<Value = Room> {
    prop_oneof![Just(Room::Extend), Just(Room::KeepSize), Just(Room::Punch)]
}

fn rename_how() -> impl Strategy<Value = RenameHow> {
    prop_oneof![6 => Just(RenameHow::Replace), 1 => Just(RenameHow::NoReplace), 2 => Just(RenameHow::Exchange)]
}

fn xattr_how() -> impl Strategy<Value = XattrHow> {
    prop_oneof![3 => Just(XattrHow::Either), 1 => Just(XattrHow::Create), 1 => Just(XattrHow::Replace)]
}
