//! Every step of publish and unpublish fails once, and the process ends once before it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuvol_csi::publish::steps::{Hook, Injected, Step};
use gpuvol_protocol::Code as FaultCode;
use support::fake_store::Script;
use support::namespace::mounting;
use support::{Rig, mounts_at, refused};
use tonic::Code;

/// Does this to one step, the first time that it comes.
fn once(step: Step, injected: Injected) -> (Hook, Arc<AtomicBool>) {
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let decide = move |at: Step| (at == step && !seen.swap(true, Ordering::Relaxed)).then_some(injected);
    (Hook::new(decide), done)
}

/// The steps that a mount mode has.
fn steps(flags: &[&str], all: &[Step]) -> Vec<Step> {
    let only_bind = [Step::Home, Step::Detached, Step::Attach];
    all.iter().copied().filter(|step| flags.is_empty() || !only_bind.contains(step)).collect()
}

const MODES: [&[&str]; 2] = [&[], &["--mount", "none"]];

#[test]
fn a_publish_that_fails_at_any_step_leaves_nothing() {
    mounting("a_publish_that_fails_at_any_step_leaves_nothing", async {
        for flags in MODES {
            for step in steps(flags, &Step::PUBLISH) {
                let (hook, done) = once(step, Injected::Fail);
                let mut rig = Rig::with(flags, hook).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                assert!(done.load(Ordering::Relaxed));
                assert_eq!(rig.residue(), Vec::<String>::new(), "{step:?}");
                rig.publish(&volume, &target).await.unwrap();
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{step:?}");
            }
        }
    });
}

#[test]
fn a_publish_cut_short_at_any_step_is_finished_by_its_repetition() {
    mounting("a_publish_cut_short_at_any_step_is_finished_by_its_repetition", async {
        for flags in MODES {
            for step in steps(flags, &Step::PUBLISH) {
                let mut rig = Rig::with(flags, once(step, Injected::Crash).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                rig.restart(flags, Hook::default()).await;
                rig.publish(&volume, &target).await.unwrap();
                assert!(std::fs::metadata(target.join(".gpuvol.sock")).is_ok());
                assert_eq!(mounts_at(&target).len(), usize::from(flags.is_empty()), "{step:?}");
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{step:?}");
            }
        }
    });
}

#[test]
fn a_publish_cut_short_at_any_step_is_undone_by_unpublish() {
    mounting("a_publish_cut_short_at_any_step_is_undone_by_unpublish", async {
        for flags in MODES {
            for step in steps(flags, &Step::PUBLISH) {
                let mut rig = Rig::with(flags, once(step, Injected::Crash).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                rig.restart(flags, Hook::default()).await;
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{step:?}");
            }
        }
    });
}

#[test]
fn an_unpublish_that_fails_at_any_step_is_finished_by_its_repetition() {
    mounting("an_unpublish_that_fails_at_any_step_is_finished_by_its_repetition", async {
        for flags in MODES {
            for step in Step::UNPUBLISH {
                let mut rig = Rig::with(flags, once(step, Injected::Fail).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                rig.publish(&volume, &target).await.unwrap();
                refused(rig.unpublish(&volume, &target).await, Code::Internal);
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{step:?}");
            }
        }
    });
}

#[test]
fn a_publish_that_the_store_refuses_or_does_not_answer_leaves_nothing() {
    mounting("a_publish_that_the_store_refuses_or_does_not_answer_leaves_nothing", async {
        for flags in MODES {
            for (script, code) in [
                (Script::Refuse(FaultCode::InUse), Code::FailedPrecondition),
                (Script::DoneButSilent, Code::Unavailable),
            ] {
                let mut rig = Rig::with(flags, Hook::default()).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                rig.store.next("publish", script.clone());
                refused(rig.publish(&volume, &target).await, code);
                assert_eq!(rig.residue(), Vec::<String>::new(), "{script:?}");
                rig.publish(&volume, &target).await.unwrap();
            }
        }
    });
}
