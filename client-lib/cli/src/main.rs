//! `gpuvol`: what is on a gpu-volume, moved in and out, from a shell.
//!
//! [`arguments`] says what can be asked; each command has a file; [`failure`] turns what went wrong into lines on
//! standard error and an exit code.

mod arguments;
mod cat;
mod copy;
mod df;
mod doctor;
mod escape;
mod failure;
mod get;
mod item;
mod list;
mod location;
mod make;
mod mounts;
mod output;
mod progress;
mod put;
mod remove;
mod rename;
mod sibling;
mod stat;
mod stream;
mod table;
mod text;
mod wait;

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    let outcome = arguments::Arguments::parse().command.run();
    failure::finish(outcome)
}
