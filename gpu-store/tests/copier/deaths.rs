//! What the death of a copier costs: one copy is done again.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use gpuvol_memory::HostAllocation;
use gpuvol_memory::conformance::process::only;
use gpuvol_protocol::Code;
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{MIB, Object, PATIENCE, World, assert_fault, collect, exists, gpu_name, lives, pattern, wait_until};

/// Large enough to be caught in the middle: the fake driver takes 50 ms and more for it.
const LARGE: u64 = 160 * MIB;

fn signal(pid: u32, signal: Signal) {
    // One that has ended already is for the caller to notice.
    let _ = kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal);
}

fn pages(target: &HostAllocation) -> u64 {
    u64::try_from(rustix::fs::fstat(target).unwrap().st_blocks).unwrap() * 512
}

/// Kills the n-th copier in the middle of its copy.
fn kill_amid(world: &World, target: &HostAllocation, start: usize) {
    wait_until("the copier starts", || world.starts().len() >= start);
    let pid = world.starts()[start - 1];
    // An earlier copier's pages are there already: this one's work shows in nothing but its own time.
    let before = pages(target);
    match start {
        1 => wait_until("the copy begins", || pages(target) > 0),
        _ => wait_until("the copier runs", || ticks(pid) > 2),
    }
    signal(pid, Signal::STOP);
    assert!(start > 1 || pages(target) < LARGE, "the copy was too fast to be caught: {before}");
    signal(pid, Signal::KILL);
}

/// Processor time of a process, in hundredths of a second.
fn ticks(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let after_name: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    // proc(5): utime and stime are fields 14 and 15, the name is field 2.
    after_name.iter().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

#[test]
fn a_copier_that_is_killed_costs_a_second_try() {
    let world = World::new("");
    let object = Object::on_gpu(LARGE);
    let target = object.target();
    let job = object.job(&target);
    std::thread::scope(|scope| {
        scope.spawn(|| kill_amid(&world, &target, 1));
        let copied = world.copier.copy(&job).unwrap();
        object.check(&target, copied);
    });
    assert_eq!(world.starts().len(), 2);
    assert!(!exists(world.starts()[0]), "no zombie is left");
}

#[test]
fn a_copier_that_is_killed_twice_is_an_error() {
    let world = World::new("");
    let object = Object::on_gpu(LARGE);
    let target = object.target();
    let job = object.job(&target);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            kill_amid(&world, &target, 1);
            kill_amid(&world, &target, 2);
        });
        let fault = world.copier.copy(&job).unwrap_err();
        let parts = ["t/a in volume v: it cannot be copied from", &gpu_name(), "160 MiB", "SIGKILL", "once more"];
        assert_fault(&fault, Code::Unavailable, &parts);
        let [first, second] = world.starts()[..] else { panic!("{:?}", world.starts()) };
        assert_fault(&fault, Code::Unavailable, &[&first.to_string(), &second.to_string()]);
        assert!(!exists(first) && !exists(second), "no zombie is left");
    });
    // The next copy is a copy like any.
    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 3);
}

#[test]
fn a_gpu_fault_costs_a_second_try_in_a_fresh_process() {
    let world = World::new("[ $N -gt 1 ] || export GPUVOL_FAKE_CUDA_FAULTS=memcpy:illegal_address@2");
    let object = Object::on_gpu(9 * MIB);
    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 2);
    wait_until("the faulty process is ended", || !exists(world.starts()[0]));
    object.copy(&world.copier).unwrap();
    assert_eq!(world.starts().len(), 2);
}

#[test]
fn a_gpu_that_faults_again_is_an_error() {
    let world = World::new("export GPUVOL_FAKE_CUDA_FAULTS=sync:launch_failed@1");
    let object = Object::on_gpu(9 * MIB);
    let fault = object.copy(&world.copier).unwrap_err();
    let parts = ["t/a in volume v", "segment 0, from allocation 40", &gpu_name(), "CUDA_ERROR_LAUNCH_FAILED", "once"];
    assert_fault(&fault, Code::Unavailable, &parts);
    assert_eq!(fault.message.matches("t/a in volume v").count(), 1, "{fault}");
    assert_eq!((world.starts().len(), world.copier.process()), (2, None));
}

#[test]
fn a_fault_of_one_copy_takes_no_other_with_it() {
    let world = World::new("[ $N -gt 1 ] || export GPUVOL_FAKE_CUDA_FAULTS=memcpy:illegal_address@12");
    let objects = [7 * MIB, MIB, 20 * MIB, 5000].map(Object::on_gpu);
    collect(8, |index| objects[index % objects.len()].copy(&world.copier).unwrap());
    assert_eq!(world.starts().len(), 2);
}

#[test]
fn a_copier_that_hangs_is_killed_for_one_copy_and_the_others_go_on() {
    let world = World::with("", "", Duration::from_secs(1));
    let mut long = Object::default();
    let memory = long.device(pattern(16 * MIB, 8));
    (0..24).for_each(|n| long.segment(memory, n, 13 * MIB));
    let short = Object::on_gpu(MIB);
    let target = long.target();
    std::thread::scope(|scope| {
        // It may take three seconds, so it is not the first whose patience ends.
        let copy = scope.spawn(|| world.copier.copy(&long.job(&target)));
        wait_until("the copy begins", || pages(&target) > 0);
        signal(world.starts()[0], Signal::STOP);
        assert!(pages(&target) < long.len(), "the copy was too fast to be caught");
        let fault = short.copy(&world.copier).unwrap_err();
        assert_fault(&fault, Code::DeadlineExceeded, &["t/a in volume v", "was killed"]);
        long.check(&target, copy.join().unwrap().unwrap());
    });
    assert_eq!(world.starts().len(), 2);
    // Stopped in the middle, and alone: its own patience ends.
    let target = long.target();
    std::thread::scope(|scope| {
        let copy = scope.spawn(|| world.copier.copy(&long.job(&target)));
        wait_until("the copy begins", || pages(&target) > 0);
        signal(world.starts()[1], Signal::STOP);
        let fault = copy.join().unwrap().unwrap_err();
        assert_fault(&fault, Code::DeadlineExceeded, &["t/a in volume v", "was killed", &gpu_name()]);
    });
    short.copy(&world.copier).unwrap();
}

#[test]
fn a_copier_that_cannot_even_start_is_an_error() {
    let world = World::new("exit 3");
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::Unavailable, &["t/a in volume v", "exit status: 3"]);
    assert_eq!(world.starts().len(), 2);
    let world = World::new("exit 0");
    let fault = Object::on_gpu(MIB).copy(&world.copier).unwrap_err();
    assert_fault(&fault, Code::Unavailable, &["before it could begin"]);
}

#[test]
fn an_idle_copier_ends_and_another_starts() {
    let world = World::with("", "--idle 0.2", PATIENCE);
    let object = Object::on_gpu(3 * MIB);
    for round in 1..=3 {
        object.copy(&world.copier).unwrap();
        assert_eq!(world.starts().len(), round);
        wait_until("the idle copier ends", || world.copier.process().is_none());
        assert!(!exists(world.starts()[round - 1]), "no zombie is left");
    }
}

#[test]
fn a_copier_that_just_ends_costs_nothing() {
    // It is idle at once, so every copy may meet its end.
    let world = World::with("", "--idle 0.002", PATIENCE);
    let object = Object::on_gpu(10_000);
    for round in 0..40 {
        object.copy(&world.copier).unwrap();
        std::thread::sleep(Duration::from_micros(round * 100));
    }
}

#[test]
fn a_copier_that_is_killed_while_idle_costs_nothing() {
    let world = World::new("");
    let object = Object::on_gpu(10_000);
    for _ in 0..3 {
        object.copy(&world.copier).unwrap();
        let pid = world.copier.process().unwrap();
        signal(pid, Signal::KILL);
        wait_until("it dies", || world.copier.process().is_none());
    }
    assert_eq!(world.starts().len(), 3);
}

#[test]
fn the_copier_ends_with_its_handle() {
    let world = World::new("");
    Object::on_gpu(1).copy(&world.copier).unwrap();
    let pid = world.starts()[0];
    assert!(lives(pid));
    drop(world);
    wait_until("the copier ends", || !exists(pid));
}

#[test]
fn the_copier_ends_with_its_store() {
    const STORE: &str = "GPUVOL_TEST_STORE";
    if std::env::var_os(STORE).is_some() {
        let world = World::new("");
        Object::on_gpu(1).copy(&world.copier).unwrap();
        println!("pid {}", world.starts()[0]);
        std::thread::sleep(PATIENCE);
        return;
    }
    let mut command: Command = only("deaths::the_copier_ends_with_its_store");
    let mut store = command.env(STORE, "1").stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(store.stdout.take().unwrap()).lines();
    let pid = lines.map_while(Result::ok).find_map(|line| line.split_once("pid ")?.1.parse().ok()).unwrap();
    assert!(lives(pid));
    store.kill().unwrap();
    store.wait().unwrap();
    wait_until("the copier ends", || !lives(pid));
}

#[test]
fn a_copier_started_by_hand_says_so() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpuvol-copier")).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("started by gpuvol-store"), "{said}");
}
