//! `gpuvol put`, and putting a file's content for the other commands.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use clap::{Args, ValueEnum};
use gpuvol_client::layout::{HostTable, is_ipc_file, is_npy_file, parse_tensor};
use gpuvol_client::{Code, DeviceUuid, Error, Kind, ObjectPath, PutOptions, Volume};
use gpuvol_memory::cuda::visible_devices;
use serde::Serialize;

use crate::escape::{json, shown, shown_path};
use crate::failure::{Failure, Result, note};
use crate::location::{Location, Place};
use crate::output::{print, print_json};
use crate::progress::Progress;
use crate::text::human_size;

/// Puts a file's content onto a volume
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  gpuvol put features.arrow /data/features     a table, in host memory
  gpuvol put --device auto w.npy /data/w       a tensor, in the memory of a GPU
  make-report | gpuvol put - /data/report.txt
  gpuvol put --kind bytes f.arrow /data/raw    exactly the file's bytes

An Arrow IPC file (.arrow, Feather 2) becomes a table and a .npy file a tensor, told by content, not by name. A table is \
laid out anew, uncompressed and aligned, so that readers map it without a copy. Directories above DEST are made. Nobody \
sees the object before all of it is there. The content passes through this process's memory once.")]
pub struct Put {
    /// What the content is
    #[arg(long, value_enum, default_value = "auto")]
    kind: Wanted,
    /// Copy it into a GPU's memory: a UUID (`gpuvol doctor` lists them), or auto
    #[arg(long, value_name = "GPU-UUID|auto")]
    device: Option<String>,
    /// Fail where DEST exists
    #[arg(short, long)]
    no_clobber: bool,
    /// A name and a value for readers; may be given several times
    #[arg(short, long, value_name = "NAME=VALUE", value_parser = parse_attribute)]
    attribute: Vec<(String, String)>,
    /// Say nothing
    #[arg(short, long)]
    quiet: bool,
    /// One JSON document: path, volume, kind, size, version and the way that the content took
    #[arg(long)]
    json: bool,
    /// A file, or - for standard input
    #[arg(value_name = "SRC")]
    src: PathBuf,
    /// A path on a volume, or a directory there
    #[arg(value_name = "DEST")]
    dest: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Wanted {
    /// What it looks like
    Auto,
    /// Exactly the file's bytes
    Bytes,
    /// A table, from an Arrow IPC file
    Arrow,
    /// A tensor, from a .npy file
    Tensor,
}

#[derive(Debug, Serialize)]
struct Document {
    path: String,
    volume: Option<String>,
    kind: &'static str,
    size: u64,
    version: Option<u64>,
    way: &'static str,
}

impl Put {
    pub fn run(self) -> Result<()> {
        let from_stdin = self.src == Path::new("-");
        let name = if from_stdin { None } else { self.src.file_name() };
        if !from_stdin && matches!(Location::of(&self.src)?.place, Place::Volume(..)) {
            let what = "is on a gpu-volume; `gpuvol cp` copies from there";
            return Err(Failure::path(&self.src, Code::InvalidArgument, what));
        }
        let target = Location::of(&self.dest)?.target(name)?;
        let mut options =
            PutOptions { exclusive: self.no_clobber, attributes: self.attribute.clone(), ..PutOptions::default() };
        if let Some(device) = &self.device {
            options.upload = Some(self.gpu(device, &target)?);
        }
        let room = Room::at(&target)?;
        let content = if from_stdin {
            read_all(std::io::stdin().lock(), &self.src, None, room.as_ref())?
        } else {
            read_file(&self.src, room.as_ref())?
        };
        let (put, kind) = match &target.place {
            Place::Volume(volume, path) => put_content(volume, path, &content, self.kind, &options)?,
            Place::File => (gpuvol_client::put_bytes(&target.typed, &content, &options)?, Kind::Bytes),
        };
        let volume = match &target.place {
            Place::Volume(volume, _) => Some(volume.id()),
            Place::File => None,
        };
        if self.json {
            use std::os::unix::ffi::OsStrExt as _;
            return print_json(&Document {
                path: json(target.typed.as_os_str().as_bytes()),
                volume,
                kind: kind.name(),
                size: put.size,
                version: (put.version != 0).then_some(put.version),
                way: put.way.name(),
            });
        }
        if self.quiet {
            return Ok(());
        }
        let path = shown_path(&target.typed);
        print(&format!("{path}: {}, {}, by {}\n", kind.name(), human_size(put.size), put.way.name()))
    }

    fn gpu(&self, device: &str, target: &Location) -> Result<[u8; 16]> {
        if device != "auto" {
            let uuid: DeviceUuid = device.parse().map_err(|error| Failure::Usage(format!("--device: {error}")))?;
            return Ok(uuid.0);
        }
        let (volume, _) = target.on_volume("cp")?;
        if let Ok(bound) = <[u8; 16]>::try_from(volume.usage()?.device) {
            return Ok(bound);
        }
        let none = |why: String| Failure::path(&target.typed, Code::DeviceUnknown, format!("--device auto: {why}"));
        match visible_devices() {
            Ok(devices) => devices.first().map(|d| d.uuid).ok_or_else(|| none("this process sees no GPU".to_owned())),
            Err(error) => Err(none(error.to_string())),
        }
    }
}

/// A volume and the most that it can hold at all, in bytes.
pub struct Room {
    volume: String,
    capacity: u64,
}

impl Room {
    pub fn of(volume: &Volume) -> Result<Self> {
        Ok(Self { volume: volume.id(), capacity: volume.usage()?.capacity })
    }

    fn at(target: &Location) -> Result<Option<Self>> {
        match &target.place {
            Place::Volume(volume, _) => Self::of(volume).map(Some),
            Place::File => Ok(None),
        }
    }
}

/// A whole file in memory, for a put: there is no other way into a volume. More than there is room for is not read.
pub fn read_file(path: &Path, room: Option<&Room>) -> Result<Bytes> {
    let file = File::open(path).map_err(Failure::file(path))?;
    let size = file.metadata().map_err(Failure::file(path))?.len();
    read_all(file, path, Some(size), room)
}

fn read_all(mut from: impl Read, path: &Path, size: Option<u64>, room: Option<&Room>) -> Result<Bytes> {
    let too_much = |size: u64| {
        let Room { volume, capacity } = room.filter(|room| size > room.capacity)?;
        let (size, capacity) = (gpuvol_protocol::types::Bytes(size), gpuvol_protocol::types::Bytes(*capacity));
        let what = format!("no space in volume {volume}: {size} and maybe more, its whole capacity is {capacity}");
        Some(Failure::path(path, Code::QuotaExceeded, what))
    };
    if let Some(failure) = size.and_then(too_much) {
        return Err(failure);
    }
    const PIECE: u64 = 4 << 20;
    let mut content = Vec::new();
    let expected = usize::try_from(size.unwrap_or(0)).unwrap_or(usize::MAX);
    let too_large = |_| Failure::path(path, Code::OutOfMemory, "does not fit into this process's memory");
    content.try_reserve_exact(expected).map_err(too_large)?;
    let mut progress = Progress::new(shown_path(path), size);
    loop {
        match from.by_ref().take(PIECE).read_to_end(&mut content) {
            Ok(0) => return Ok(content.into()),
            Ok(n) => progress.advance(n),
            Err(error) => return Err(Failure::file(path)(error)),
        }
        if let Some(failure) = too_much(content.len() as u64) {
            return Err(failure);
        }
    }
}

/// Puts content as what it is, or as what it is wanted as; answers the kind too.
pub fn put_content(
    volume: &Volume,
    path: &ObjectPath,
    content: &Bytes,
    wanted: Wanted,
    options: &PutOptions,
) -> Result<(gpuvol_client::Put, Kind)> {
    let first = &content[..content.len().min(16)];
    let last = &content[content.len().saturating_sub(16)..];
    let kind = match wanted {
        Wanted::Bytes => Kind::Bytes,
        Wanted::Arrow => Kind::Arrow,
        Wanted::Tensor => Kind::Tensor,
        Wanted::Auto if is_ipc_file(first, last) => Kind::Arrow,
        Wanted::Auto if is_npy_file(first) => Kind::Tensor,
        Wanted::Auto => Kind::Bytes,
    };
    let put = match kind {
        Kind::Bytes => volume.put_bytes(path, content, options),
        Kind::Arrow => put_table(volume, path, content.clone(), options),
        Kind::Tensor => put_tensor(volume, path, content, options),
    };
    match put {
        // It looked like one, and is something else.
        Err(Error::Layout { source, .. }) if wanted == Wanted::Auto => {
            note(&format!("{} is put as bytes: {source}", shown(path.as_bytes())));
            Ok((volume.put_bytes(path, content, options)?, Kind::Bytes))
        }
        put => Ok((put?, kind)),
    }
}

fn put_table(
    volume: &Volume,
    path: &ObjectPath,
    content: Bytes,
    options: &PutOptions,
) -> gpuvol_client::Result<gpuvol_client::Put> {
    let failed = |source| Error::Layout { path: path.to_string(), source };
    let table = HostTable::open(content).map_err(failed)?;
    let batches = table.batches().collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    volume.put_batches(path, &table.schema(), &batches, options)
}

fn put_tensor(
    volume: &Volume,
    path: &ObjectPath,
    content: &[u8],
    options: &PutOptions,
) -> gpuvol_client::Result<gpuvol_client::Put> {
    let failed = |source| Error::Layout { path: path.to_string(), source };
    let (meta, at) = parse_tensor(content, content.len() as u64, "").map_err(failed)?;
    let len = meta.data_bytes().map_err(failed)?;
    let bounds = usize::try_from(at).ok().zip(usize::try_from(at.saturating_add(len)).ok());
    let data = bounds.and_then(|(at, end)| content.get(at..end)).unwrap_or_default();
    volume.put_tensor(path, &meta, data, options)
}

fn parse_attribute(text: &str) -> std::result::Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    pair.map(|(name, value)| (name.to_owned(), value.to_owned())).ok_or_else(|| "want NAME=VALUE".to_owned())
}
