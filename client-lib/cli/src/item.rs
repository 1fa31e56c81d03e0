//! One thing at a path, whether on a volume or not, as ls and stat show it.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use gpuvol_client::{DeviceUuid, Entry, Tier};
use serde::Serialize;

use crate::escape;
use crate::failure::{Failure, Result};
use crate::location::{Location, Place};

/// Keys of the JSON documents are these fields' names: they stay.
#[derive(Debug, Clone, Serialize)]
pub struct Item {
    #[serde(skip)]
    pub typed: PathBuf,
    #[serde(skip)]
    pub raw_name: Vec<u8>,
    /// The path as a reader of the listing can use it, escaped.
    pub path: String,
    /// Its last component, escaped.
    pub name: String,
    #[serde(rename = "type")]
    pub what: What,
    /// The volume's id; null for ordinary files.
    pub volume: Option<String>,
    /// bytes, arrow or tensor.
    pub kind: Option<&'static str>,
    pub size: Option<u64>,
    pub version: Option<u64>,
    /// host or gpu.
    pub tier: Option<&'static str>,
    /// UUID of the GPU that holds it.
    pub device: Option<String>,
    pub modified_ms: Option<u64>,
    pub producer: Option<String>,
    /// Names and values that the producer gave it; listings leave them out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attributes: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum What {
    Object,
    Directory,
    /// An ordinary file.
    File,
    Symlink,
    /// A socket, pipe or device node.
    Other,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::Object => "object",
            What::Directory => "directory",
            What::File => "file",
            What::Symlink => "symlink",
            What::Other => "other",
        }
    }
}

impl Item {
    /// What is at a location.
    pub fn at(location: &Location) -> Result<Self> {
        let typed = &location.typed;
        let name = typed.file_name().map(|n| n.as_bytes().to_vec()).unwrap_or_default();
        match &location.place {
            Place::Volume(volume, path) => {
                let entry = volume.stat(path)?;
                let attributes = entry.attributes.iter().map(|a| (a.name.clone(), a.value.clone())).collect();
                Ok(Self { attributes: Some(attributes), ..Self::of_entry(typed.clone(), name, &volume.id(), &entry) })
            }
            Place::File => {
                let metadata = std::fs::symlink_metadata(typed).map_err(Failure::file(typed))?;
                Ok(Self { attributes: Some(BTreeMap::new()), ..Self::of_file(typed.clone(), name, &metadata) })
            }
        }
    }

    pub fn of_entry(typed: PathBuf, raw_name: Vec<u8>, volume: &str, entry: &Entry) -> Self {
        let object = !entry.directory;
        let tier = entry.tier();
        Self {
            what: if object { What::Object } else { What::Directory },
            volume: Some(volume.to_owned()),
            kind: object.then(|| entry.kind().name()),
            size: object.then_some(entry.size),
            version: object.then_some(entry.version),
            tier: object.then(|| tier.name()),
            device: DeviceUuid::try_from(entry.device.as_slice()).ok().map(|uuid| uuid.to_string()),
            modified_ms: (entry.time_ms != 0).then_some(entry.time_ms),
            producer: Some(entry.producer.clone()).filter(|p| !p.is_empty()),
            ..Self::named(typed, raw_name)
        }
    }

    pub fn of_file(typed: PathBuf, raw_name: Vec<u8>, metadata: &Metadata) -> Self {
        let kind = metadata.file_type();
        let what = match () {
            () if kind.is_dir() => What::Directory,
            () if kind.is_file() => What::File,
            () if kind.is_symlink() => What::Symlink,
            () => What::Other,
        };
        let since = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Self {
            what,
            size: (what == What::File).then_some(metadata.len()),
            modified_ms: since.and_then(|since| u64::try_from(since.as_millis()).ok()),
            ..Self::named(typed, raw_name)
        }
    }

    fn named(typed: PathBuf, raw_name: Vec<u8>) -> Self {
        Self {
            path: escape::json(typed.as_os_str().as_bytes()),
            name: escape::json(&raw_name),
            typed,
            raw_name,
            what: What::Other,
            volume: None,
            kind: None,
            size: None,
            version: None,
            tier: None,
            device: None,
            modified_ms: None,
            producer: None,
            attributes: None,
        }
    }

    pub fn is_directory(&self) -> bool {
        self.what == What::Directory
    }

    pub fn on_gpu(&self) -> bool {
        self.tier == Some(Tier::Gpu.name())
    }
}

/// A directory's contents, page by page, in byte order of names: `page` sees each page and may end with an error.
pub fn walk_directory(location: &Location, mut page: impl FnMut(Vec<Item>) -> Result<()>) -> Result<()> {
    match &location.place {
        Place::Volume(volume, path) => {
            let mut after = Vec::new();
            loop {
                let (entries, more) = volume.list_page(path, &after, 0)?;
                let Some(last) = entries.last() else { return Ok(()) };
                after.clone_from(&last.name);
                let id = volume.id();
                let item = |entry: &Entry| {
                    let typed = location.typed.join(name_of(&entry.name));
                    Item::of_entry(typed, entry.name.clone(), &id, entry)
                };
                page(entries.iter().map(item).collect())?;
                if !more {
                    return Ok(());
                }
            }
        }
        Place::File => page(read_directory(&location.typed)?),
    }
}

fn name_of(name: &[u8]) -> &Path {
    Path::new(std::ffi::OsStr::from_bytes(name))
}

fn read_directory(directory: &Path) -> Result<Vec<Item>> {
    let failed = || Failure::file(directory);
    let mut items = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        // It may have gone meanwhile.
        let Ok(metadata) = entry.metadata() else { continue };
        let name = entry.file_name().as_bytes().to_vec();
        items.push(Item::of_file(directory.join(entry.file_name()), name, &metadata));
    }
    items.sort_by(|a, b| a.raw_name.cmp(&b.raw_name));
    Ok(items)
}
