use std::collections::BTreeMap;

use gpuvol_protocol::Code;
use proptest::prelude::*;

use super::*;

fn making(plan: Plan) -> (Making, Vec<u64>) {
    match plan {
        Plan::Make { making, evict } => (making, evict),
        other => panic!("{other:?}"),
    }
}

/// Makes the replica of a version, in the memory of the same number, and releases it.
fn make(replicas: &mut Replicas, version: u64, size: u64) -> Vec<u64> {
    let (making, evict) = making(replicas.want(version, size));
    replicas.made(making, version);
    assert_eq!(replicas.release(version), None);
    evict
}

#[test]
fn two_readers_cause_one_copy() {
    let mut replicas = Replicas::new(100, 10);
    let (making, evict) = making(replicas.want(1, 60));
    assert!(evict.is_empty());
    let Plan::Wait(attempt) = replicas.want(1, 60) else { panic!() };
    assert_eq!(replicas.failure(attempt), None);
    replicas.made(making, 7);
    assert_eq!(replicas.want(1, 60), Plan::Ready(7));
    // The maker and the reader: only when both are done it may go.
    assert_eq!(replicas.want(2, 60), Plan::NoRoom { need: 60, free: 40 });
    assert_eq!(replicas.release(7), None);
    assert_eq!(replicas.want(2, 60), Plan::NoRoom { need: 60, free: 40 });
    assert_eq!(replicas.release(7), None);
    assert!(matches!(replicas.want(2, 60), Plan::Make { evict, .. } if evict == [7]));
    assert!(matches!(replicas.want(1, 60), Plan::NoRoom { need: 60, free: 40 }));
}

#[test]
fn those_who_wait_hear_why_it_failed() {
    let mut replicas = Replicas::new(100, 10);
    let (first, _) = making(replicas.want(1, 60));
    let Plan::Wait(attempt) = replicas.want(1, 60) else { panic!() };
    let fault = Fault::new(Code::Unavailable, "no GPU");
    replicas.failed(first, fault.clone());
    assert_eq!((replicas.failure(attempt), replicas.used()), (Some(&fault), 0));
    // Whoever asks anew tries anew.
    let (second, _) = making(replicas.want(1, 60));
    let Plan::Wait(again) = replicas.want(1, 60) else { panic!() };
    assert_eq!(replicas.failure(again), None);
    replicas.made(second, 7);
    for version in 0..200 {
        let (making, _) = making(replicas.want(1000 + version, 1));
        replicas.failed(making, fault.clone());
    }
    assert_eq!((replicas.failure(attempt), replicas.failures.len()), (None, FAILURES));
}

#[test]
fn the_one_unused_longest_goes_first() {
    let mut replicas = Replicas::new(100, 10);
    for version in 1..=4 {
        assert!(make(&mut replicas, version, 25).is_empty());
    }
    assert_eq!(replicas.want(1, 25), Plan::Ready(1));
    assert_eq!(replicas.release(1), None);
    assert_eq!(replicas.want(3, 25), Plan::Ready(3));
    assert_eq!(make(&mut replicas, 5, 30), [2, 4]);
    assert_eq!(replicas.want(6, 80), Plan::NoRoom { need: 80, free: 75 });
    assert_eq!(make(&mut replicas, 7, 75), [1, 5]);
}

#[test]
fn nothing_goes_for_what_does_not_fit_anyway() {
    let mut replicas = Replicas::new(100, 10);
    make(&mut replicas, 1, 100);
    assert_eq!(replicas.want(2, 101), Plan::NoRoom { need: 101, free: 100 });
    assert_eq!(replicas.want(1, 100), Plan::Ready(1));
}

#[test]
fn the_number_is_bounded_too() {
    let mut replicas = Replicas::new(100, 2);
    make(&mut replicas, 1, 1);
    make(&mut replicas, 2, 1);
    assert_eq!(make(&mut replicas, 3, 1), [1]);
    assert_eq!(replicas.want(2, 1), Plan::Ready(2));
    let (_making, evict) = making(replicas.want(4, 1));
    assert_eq!(evict, [3]);
    assert_eq!(replicas.want(5, 1), Plan::TooMany { limit: 2 });
}

#[test]
fn what_is_gone_goes_with_its_last_reader() {
    let mut replicas = Replicas::new(100, 10);
    make(&mut replicas, 1, 10);
    assert_eq!(replicas.forget(1), Some(1));
    assert_eq!((replicas.forget(1), replicas.used()), (None, 0));

    make(&mut replicas, 2, 10);
    assert_eq!(replicas.want(2, 10), Plan::Ready(2));
    assert_eq!(replicas.forget(2), None);
    let (again, _) = making(replicas.want(2, 20));
    assert_eq!(replicas.used(), 30);
    assert_eq!(replicas.release(2), Some(2));
    assert_eq!(replicas.release(2), None);

    assert_eq!(replicas.forget(2), None);
    replicas.made(again, 3);
    assert_eq!((replicas.used(), replicas.release(3)), (20, Some(3)));
    assert_eq!((replicas.used(), replicas.idle_bytes(), replicas.count()), (0, 0, 0));
}

#[derive(Debug, Clone)]
enum Step {
    Want(u64, u64),
    Made(usize),
    Failed(usize),
    Release(usize),
    Forget(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..8_u64, 1..60_u64).prop_map(|(version, size)| Step::Want(version, size)),
        3 => any::<usize>().prop_map(Step::Made),
        1 => any::<usize>().prop_map(Step::Failed),
        4 => any::<usize>().prop_map(Step::Release),
        1 => (0..8_u64).prop_map(Step::Forget),
    ]
}

/// What the world outside the books knows: memory that exists, and who reads it.
#[derive(Default)]
struct World {
    /// Bytes and readers of each memory.
    memory: BTreeMap<u64, (u64, u64)>,
    making: Vec<(Making, u64, u64)>,
    next: u64,
}

impl World {
    fn dropped(&mut self, memory: u64) {
        let (_, users) = self.memory.remove(&memory).expect("dropped once");
        assert_eq!(users, 0, "memory {memory} was dropped while it was read");
    }
}

proptest! {
    #[test]
    fn the_books_agree_with_the_world(steps in proptest::collection::vec(step(), 1..200)) {
        const BUDGET: u64 = 100;
        const MOST: usize = 5;
        let mut replicas = Replicas::new(BUDGET, MOST);
        let mut world = World::default();
        for step in steps {
            match step {
                Step::Want(version, size) => match replicas.want(version, size) {
                    Plan::Ready(memory) => world.memory.get_mut(&memory).expect("there").1 += 1,
                    Plan::Wait(attempt) => {
                        prop_assert!(world.making.iter().any(|(making, of, _)| making.0 == attempt && *of == version));
                    }
                    Plan::Make { making, evict } => {
                        prop_assert!(world.making.iter().all(|(_, of, _)| *of != version));
                        evict.into_iter().for_each(|memory| world.dropped(memory));
                        world.making.push((making, version, size));
                    }
                    Plan::NoRoom { need, free } => {
                        let pinned: u64 = world.memory.values().filter(|(_, users)| *users > 0).map(|(size, _)| size).sum();
                        let coming: u64 = world.making.iter().map(|(_, _, size)| size).sum();
                        prop_assert_eq!((need, free), (size, BUDGET - pinned - coming));
                        prop_assert!(need > free);
                    }
                    Plan::TooMany { .. } => {
                        let pinned = world.memory.values().filter(|(_, users)| *users > 0).count();
                        prop_assert_eq!(pinned + world.making.len(), MOST);
                    }
                },
                Step::Made(which) if !world.making.is_empty() => {
                    let which = which % world.making.len();
                    let (making, _, size) = world.making.swap_remove(which);
                    world.next += 1;
                    world.memory.insert(world.next, (size, 1));
                    replicas.made(making, world.next);
                }
                Step::Failed(which) if !world.making.is_empty() => {
                    let which = which % world.making.len();
                    let (making, _, _) = world.making.swap_remove(which);
                    replicas.failed(making, Fault::default());
                }
                Step::Release(which) => {
                    let read: Vec<u64> = world.memory.iter().filter(|(_, m)| m.1 > 0).map(|(memory, _)| *memory).collect();
                    if !read.is_empty() {
                        let memory = read[which % read.len()];
                        world.memory.get_mut(&memory).expect("there").1 -= 1;
                        if let Some(dropped) = replicas.release(memory) {
                            world.dropped(dropped);
                        }
                    }
                }
                Step::Forget(version) => {
                    if let Some(memory) = replicas.forget(version) {
                        world.dropped(memory);
                    }
                    for making in &mut world.making {
                        // Of an object that is gone: of no version that is asked for again.
                        if making.1 == version {
                            making.1 += 1000;
                        }
                    }
                }
                Step::Made(_) | Step::Failed(_) => {}
            }
            let bytes: u64 = world.memory.values().map(|(size, _)| size).sum();
            let coming: u64 = world.making.iter().map(|(_, _, size)| size).sum();
            let idle: u64 = world.memory.values().filter(|(_, users)| *users == 0).map(|(size, _)| size).sum();
            prop_assert_eq!((replicas.used(), replicas.idle_bytes()), (bytes + coming, idle));
            prop_assert!(replicas.used() <= BUDGET);
            prop_assert_eq!(replicas.count(), world.memory.len() + world.making.len());
            prop_assert!(replicas.count() <= MOST);
        }
        // Everything read is released, everything forgotten is dropped: nothing is left.
        for (making, _, _) in world.making.drain(..) {
            replicas.failed(making, Fault::default());
        }
        let left: Vec<(u64, u64)> = world.memory.iter().map(|(memory, (_, users))| (*memory, *users)).collect();
        for (memory, users) in left {
            for _ in 0..users {
                world.memory.get_mut(&memory).expect("there").1 -= 1;
                if let Some(dropped) = replicas.release(memory) {
                    world.dropped(dropped);
                }
            }
        }
        for version in 0..8 {
            replicas.forget(version).into_iter().for_each(|memory| world.dropped(memory));
        }
        prop_assert!(world.memory.is_empty());
        prop_assert_eq!((replicas.used(), replicas.idle_bytes(), replicas.count()), (0, 0, 0));
    }
}
