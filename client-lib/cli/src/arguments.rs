//! The command line.

use clap::{Parser, Subcommand};

use crate::failure::Result;
use crate::{cat, copy, df, doctor, get, list, make, put, remove, rename, sibling, stat, wait};

const NOTES: &str = "\
A PATH is looked at where it is mounted: `gpuvol ls /data/features` works in a pod that has a volume at /data. Paths on \
no volume are ordinary files for ls, stat, cat, cp, put and wait; the other commands say so and change nothing.

Names may be any bytes. In text, control and invisible characters are written as \\n, \\r, \\t or \\xNN, bytes that are \
not UTF-8 as \\xNN, and a backslash as \\\\. In --json, strings that are paths or names write bytes that are not UTF-8 as \
\\xNN and a backslash as \\\\, everything else as it is. `printf %b` turns either back into the name.

--json prints one document; sizes are numbers of bytes, times are milliseconds since the epoch, what does not apply is \
null. Colours appear on a terminal only, and not where NO_COLOR is set.

Exit codes:
  0  done
  1  failed
  2  wrong usage
  3  not found
  4  no space in the volume, or no memory on the node
  5  a deadline passed
  6  the store cannot be reached
With several paths every one is tried, and the first failure decides.";

/// Tables, tensors and bytes that stay in GPU or host memory between pipeline stages.
#[derive(Debug, Parser)]
#[command(name = "gpuvol", version, after_help = NOTES)]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Ls(list::Ls),
    Stat(stat::Stat),
    Cat(cat::Cat),
    Put(put::Put),
    Get(get::Get),
    Cp(copy::Cp),
    Mv(rename::Mv),
    Rm(remove::Rm),
    Mkdir(make::Mkdir),
    Df(df::Df),
    Wait(wait::Wait),
    Doctor(doctor::Doctor),
    /// Runs a node on this machine, for development (the program gpuvol-dev)
    #[command(disable_help_flag = true, after_help = sibling::DEV_EXAMPLES)]
    Dev(sibling::Passed),
    /// Runs a pipeline of three stages that hand over tables, on a node of its own (the program gpuvol-dev)
    #[command(disable_help_flag = true)]
    Demo(sibling::Passed),
}

impl Command {
    pub fn run(self) -> Result<()> {
        match self {
            Command::Ls(command) => command.run(),
            Command::Stat(command) => command.run(),
            Command::Cat(command) => command.run(),
            Command::Put(command) => command.run(),
            Command::Get(command) => command.run(),
            Command::Cp(command) => command.run(),
            Command::Mv(command) => command.run(),
            Command::Rm(command) => command.run(),
            Command::Mkdir(command) => command.run(),
            Command::Df(command) => command.run(),
            Command::Wait(command) => command.run(),
            Command::Doctor(command) => command.run(),
            Command::Dev(passed) => sibling::run(None, &passed),
            Command::Demo(passed) => sibling::run(Some("demo"), &passed),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_after_dev_goes_to_the_other_program() {
        let parsed = Arguments::try_parse_from(["gpuvol", "dev", "up", "--help", "-x"]).unwrap();
        let Command::Dev(passed) = parsed.command else { panic!("{parsed:?}") };
        assert_eq!(passed.arguments, ["up", "--help", "-x"]);
    }
}
