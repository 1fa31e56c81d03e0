//! The same calls for any path: objects where it is on a volume, ordinary files where it is not.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use bytes::Bytes;
use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::types::SOCKET_NAME;

use crate::error::{Error, Result};
use crate::layout::{TensorMeta, plan_host, plan_tensor};
use crate::locate::{Place, locate};
use crate::open::{Object, OpenOptions, kind_of};
use crate::put::{Put, PutOptions, PutWay, host_parts};
use crate::volume::Volume;

/// Most mounts whose sessions are kept.
const MAX_SESSIONS: usize = 64;

/// A mount's session, and the socket that it was made at: a volume that was published anew has another one.
struct Known {
    socket: (u64, u64),
    volume: Volume,
}

/// The volume that a path is on, and the path inside; `None` where it is on none. One session per mount is kept.
pub fn volume_at(path: &Path) -> Result<Option<(Volume, ObjectPath)>> {
    static KNOWN: OnceLock<Mutex<HashMap<PathBuf, Known>>> = OnceLock::new();
    let Place::Volume { mount, path } = locate(path)? else { return Ok(None) };
    let socket = mount.join(SOCKET_NAME);
    let meta = fs::symlink_metadata(&socket).map_err(|source| Error::Connect { path: socket, source })?;
    let socket = (meta.dev(), meta.ino());
    let known = || KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(same) = known().get(&mount).filter(|k| k.socket == socket) {
        return Ok(Some((same.volume.clone(), path)));
    }
    // Not under the lock: a store that is being replaced may take a while to answer.
    let volume = Volume::at_mount(&mount)?;
    let mut known = known();
    if known.len() >= MAX_SESSIONS && !known.contains_key(&mount) {
        // Any other: what is still used lives on by itself.
        if let Some(other) = known.keys().next().cloned() {
            known.remove(&other);
        }
    }
    known.insert(mount, Known { socket, volume: volume.clone() });
    Ok(Some((volume, path)))
}

/// Puts bytes at a path.
pub fn put_bytes(path: &Path, bytes: &[u8], options: &PutOptions) -> Result<Put> {
    match volume_at(path)? {
        Some((volume, path)) => volume.put_bytes(&path, bytes, options),
        None => write_file(path, &[bytes], options),
    }
}

/// Puts a table from host memory at a path; as an Arrow IPC file where the path is on no volume.
pub fn put_batches(path: &Path, schema: &SchemaRef, batches: &[RecordBatch], options: &PutOptions) -> Result<Put> {
    if let Some((volume, path)) = volume_at(path)? {
        return volume.put_batches(&path, schema, batches, options);
    }
    let plan = plan_host(schema, batches).map_err(Error::layout(path.display()))?;
    write_file(path, &host_parts(&plan), options)
}

/// Puts a tensor from host memory at a path; as a `.npy` file where the path is on no volume.
pub fn put_tensor(path: &Path, meta: &TensorMeta, data: &[u8], options: &PutOptions) -> Result<Put> {
    if let Some((volume, path)) = volume_at(path)? {
        return volume.put_tensor(&path, meta, data, options);
    }
    let header = plan_tensor(meta).map_err(Error::layout(path.display()))?;
    write_file(path, &[&header, data], options)
}

/// Opens what is at a path.
pub fn open(path: &Path, options: &OpenOptions) -> Result<Object> {
    let start = Instant::now();
    loop {
        // As every program does that opens a link.
        let linked = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_symlink()).then(|| path.canonicalize());
        let path = linked.and_then(io::Result::ok).map_or(Cow::Borrowed(path), Cow::Owned);
        if let Some((volume, path)) = volume_at(&path)? {
            return volume.open(&path, options);
        }
        match open_file(&path) {
            Err(Error::File { source, .. })
                if source.kind() == io::ErrorKind::NotFound && start.elapsed() < options.wait =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

fn open_file(path: &Path) -> Result<Object> {
    let failed = |source| Error::File { path: path.to_owned(), source };
    let bytes = Bytes::from(fs::read(path).map_err(failed)?);
    let kind = kind_of(&bytes[..bytes.len().min(16)], &bytes[bytes.len().saturating_sub(16)..]);
    Ok(Object::from_file(path.display().to_string(), kind, bytes))
}

/// Writes a file whole: beside its path, then renamed to it.
fn write_file(path: &Path, parts: &[&[u8]], options: &PutOptions) -> Result<Put> {
    if options.upload.is_some() {
        let what = "it is on no gpu-volume, so it cannot go into GPU memory";
        return Err(Error::Unsupported { path: path.display().to_string(), what });
    }
    let failed = |source| Error::File { path: path.to_owned(), source };
    static NEXT: AtomicU64 = AtomicU64::new(0);
    path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let unique = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let temporary = path.with_file_name(format!(".gpuvol.{}.{}", unique.0, unique.1));
    let written = (|| {
        let mut file = fs::File::create_new(&temporary)?;
        parts.iter().try_for_each(|part| file.write_all(part))?;
        if options.exclusive { fs::hard_link(&temporary, path) } else { fs::rename(&temporary, path) }
    })();
    if written.is_err() || options.exclusive {
        // Best effort: the error, if any, is the other one.
        let _ = fs::remove_file(&temporary);
    }
    written.map_err(failed)?;
    let size = parts.iter().map(|part| part.len() as u64).sum();
    Ok(Put { version: 0, size, way: PutWay::File })
}
