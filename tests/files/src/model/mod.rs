//! Random sequences of file operations on a directory under test and on a reference, compared after every operation.
//!
//! [`op`] has the operations as they are generated: with picks instead of paths, so that every part of a sequence still
//! means something when [`shrink`](case) has taken other parts away. [`step`] has them with paths and slots filled in;
//! [`world`] does a step in one directory; [`pair`] does it in both and compares; [`versions`] is the one place where the
//! reference is bent: what is opened for reading keeps its content when the file gets a new version. [`documented`] has
//! the other differences that are by design.

pub mod case;
pub mod documented;
pub mod generate;
pub mod imitation;
pub mod op;
pub mod pair;
pub mod resolve;
pub mod run;
pub mod seen;
pub mod step;
pub mod tree;
pub mod versions;
pub mod world;
