//! Opening: an object's metadata and memory, and the views of it.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use gpuvol_memory::Mapping as _;
use gpuvol_protocol::message::{Answer, Entry, Kind, Op, Open, Opened, Segment};
use gpuvol_protocol::{Code, ObjectPath};

use crate::error::{Error, Result};
use crate::layout::{
    DeviceBuffer, DeviceTable, HostTable, LayoutError, TensorMeta, is_ipc_file, is_npy_file, parse, parse_tensor,
};
use crate::mapping::{Hold, Mapped, shared_bytes};
use crate::put::TENSOR_ATTRIBUTE;
use crate::volume::Volume;

/// Longest that one request asks the store to wait.
const WAIT_STEP: Duration = Duration::from_secs(2);

/// Which way an open took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenWay {
    /// Small: its bytes came in the reply.
    Inline,
    /// The same host memory, mapped.
    Mapped,
    /// The same GPU memory, imported.
    Imported,
    /// In GPU memory that was not asked for or is not visible here: a copy in host memory, shared by all who read it.
    Copied,
    /// Read from an ordinary file: the path is on no gpu-volume.
    File,
}

impl OpenWay {
    pub fn name(self) -> &'static str {
        match self {
            OpenWay::Inline => "inline",
            OpenWay::Mapped => "mapped",
            OpenWay::Imported => "imported",
            OpenWay::Copied => "copied",
            OpenWay::File => "file",
        }
    }
}

/// How to open.
#[derive(Debug, Clone, Copy, Default)]
pub struct OpenOptions {
    /// How long to wait for the path to be sealed.
    pub wait: Duration,
    /// Only this version, where not 0.
    pub version: u64,
    /// Host memory is wanted: an object in GPU memory is copied.
    pub host: bool,
    /// The object's own memory is wanted: the error of one on a GPU that this process does not see names both sides,
    /// where a copy in host memory would be handed out otherwise.
    pub in_place: bool,
}

/// An open object. Its memory stays while this, or anything that came from it, lives.
#[derive(Debug)]
pub struct Object {
    path: String,
    entry: Entry,
    way: OpenWay,
    body: Body,
}

#[derive(Debug)]
enum Body {
    /// All bytes, on the host.
    Host(Bytes),
    Segments {
        parts: Vec<Part>,
        hold: Arc<Hold>,
    },
}

/// A run of the object's bytes.
#[derive(Debug)]
struct Part {
    /// Where it starts in the object.
    start: u64,
    len: u64,
    place: PartPlace,
}

#[derive(Debug)]
enum PartPlace {
    Host(Bytes),
    Device { mapping: Arc<gpuvol_memory::CudaMapping>, offset: u64 },
}

impl Volume {
    /// Opens the object at a path.
    pub fn open(&self, path: &ObjectPath, options: &OpenOptions) -> Result<Object> {
        let start = Instant::now();
        loop {
            let left = options.wait.saturating_sub(start.elapsed());
            let step = left.min(WAIT_STEP);
            let open = Open {
                path: path.as_bytes().to_vec(),
                version: options.version,
                // Rounded up: the wait is never shorter than asked for.
                wait_ms: u64::try_from(step.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
                host_only: options.host,
            };
            match self.session().call(Op::Open(open), &[]) {
                Ok((Answer::Opened(opened), fds)) => match self.object(path, opened, fds) {
                    Err(Error::DeviceNotVisible { .. }) if !options.in_place && !options.host => {
                        return self.open(path, &OpenOptions { host: true, ..*options });
                    }
                    result => return result,
                },
                Ok(_) => return Err(self.confused("no object")),
                Err(Error::Refused(fault)) if fault.code() == Code::DeadlineExceeded && left > step => {}
                Err(Error::Refused(mut fault)) if fault.code() == Code::DeadlineExceeded => {
                    // The store knows of the last step only.
                    fault.message = format!(
                        "{path} was not sealed in volume {} within {:?}; is its producer running?",
                        self.id(),
                        options.wait
                    );
                    return Err(Error::Refused(fault));
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn object(&self, path: &ObjectPath, opened: Opened, fds: Vec<std::os::fd::OwnedFd>) -> Result<Object> {
        let name = path.to_string();
        let entry = opened.entry.ok_or_else(|| self.confused("an object without an entry"))?;
        let hold = Arc::new(Hold::new(self.session().clone(), opened.hold));
        if opened.segments.is_empty() {
            let body = Body::Host(Bytes::from(opened.content));
            return Object { path: name, entry, way: OpenWay::Inline, body }.recognised();
        }
        if fds.len() != opened.allocations.len() {
            return Err(self.confused("not one descriptor for each allocation"));
        }
        let epoch = self.session().epoch();
        let mapped: Vec<Mapped> = opened
            .allocations
            .iter()
            .zip(fds)
            .map(|(allocation, fd)| self.mappings().map(&name, epoch, allocation, fd))
            .collect::<Result<_>>()?;
        let parts = parts(opened.segments, &mapped, &hold).ok_or_else(|| self.confused("segments without memory"))?;
        let on_device = mapped.iter().any(|m| matches!(m, Mapped::Device(_)));
        let way = match (opened.replica, on_device) {
            (true, _) => OpenWay::Copied,
            (false, true) => OpenWay::Imported,
            (false, false) => OpenWay::Mapped,
        };
        Object { path: name, entry, way, body: Body::Segments { parts, hold } }.recognised()
    }
}

/// What a file is, by its first and last bytes.
pub(crate) fn kind_of(first: &[u8], last: &[u8]) -> Kind {
    if is_ipc_file(first, last) {
        Kind::Arrow
    } else if is_npy_file(first) {
        Kind::Tensor
    } else {
        Kind::Bytes
    }
}

/// The segments as runs of memory; `None` where one is outside its allocation.
fn parts(segments: Vec<Segment>, mapped: &[Mapped], hold: &Arc<Hold>) -> Option<Vec<Part>> {
    let mut start: u64 = 0;
    let mut parts = Vec::with_capacity(segments.len());
    let host: Vec<Option<Bytes>> = mapped
        .iter()
        .map(|m| match m {
            Mapped::Host(mapping) => Some(shared_bytes(mapping.clone(), hold.clone())),
            Mapped::Device(_) => None,
        })
        .collect();
    for segment in segments {
        let len = segment.len;
        let place = if segment.inline.is_empty() {
            let index = usize::try_from(segment.allocation).ok()?;
            let end = segment.offset.checked_add(len)?;
            match (mapped.get(index)?, host.get(index)?) {
                (Mapped::Device(mapping), _) if end <= mapping.size() => {
                    PartPlace::Device { mapping: mapping.clone(), offset: segment.offset }
                }
                (_, Some(bytes)) if end <= bytes.len() as u64 => {
                    PartPlace::Host(bytes.slice(usize::try_from(segment.offset).ok()?..usize::try_from(end).ok()?))
                }
                _ => return None,
            }
        } else {
            PartPlace::Host(Bytes::from(segment.inline))
        };
        parts.push(Part { start, len, place });
        start = start.checked_add(len)?;
    }
    Some(parts)
}

impl Object {
    /// An ordinary file's bytes, as an object.
    pub(crate) fn from_file(path: String, kind: Kind, bytes: Bytes) -> Self {
        let entry = Entry { kind: kind.into(), size: bytes.len() as u64, ..Entry::default() };
        Self { path, entry, way: OpenWay::File, body: Body::Host(bytes) }
    }

    /// What a program wrote as a file is a table or a tensor where its bytes are those of one.
    fn recognised(mut self) -> Result<Self> {
        const ENDS: u64 = 16;
        if self.entry.written && self.kind() == Kind::Bytes {
            let size = self.size();
            let (first, last) = (self.read(0..size.min(ENDS))?, self.read(size.saturating_sub(ENDS)..size)?);
            self.entry.kind = kind_of(&first, &last).into();
        }
        Ok(self)
    }

    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    pub fn kind(&self) -> Kind {
        self.entry.kind()
    }

    /// Bytes of content.
    pub fn size(&self) -> u64 {
        self.entry.size
    }

    pub fn version(&self) -> u64 {
        self.entry.version
    }

    pub fn way(&self) -> OpenWay {
        self.way
    }

    /// The GPU whose memory holds it.
    pub fn device(&self) -> Option<[u8; 16]> {
        self.entry.device.as_slice().try_into().ok()
    }

    /// Is all of it in host memory already?
    pub fn on_host(&self) -> bool {
        match &self.body {
            Body::Host(_) => true,
            Body::Segments { parts, .. } => parts.iter().all(|p| matches!(p.place, PartPlace::Host(_))),
        }
    }

    /// All bytes on the host: the same memory where it is one piece of host memory, else a copy ([`Object::on_host`]
    /// tells whether the GPU is read).
    pub fn bytes(&self) -> Result<Bytes> {
        match &self.body {
            Body::Host(bytes) => Ok(bytes.clone()),
            Body::Segments { parts, .. } => match parts.as_slice() {
                [Part { place: PartPlace::Host(bytes), .. }] => Ok(bytes.clone()),
                _ => self.read(0..self.size()),
            },
        }
    }

    /// A copy of a range of the bytes, on the host.
    pub fn read(&self, range: Range<u64>) -> Result<Bytes> {
        let outside = || Error::Unsupported { path: self.path.clone(), what: "a range outside the object" };
        if range.start > range.end || range.end > self.size() {
            return Err(outside());
        }
        let len = usize::try_from(range.end - range.start).map_err(|_| outside())?;
        let parts = match &self.body {
            Body::Host(bytes) => {
                let start = usize::try_from(range.start).map_err(|_| outside())?;
                return Ok(bytes.slice(start..start + len));
            }
            Body::Segments { parts, .. } => parts,
        };
        let mut copy = BytesMut::zeroed(len);
        for part in parts {
            let from = range.start.max(part.start);
            let to = range.end.min(part.start + part.len);
            if from >= to {
                continue;
            }
            let inside = |at: u64, base: u64| usize::try_from(at - base).map_err(|_| outside());
            let target = &mut copy[inside(from, range.start)?..inside(to, range.start)?];
            match &part.place {
                PartPlace::Host(bytes) => {
                    target.copy_from_slice(&bytes[inside(from, part.start)?..inside(to, part.start)?]);
                }
                PartPlace::Device { mapping, offset } => {
                    let from = offset + (from - part.start);
                    mapping.copy_out(from, target).map_err(Error::memory(&self.path))?;
                }
            }
        }
        Ok(copy.freeze())
    }

    /// The table in host memory: the same memory where it is on the host, else a copy.
    pub fn table(&self) -> Result<HostTable> {
        self.expect(Kind::Arrow)?;
        HostTable::open(self.bytes()?).map_err(Error::layout(&self.path))
    }

    /// The table in the GPU's memory, without a copy; `columns` chooses some.
    pub fn device_table(&self, columns: Option<&[&str]>) -> Result<DeviceView<DeviceTable>> {
        self.expect(Kind::Arrow)?;
        let mut read = |range: Range<u64>| self.read_meta(range);
        let ipc = parse(self.size(), &mut read).map_err(Error::layout(&self.path))?;
        let table = DeviceTable::from_ipc(&ipc, &|offset, len| self.resolve(offset, len), columns)
            .map_err(Error::layout(&self.path))?;
        self.view(table)
    }

    /// The tensor's meta and its bytes on the host: the same memory where it is on the host, else a copy.
    pub fn tensor(&self) -> Result<(TensorMeta, Bytes)> {
        let (meta, at) = self.tensor_meta()?;
        let bytes = self.bytes()?;
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        let end = meta.data_bytes().ok().and_then(|len| at.checked_add(usize::try_from(len).ok()?));
        match end.filter(|end| *end <= bytes.len()) {
            Some(end) => Ok((meta, bytes.slice(at..end))),
            None => {
                Err(Error::Unsupported { path: self.path.clone(), what: "a tensor with fewer bytes than its shape" })
            }
        }
    }

    /// The tensor in the GPU's memory, without a copy.
    pub fn device_tensor(&self) -> Result<DeviceView<(TensorMeta, DeviceBuffer)>> {
        let (meta, at) = self.tensor_meta()?;
        let len = meta.data_bytes().map_err(Error::layout(&self.path))?;
        let data = self.resolve(at, len).map_err(Error::layout(&self.path))?;
        self.view((meta, data))
    }

    /// A tensor's meta, and where its data begins.
    pub fn tensor_meta(&self) -> Result<(TensorMeta, u64)> {
        /// More than any header of the supported number of dimensions.
        const PREFIX: u64 = 64 * 1024;
        self.expect(Kind::Tensor)?;
        let prefix = match &self.body {
            Body::Host(bytes) => bytes.clone(),
            Body::Segments { parts, .. } => match parts.first() {
                Some(Part { place: PartPlace::Host(bytes), .. }) => bytes.clone(),
                _ => self.read(0..self.size().min(PREFIX))?,
            },
        };
        let attribute = self.entry.attributes.iter().find(|a| a.name == TENSOR_ATTRIBUTE);
        let attribute = attribute.map_or("", |a| a.value.as_str());
        parse_tensor(&prefix, self.size(), attribute).map_err(Error::layout(&self.path))
    }

    fn expect(&self, wanted: Kind) -> Result<()> {
        let actual = self.kind();
        if actual == wanted {
            return Ok(());
        }
        Err(Error::Kind { path: self.path.clone(), actual: actual.name(), wanted: wanted.name() })
    }

    fn view<T>(&self, what: T) -> Result<DeviceView<T>> {
        let Body::Segments { parts, hold } = &self.body else {
            return Err(Error::Unsupported { path: self.path.clone(), what: "it is in host memory, not on a GPU" });
        };
        let mapping = parts.iter().find_map(|part| match &part.place {
            PartPlace::Device { mapping, .. } => Some(mapping.clone()),
            PartPlace::Host(_) => None,
        });
        let mapping = mapping.ok_or_else(|| Error::Unsupported {
            path: self.path.clone(),
            what: "it is in host memory, not on a GPU",
        })?;
        Ok(DeviceView { what, mapping, hold: hold.clone() })
    }

    /// Metadata bytes, which must be on the host.
    fn read_meta(&self, range: Range<u64>) -> std::result::Result<Bytes, LayoutError> {
        self.read(range).map_err(|error| LayoutError::corrupt("object", error.to_string()))
    }

    /// Where a range of the object's bytes is on the device.
    fn resolve(&self, offset: u64, len: u64) -> std::result::Result<DeviceBuffer, LayoutError> {
        let outside =
            || LayoutError::corrupt("object", format!("bytes {offset}..+{len} are not in one piece of GPU memory"));
        let Body::Segments { parts, .. } = &self.body else { return Err(outside()) };
        let index = parts.partition_point(|part| part.start + part.len <= offset);
        match parts.get(index) {
            Some(Part { start, len: whole, place: PartPlace::Device { mapping, offset: base } })
                if len <= whole - (offset - start) =>
            {
                Ok(DeviceBuffer { address: mapping.address() + base + (offset - start), len })
            }
            _ => Err(outside()),
        }
    }
}

/// Something whose addresses lie in an imported mapping, and what keeps that mapping.
#[derive(Debug, Clone)]
pub struct DeviceView<T> {
    what: T,
    mapping: Arc<gpuvol_memory::CudaMapping>,
    #[expect(dead_code, reason = "kept until the view goes")]
    hold: Arc<Hold>,
}

impl<T> DeviceView<T> {
    /// The mapping that the addresses lie in.
    pub fn mapping(&self) -> &gpuvol_memory::CudaMapping {
        &self.mapping
    }
}

impl<T> std::ops::Deref for DeviceView<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.what
    }
}
