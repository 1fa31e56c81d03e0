//! Writes the compiled `csi.proto` to standard output; `tests/csi/proto-check.sh` compares it with the official one.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(gpuvol_csi::csi::DESCRIPTORS)
}
