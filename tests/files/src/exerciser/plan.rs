//! What to do next, from a seed.

use crate::rng::Rng;

#[derive(Debug, Clone, Copy)]
pub struct Plan {
    pub seed: u64,
    pub operations: u64,
    /// Largest size of the file, in bytes.
    pub largest: u64,
    pub mappings: bool,
    /// Every read and write with O_DIRECT, in blocks of this many bytes.
    pub direct: Option<u64>,
}

#[derive(Debug, Clone, Copy)]
pub enum Act {
    Read {
        offset: u64,
        length: u64,
    },
    Write {
        offset: u64,
        length: u64,
    },
    Append {
        length: u64,
    },
    Truncate {
        size: u64,
    },
    MapRead {
        offset: u64,
        length: u64,
    },
    MapWrite {
        offset: u64,
        length: u64,
        sync: bool,
    },
    Punch {
        offset: u64,
        length: u64,
    },
    Allocate {
        offset: u64,
        length: u64,
        keep_size: bool,
    },
    Copy {
        from: u64,
        to: u64,
        length: u64,
    },
    Sync,
    /// Lets go of cached pages, so that the next read comes from behind them.
    Forget,
    Reopen,
    /// Opens it, and at times writes, by its name while it is open.
    Beside {
        write: bool,
    },
    VerifyAll,
}

impl Plan {
    pub fn act(&self, rng: &mut Rng, size: u64) -> Act {
        let offset = self.place(rng, self.largest);
        let length = self.round(self.length(rng)).min(self.largest - offset);
        let inside = self.place(rng, size);
        match rng.below(100) {
            0..18 => Act::Read { offset: inside, length },
            18..36 => Act::Write { offset, length },
            36..40 => Act::Append { length: length.min(self.largest.saturating_sub(size)) },
            40..46 => Act::Truncate { size: offset },
            46..58 if self.mappings && size > 0 => Act::MapRead { offset: inside, length },
            58..70 if self.mappings && size > 0 => Act::MapWrite { offset: inside, length, sync: rng.once_in(3) },
            70..74 => Act::Punch { offset, length: length.max(1) },
            74..77 => Act::Allocate { offset, length: length.max(1), keep_size: rng.once_in(2) },
            77..82 => Act::Copy { from: inside, to: offset, length },
            82..86 => Act::Sync,
            86..91 => Act::Forget,
            91..95 => Act::Reopen,
            95..98 => Act::Beside { write: rng.once_in(2) },
            98..100 => Act::VerifyAll,
            _ => Act::Read { offset: inside, length },
        }
    }

    fn place(&self, rng: &mut Rng, end: u64) -> u64 {
        let at = match rng.below(4) {
            0 => (rng.below(end / 4096 + 1) * 4096 + rng.below(3)).saturating_sub(1),
            _ => rng.below(end + 1),
        };
        self.round(at.min(end))
    }

    fn length(&self, rng: &mut Rng) -> u64 {
        match rng.below(10) {
            0 => rng.below(16),
            1..6 => rng.below(20_000),
            6..9 => rng.below(200_000),
            _ => rng.below(self.largest),
        }
    }

    fn round(&self, bytes: u64) -> u64 {
        self.direct.map_or(bytes, |block| bytes / block * block)
    }
}
