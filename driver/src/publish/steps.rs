//! The steps of a publish, by name, so that tests can make each of them fail.

use std::fmt;
use std::io;
use std::sync::Arc;

use super::{MountMode, PublishError, Publisher};
use crate::target::Target;
use crate::undo::Undo;

/// Something that may fail, in the order in which a publish, and then an unpublish, does it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    Home,
    TargetDirectory,
    Socket,
    Store,
    Detached,
    /// The FUSE descriptor goes to the store.
    Session,
    Attach,
    CloseListener,
    Unmount,
    RemoveTarget,
    StoreUnpublish,
    RemoveHome,
}

impl Step {
    /// The steps of a publish in a form.
    pub fn publish(form: MountMode) -> &'static [Step] {
        match form {
            MountMode::View => {
                &[Step::TargetDirectory, Step::Detached, Step::Session, Step::Socket, Step::Store, Step::Attach]
            }
            MountMode::Bind => {
                &[Step::Home, Step::TargetDirectory, Step::Socket, Step::Store, Step::Detached, Step::Attach]
            }
            MountMode::None => &[Step::TargetDirectory, Step::Socket, Step::Store],
        }
    }

    /// And of an unpublish.
    pub fn unpublish(form: MountMode) -> &'static [Step] {
        const ALL: [Step; 5] =
            [Step::CloseListener, Step::Unmount, Step::RemoveTarget, Step::StoreUnpublish, Step::RemoveHome];
        if form == MountMode::View { &ALL } else { &ALL[1..] }
    }
}

/// What a test does to a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injected {
    /// The step fails.
    Fail,
    /// The process ends before the step: nothing is taken back.
    Crash,
}

type Decide = dyn Fn(Step) -> Option<Injected> + Send + Sync;

/// Asked before each step; does nothing by default.
#[derive(Clone, Default)]
pub struct Hook(Option<Arc<Decide>>);

impl Hook {
    pub fn new(decide: impl Fn(Step) -> Option<Injected> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(decide)))
    }
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Hook(set)" } else { "Hook(none)" })
    }
}

impl Publisher {
    pub(super) fn step(&self, step: Step, target: &Target, undo: &mut Undo<'_>) -> Result<(), PublishError> {
        self.named_step(step, target.path().as_str(), undo)
    }

    pub(super) fn named_step(&self, step: Step, target: &str, undo: &mut Undo<'_>) -> Result<(), PublishError> {
        let Some(injected) = self.hook.0.as_ref().and_then(|decide| decide(step)) else { return Ok(()) };
        if injected == Injected::Crash {
            undo.forget();
        }
        let source = io::Error::other(format!("injected at {step:?}"));
        Err(PublishError::System { doing: "go on", target: target.to_owned(), source })
    }
}
