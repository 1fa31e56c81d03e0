//! `gpuvol-dev`: a node on one machine, for development, and the demo. `gpuvol dev` and `gpuvol demo` run it.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use gpuvol_csi::dev::device::Wish;
use gpuvol_csi::dev::error::chain;
use gpuvol_csi::dev::stage::View;
use gpuvol_csi::dev::{Error, Result, demo, down, namespace, serve, stage, status, up};
use gpuvol_csi::logging;

/// Runs a gpuvol node on this machine, without Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "gpuvol-dev", version, disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Up(Up),
    Down(Down),
    /// Shows the nodes of this user on this machine
    Status {
        /// One JSON array
        #[arg(long)]
        json: bool,
    },
    Demo(Demo),
    /// The supervisor of a node
    #[command(hide = true)]
    Serve {
        #[arg(long)]
        state: PathBuf,
        #[arg(long)]
        foreground: bool,
    },
    /// Becomes a stage of the demo
    #[command(hide = true)]
    Stage {
        #[arg(long)]
        data: PathBuf,
        #[arg(long)]
        scratch: PathBuf,
        #[arg(long)]
        hide: Vec<PathBuf>,
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
    /// Becomes a program that ends with its parent
    #[command(hide = true)]
    Tied {
        #[arg(last = true, required = true)]
        program: Vec<OsString>,
    },
    /// Tries what the demo needs
    #[command(hide = true)]
    ProbeNamespace {
        #[arg(long)]
        user: bool,
    },
}

/// Starts a node and publishes a volume of its own at a directory
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol dev up --mount ./data
  gpuvol dev up --mount ./data --capacity 8GiB --device gpu
  gpuvol dev down --mount ./data

Keeper, store, mounter and plugin run until `down`, each started again when it ends. The volume is a file system where
FUSE can be mounted; elsewhere it is a socket in DIR, which the client library and `gpuvol` use like any other.")]
struct Up {
    /// Where the volume appears: a directory that is empty or not there yet; without it, one below the state directory
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// The volume's size, such as 512MiB or 4GiB; memory is taken when something is put
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "4GiB")]
    capacity: u64,
    /// Where objects live: auto (a GPU where there is one), host, gpu, or a GPU's UUID
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Wish,
    /// The node's state directory; by default one for each node in $XDG_RUNTIME_DIR/gpuvol, /run/gpuvol-dev or /tmp
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// The node's name; by default made from --mount
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Stay until Ctrl-C, and end the node then
    #[arg(long)]
    foreground: bool,
    #[command(flatten)]
    programs: ProgramFlags,
}

#[derive(Debug, Args)]
struct ProgramFlags {
    /// Directory with gpuvol-keeper, gpuvol-store, gpuvol-mounter and gpuvol-csi; by default beside this program, or in PATH
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// A flag for gpuvol-store
    #[arg(long, value_name = "FLAG", allow_hyphen_values = true, hide = true)]
    store_flag: Vec<String>,
}

/// Ends a node with all that is on its volume, and leaves nothing
#[derive(Debug, Args)]
struct Down {
    /// The node whose volume is here; --state, where given too, is what counts
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    mount: Option<PathBuf>,
    /// The node with this state directory
    #[arg(long, value_name = "DIR", conflicts_with = "all")]
    state: Option<PathBuf>,
    /// All nodes of this user
    #[arg(long)]
    all: bool,
}

/// Three stages hand a table on, by gpu-volume and by files: a table of what that costs
#[derive(Debug, Args)]
struct Demo {
    /// Where the volume is: auto (a GPU where there is one), host, gpu, or a GPU's UUID
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: Wish,
    /// Rows of the table that the first stage makes, 1000 or more; by default the whole year
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1000..))]
    rows: Option<u64>,
    /// The interpreter for the stages; by default $GPUVOL_PYTHON, the repository's .venv, or python3
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// Copy the files of the ways by file here
    #[arg(long, value_name = "DIR")]
    keep_output: Option<PathBuf>,
    /// One JSON document instead of a table
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    programs: ProgramFlags,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    gpuvol_protocol::types::parse_size(text).map_err(|e| e.to_string())
}

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let filter = if matches!(command, Command::Serve { .. }) { "info" } else { "error" };
    // Without logs everything else works as well.
    let _ = logging::start(&std::env::var("GPUVOL_LOG").unwrap_or_else(|_| filter.to_owned()));
    match run(command) {
        Ok(text) if text.is_empty() => ExitCode::SUCCESS,
        Ok(text) => {
            // A reader that is gone has no use for it.
            let _ = writeln!(std::io::stdout(), "{text}");
            ExitCode::SUCCESS
        }
        Err(Error::Interrupted) => ExitCode::from(130),
        Err(error) => {
            eprintln!("gpuvol-dev: {}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// What to print.
fn run(command: Command) -> Result<String> {
    let quiet = |()| String::new();
    match command {
        Command::Up(up) => up::run(&up::Request {
            mount: up.mount,
            capacity: up.capacity,
            wish: up.device,
            state: up.state,
            name: up.name,
            foreground: up.foreground,
            bin_dir: up.programs.bin_dir,
            store_flags: up.programs.store_flag,
        }),
        Command::Down(down) => down::run(&match (down.mount, down.state, down.all) {
            (_, Some(state), _) => down::Which::State(state),
            (Some(mount), None, _) => down::Which::Mount(mount),
            (None, None, true) => down::Which::All,
            (None, None, false) => down::Which::Only,
        }),
        Command::Status { json } => status::run(json),
        Command::Demo(demo) => demo::run(&demo::Request {
            wish: demo.device,
            rows: demo.rows,
            python: demo.python,
            keep_output: demo.keep_output,
            json: demo.json,
            bin_dir: demo.programs.bin_dir,
            store_flags: demo.programs.store_flag,
        })
        .map(quiet),
        Command::Serve { state, foreground } => serve::run(&state, foreground).map(quiet),
        Command::Stage { data, scratch, hide, program } => {
            stage::run(&View { data, hidden: hide, scratch }, &program).map(quiet)
        }
        Command::Tied { program } => stage::tied(&program).map(quiet),
        Command::ProbeNamespace { user } => {
            namespace::probe(user).map_err(Error::system("enter a namespace")).map(quiet)
        }
    }
}
