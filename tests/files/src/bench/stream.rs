//! One big file: written and read in pieces of 1 MiB, through read(2) and through a mapping.

use std::fs::File;
use std::io::{Read, Result, Write};
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use crate::content::content;
use crate::mapping::Mapping;
use crate::size::index;

const PIECE: usize = 1 << 20;

/// MiB per second.
#[derive(Debug, Clone, Copy)]
pub struct Rates {
    pub write: f64,
    pub cold_read: f64,
    pub warm_read: f64,
    pub cold_map: f64,
    pub warm_map: f64,
}

/// One pass of everything over a new file of `mib` MiB in `directory`.
pub fn pass(directory: &Path, mib: u64, note: &mut dyn FnMut(&str)) -> Result<Rates> {
    let path = directory.join(format!("stream-{}", std::process::id()));
    let piece = content(mib, PIECE);
    let rate = |began: Instant| {
        #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
        let mib = mib as f64;
        mib / began.elapsed().as_secs_f64()
    };
    note("writing");
    let began = Instant::now();
    let mut file = File::create(&path)?;
    for _ in 0..mib {
        file.write_all(&piece)?;
    }
    drop(file);
    let write = rate(began);
    let mut figures = [0.0; 4];
    for (figure, (what, mapped, cold)) in figures.iter_mut().zip([
        ("reading, cold", false, true),
        ("reading, warm", false, false),
        ("mapped, cold", true, true),
        ("mapped, warm", true, false),
    ]) {
        note(what);
        if cold {
            forget(&path)?;
        }
        let began = Instant::now();
        if mapped {
            read_mapping(&path, mib)?;
        } else {
            read_all(&path, mib)?;
        }
        *figure = rate(began);
    }
    note("removing");
    std::fs::remove_file(&path)?;
    let [cold_read, warm_read, cold_map, warm_map] = figures;
    Ok(Rates { write, cold_read, warm_read, cold_map, warm_map })
}

impl Rates {
    /// The better of both in each figure.
    pub fn best(self, other: Self) -> Self {
        Self {
            write: self.write.max(other.write),
            cold_read: self.cold_read.max(other.cold_read),
            warm_read: self.warm_read.max(other.warm_read),
            cold_map: self.cold_map.max(other.cold_map),
            warm_map: self.warm_map.max(other.warm_map),
        }
    }
}

/// Lets go of the file's pages in the page cache. Those of tmpfs and of what stands behind a mount stay.
fn forget(path: &Path) -> Result<()> {
    let file = File::open(path)?;
    file.sync_data()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}

fn read_all(path: &Path, mib: u64) -> Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; PIECE];
    for _ in 0..mib {
        file.read_exact(&mut piece)?;
        std::hint::black_box(&piece);
    }
    Ok(())
}

fn read_mapping(path: &Path, mib: u64) -> Result<()> {
    let file = File::open(path)?;
    let map = Mapping::new(&file, 0, index(mib) * PIECE, false)?;
    let mut piece = vec![0; PIECE];
    for n in 0..mib {
        map.read_into(n << 20, &mut piece);
        std::hint::black_box(&piece);
    }
    Ok(())
}
