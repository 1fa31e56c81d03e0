//! What to take back when a publish fails half-way.

/// Steps that were done, newest last. Dropping it takes them back in reverse order, unless it was kept.
#[derive(Default)]
pub struct Undo<'a>(Vec<Box<dyn FnOnce() + 'a>>);

impl<'a> Undo<'a> {
    /// Something was done; `back` takes it back, and says in the log where it cannot.
    pub fn push(&mut self, back: impl FnOnce() + 'a) {
        self.0.push(Box::new(back));
    }

    /// Everything went well: nothing will be taken back.
    pub fn keep(mut self) {
        self.0.clear();
    }

    /// Takes nothing back, as if the process had been killed here.
    pub fn forget(&mut self) {
        self.0.clear();
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        while let Some(back) = self.0.pop() {
            back();
        }
    }
}

impl std::fmt::Debug for Undo<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Undo({} steps)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn steps_are_taken_back_newest_first() {
        let seen = RefCell::new(Vec::new());
        let mut undo = Undo::default();
        undo.push(|| seen.borrow_mut().push(1));
        undo.push(|| seen.borrow_mut().push(2));
        drop(undo);
        assert_eq!(*seen.borrow(), [2, 1]);
        let mut kept = Undo::default();
        kept.push(|| seen.borrow_mut().push(3));
        kept.keep();
        assert_eq!(*seen.borrow(), [2, 1]);
    }
}
