//! What was copied is what was there, whatever the object is made of.

use gpuvol_memory::conformance::process::alone;
use gpuvol_protocol::message::{MAX_ALLOCATIONS, MAX_SEGMENTS};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::world::{MIB, Object, World, collect, pattern, wait_until};

#[test]
fn objects_of_every_shape_arrive() {
    let world = World::new("");
    let mut empty = Object::default();
    empty.inline(&[]);
    empty.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 0, "nothing to copy needs no process");

    let mut inline = Object::default();
    inline.inline(b"only a few bytes");
    inline.copy(&world.copier).unwrap();

    let mut host = Object::default();
    let memory = host.host(pattern(3 * MIB + 5, 2));
    host.segment(memory, 7, 3 * MIB - 2);
    host.inline(b"tail");
    host.copy(&world.copier).unwrap();

    for len in [1, 4096, 2 * MIB, 2 * MIB + 1, 33 * MIB + 77] {
        Object::on_gpu(len).copy(&world.copier).unwrap();
    }

    // As the client lays out a table: magic and schema, columns, footer.
    let mut table = Object::default();
    let columns = table.device(pattern(9 * MIB, 3));
    let metadata = table.host(pattern(700_000, 4));
    table.inline(&pattern(64, 5));
    table.segment(metadata, 0, 600_000);
    for column in 0..8 {
        table.segment(columns, column * MIB + 64 * column, MIB - 64 + column);
        table.inline(&[0; 64][..usize::try_from(64 - column).unwrap()]);
    }
    table.segment(metadata, 600_000, 0);
    table.segment(metadata, 600_000, 100_000);
    table.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 1, "one process for all");
}

#[test]
fn the_largest_object_fits_a_message() {
    let world = World::new("");
    let mut object = Object::default();
    for seed in 0..MAX_ALLOCATIONS as u64 {
        match seed % 2 {
            0 => object.device(pattern(30_000, seed)),
            _ => object.host(pattern(30_000, seed)),
        };
    }
    for n in 0..MAX_SEGMENTS as u64 {
        match n % 16 {
            0 => object.inline(&pattern(1000, n)),
            _ => object.segment(u32::try_from(n % 64).unwrap(), n % 1000, 1 + n * 7 % 29_000),
        }
    }
    object.copy(&world.copier).unwrap();
}

#[test]
fn random_objects_arrive() {
    let world = World::new("");
    let mut memory = Object::default();
    memory.device(pattern(5 * MIB, 1));
    memory.host(pattern(5 * MIB, 2));
    memory.device(pattern(100, 3));
    let segment = prop_oneof![
        (0..2_u32, 0..MIB, 0..4 * MIB).prop_map(|(a, offset, len)| (a, offset, len)),
        (0..3_u32, 0..50_u64, 0..50_u64).prop_map(|(a, offset, len)| (a, offset, len)),
        (0..100_u64).prop_map(|len| (3, 0, len)),
    ];
    let memory = std::cell::RefCell::new(memory);
    let mut runner = TestRunner::new(Config { cases: 48, failure_persistence: None, ..Config::default() });
    let run = runner.run(&proptest::collection::vec(segment, 0..20), |segments| {
        let mut object = memory.borrow_mut();
        object.clear();
        for (allocation, offset, len) in segments {
            match allocation {
                3 => object.inline(&pattern(len, len)),
                _ => object.segment(allocation, offset, len),
            }
        }
        object.copy(&world.copier).unwrap();
        Ok(())
    });
    run.unwrap();
}

#[test]
fn many_callers_share_one_process() {
    let world = World::new("");
    let objects = [3 * MIB, 1, 20 * MIB, 5000, MIB, 8 * MIB + 1].map(Object::on_gpu);
    let copied = collect(12, |index| objects[index % objects.len()].copy(&world.copier).unwrap().bytes);
    assert_eq!(copied.iter().sum::<u64>(), 2 * objects.iter().map(Object::len).sum::<u64>());
    assert_eq!(world.starts().len(), 1);
    assert_eq!(world.copier.process(), Some(world.starts()[0]));
}

#[test]
fn copies_leave_no_descriptor() {
    alone("contents::copies_leave_no_descriptor", || {
        let world = World::new("");
        let object = Object::on_gpu(MIB);
        object.copy(&world.copier).unwrap();
        let open = |of: &str| std::fs::read_dir(format!("/proc/{of}/fd")).unwrap().count();
        let copier = world.starts()[0].to_string();
        let before = (open("self"), open(&copier));
        for _ in 0..20 {
            object.copy(&world.copier).unwrap();
        }
        // The first copy may not have been quite over when they were counted.
        let now = || (open("self"), open(&copier));
        wait_until("descriptors are left open", || now().0 <= before.0 && now().1 <= before.1);
    });
}
