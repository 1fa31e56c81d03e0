//! Every step of publish and unpublish fails once, and the process ends once before it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpuvol_csi::publish::MountMode;
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

const FORMS: [MountMode; 3] = [MountMode::View, MountMode::Bind, MountMode::None];

fn flags(form: MountMode) -> [&'static str; 2] {
    ["--mount", form.name()]
}

#[test]
fn a_publish_that_fails_at_any_step_leaves_nothing() {
    mounting("a_publish_that_fails_at_any_step_leaves_nothing", async {
        for form in FORMS {
            for &step in Step::publish(form) {
                let (hook, done) = once(step, Injected::Fail);
                let mut rig = Rig::with(&flags(form), hook).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                assert!(done.load(Ordering::Relaxed));
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {step:?}");
                rig.publish(&volume, &target).await.unwrap();
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {step:?}");
            }
        }
    });
}

#[test]
fn a_publish_cut_short_at_any_step_is_finished_by_its_repetition() {
    mounting("a_publish_cut_short_at_any_step_is_finished_by_its_repetition", async {
        for form in FORMS {
            for &step in Step::publish(form) {
                let mut rig = Rig::with(&flags(form), once(step, Injected::Crash).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                rig.restart(&flags(form), Hook::default()).await;
                rig.publish(&volume, &target).await.unwrap();
                assert!(std::fs::metadata(target.join(".gpuvol.sock")).is_ok());
                assert_eq!(mounts_at(&target).len(), usize::from(form != MountMode::None), "{form}, {step:?}");
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {step:?}");
            }
        }
    });
}

#[test]
fn a_publish_cut_short_at_any_step_is_undone_by_unpublish() {
    mounting("a_publish_cut_short_at_any_step_is_undone_by_unpublish", async {
        for form in FORMS {
            for &step in Step::publish(form) {
                let mut rig = Rig::with(&flags(form), once(step, Injected::Crash).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                refused(rig.publish(&volume, &target).await, Code::Internal);
                rig.restart(&flags(form), Hook::default()).await;
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {step:?}");
            }
        }
    });
}

#[test]
fn an_unpublish_that_fails_at_any_step_is_finished_by_its_repetition() {
    mounting("an_unpublish_that_fails_at_any_step_is_finished_by_its_repetition", async {
        for form in FORMS {
            for &step in Step::unpublish(form) {
                let mut rig = Rig::with(&flags(form), once(step, Injected::Fail).0).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                rig.publish(&volume, &target).await.unwrap();
                refused(rig.unpublish(&volume, &target).await, Code::Internal);
                rig.unpublish(&volume, &target).await.unwrap();
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {step:?}");
            }
        }
    });
}

#[test]
fn a_publish_that_the_store_refuses_or_does_not_answer_leaves_nothing() {
    mounting("a_publish_that_the_store_refuses_or_does_not_answer_leaves_nothing", async {
        for form in FORMS {
            for (script, code) in [
                (Script::Refuse(FaultCode::InUse), Code::FailedPrecondition),
                (Script::DoneButSilent, Code::Unavailable),
            ] {
                let mut rig = Rig::with(&flags(form), Hook::default()).await;
                let (volume, target) = (rig.create("v").await, rig.target("pod-1"));
                rig.store.next("publish", script.clone());
                refused(rig.publish(&volume, &target).await, code);
                assert_eq!(rig.residue(), Vec::<String>::new(), "{form}, {script:?}");
                rig.publish(&volume, &target).await.unwrap();
            }
        }
    });
}
