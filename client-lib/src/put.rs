//! Putting: bytes, tables and tensors, from host or device memory, by the way that copies least.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use gpuvol_memory::{
    Access, Allocation as _, CudaAllocation, CudaMapping, CudaMemory, HostMemory, Mapping as _, Memory as _,
};
use gpuvol_protocol::ObjectPath;
use gpuvol_protocol::message::{
    Abort, Allocation, AllocationKind, Answer, Attach, Attribute, Create, Kind, Op, PutInline, Seal, Segment, Tier,
};

use crate::error::{Error, Result};
use crate::layout::{DeviceBuffer, DeviceTable, FilePlan, Piece, TensorMeta, plan_device, plan_host, plan_tensor};
use crate::mapping::device_memory;
use crate::placed::PlacedPlan;
use crate::volume::Volume;

/// The attribute that names a tensor's dtype where `.npy` cannot.
pub const TENSOR_ATTRIBUTE: &str = "gpuvol.tensor";

/// Which way a put took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PutWay {
    /// Small: its bytes went to the store in the request.
    Inline,
    /// Written into host memory that the store made: one copy.
    HostCopy,
    /// Copied within the GPU: one copy.
    DeviceCopy,
    /// Copied from host memory to the GPU.
    Upload,
    /// Written to an ordinary file: the path is on no gpu-volume.
    File,
}

impl PutWay {
    pub fn name(self) -> &'static str {
        match self {
            PutWay::Inline => "inline",
            PutWay::HostCopy => "host copy",
            PutWay::DeviceCopy => "device copy",
            PutWay::Upload => "upload",
            PutWay::File => "file",
        }
    }
}

/// What a put made.
#[derive(Debug, Clone, Copy)]
pub struct Put {
    /// The object's version; 0 for an ordinary file.
    pub version: u64,
    /// Bytes of content.
    pub size: u64,
    pub way: PutWay,
}

/// How to put.
#[derive(Debug, Clone, Default)]
pub struct PutOptions {
    /// Fail where something is at the path, instead of replacing it.
    pub exclusive: bool,
    /// Copy host data into this GPU's memory instead of host memory.
    pub upload: Option<[u8; 16]>,
    /// Names and values that readers see.
    pub attributes: Vec<(String, String)>,
    /// A `CUstream` that the device data was made on; `None` for the legacy default stream.
    pub stream: Option<u64>,
}

impl PutOptions {
    fn attributes(&self) -> Vec<Attribute> {
        let pair = |(name, value): &(String, String)| Attribute { name: name.clone(), value: value.clone() };
        self.attributes.iter().map(pair).collect()
    }
}

impl Volume {
    pub fn put_bytes(&self, path: &ObjectPath, bytes: &[u8], options: &PutOptions) -> Result<Put> {
        self.put_host(path, Kind::Bytes, &[bytes], options, Vec::new())
    }

    /// A table from host memory.
    pub fn put_batches(
        &self,
        path: &ObjectPath,
        schema: &SchemaRef,
        batches: &[RecordBatch],
        options: &PutOptions,
    ) -> Result<Put> {
        let plan = plan_host(schema, batches).map_err(Error::layout(path))?;
        if let Some(uuid) = options.upload {
            return self.upload(path, Kind::Arrow, &plan, &uuid, options, Vec::new());
        }
        self.put_host(path, Kind::Arrow, &host_parts(&plan), options, Vec::new())
    }

    /// A tensor from host memory; `data` in the order that `meta` says.
    pub fn put_tensor(&self, path: &ObjectPath, meta: &TensorMeta, data: &[u8], options: &PutOptions) -> Result<Put> {
        let header = tensor_header(path, meta, data.len() as u64)?;
        let attributes = tensor_attributes(meta);
        if let Some(uuid) = options.upload {
            let plan = tensor_plan(header, data, data.len() as u64);
            return self.upload(path, Kind::Tensor, &plan, &uuid, options, attributes);
        }
        self.put_host(path, Kind::Tensor, &[&header, data], options, attributes)
    }

    /// A table from the memory of a GPU: one copy within it. The caller keeps the table's memory as it is until this
    /// returns; `options.stream` is the stream that made it.
    pub fn put_device_table(
        &self,
        path: &ObjectPath,
        table: &DeviceTable,
        device: [u8; 16],
        options: &PutOptions,
    ) -> Result<Put> {
        let plan = plan_device(table).map_err(Error::layout(path))?;
        let copy = |target: &mut CudaMapping, placed: &PlacedPlan<'_, _>| copy_within(target, placed, options.stream);
        self.put_device(path, Kind::Arrow, &plan, device, options, Vec::new(), PutWay::DeviceCopy, copy)
    }

    /// A tensor from the memory of a GPU, contiguous: one copy within it. As for [`Volume::put_device_table`].
    pub fn put_device_tensor(
        &self,
        path: &ObjectPath,
        meta: &TensorMeta,
        data: DeviceBuffer,
        device: [u8; 16],
        options: &PutOptions,
    ) -> Result<Put> {
        let header = tensor_header(path, meta, data.len)?;
        let plan = tensor_plan(header, data, data.len);
        let copy = |target: &mut CudaMapping, placed: &PlacedPlan<'_, _>| copy_within(target, placed, options.stream);
        let attributes = tensor_attributes(meta);
        self.put_device(path, Kind::Tensor, &plan, device, options, attributes, PutWay::DeviceCopy, copy)
    }

    fn put_host(
        &self,
        path: &ObjectPath,
        kind: Kind,
        parts: &[&[u8]],
        options: &PutOptions,
        mut attributes: Vec<Attribute>,
    ) -> Result<Put> {
        attributes.extend(options.attributes());
        let size: u64 = parts.iter().map(|part| part.len() as u64).sum();
        if let Some(uuid) = options.upload.filter(|_| size > 0) {
            let plan = FilePlan { pieces: body_pieces(parts), len: size };
            return self.upload(path, kind, &plan, &uuid, options, attributes);
        }
        if size <= self.inline_limit() {
            let content = parts.concat();
            let op = PutInline {
                path: path.as_bytes().to_vec(),
                kind: kind.into(),
                content,
                attributes,
                exclusive: options.exclusive,
            };
            let version = self.sealed(Op::PutInline(op), || {})?;
            return Ok(Put { version, size, way: PutWay::Inline });
        }
        let (reservation, memory) = self.reserve(path, size, Tier::Host, &[], || {})?;
        let memory = memory.ok_or_else(|| self.confused("no memory with a reservation on the host"))?;
        let memory = HostMemory.import(memory, size).map_err(Error::memory(path))?;
        let mut at = 0;
        for part in parts {
            memory.write_at(at, part).map_err(Error::memory(path))?;
            at += part.len() as u64;
        }
        drop(memory);
        let seal = Seal {
            reservation: reservation.id,
            kind: kind.into(),
            segments: vec![Segment { allocation: 0, offset: 0, len: size, inline: Vec::new() }],
            attributes,
            exclusive: options.exclusive,
            ..Seal::default()
        };
        let version = reservation.seal(seal, || {})?;
        Ok(Put { version, size, way: PutWay::HostCopy })
    }

    fn upload<B: AsRef<[u8]>>(
        &self,
        path: &ObjectPath,
        kind: Kind,
        plan: &FilePlan<B>,
        uuid: &[u8; 16],
        options: &PutOptions,
        attributes: Vec<Attribute>,
    ) -> Result<Put> {
        let copy = |target: &mut CudaMapping, placed: &PlacedPlan<'_, B>| {
            placed.write_zeros(target)?;
            placed.copy_zeros(target, options.stream)?;
            placed.jobs.iter().try_for_each(|(offset, bytes)| target.copy_in(*offset, bytes.as_ref()))?;
            // Small copies from the host may still be on their way on the default stream.
            target.synchronize(None)
        };
        let mut attributes = attributes;
        attributes.extend(options.attributes());
        let options = PutOptions { attributes: Vec::new(), ..options.clone() };
        self.put_device(path, kind, plan, *uuid, &options, attributes, PutWay::Upload, copy)
    }

    /// Bodies go into one allocation of the GPU, everything else travels inline or in a memfd.
    #[expect(clippy::too_many_arguments, reason = "one place for what every way into device memory shares")]
    fn put_device<B>(
        &self,
        path: &ObjectPath,
        kind: Kind,
        plan: &FilePlan<B>,
        device: [u8; 16],
        options: &PutOptions,
        mut attributes: Vec<Attribute>,
        way: PutWay,
        copy: impl FnOnce(&mut CudaMapping, &PlacedPlan<'_, B>) -> gpuvol_memory::Result<()>,
    ) -> Result<Put> {
        attributes.extend(options.attributes());
        let placed = PlacedPlan::new(plan);
        if placed.body_len == 0 {
            // Nothing that a GPU could hold: an empty table, say.
            let parts: Vec<&[u8]> = plan.pieces.iter().filter_map(meta_of).collect();
            let options = PutOptions { upload: None, attributes: Vec::new(), ..options.clone() };
            return self.put_host(path, kind, &parts, &options, attributes);
        }
        let memory = device_memory(&path.to_string(), &device)?;
        let meta = placed.meta_memory(path)?;
        let meta_len = meta.as_ref().map_or(placed.meta_len, gpuvol_memory::Allocation::len);
        // What it will take of the quota, exactly: whole granules of the GPU, and the metadata.
        let takes = placed.device_len().next_multiple_of(memory.granularity()).saturating_add(meta_len);
        // The memory is made while the store answers: where the volume is full it goes at once.
        let mut made = None;
        tracing::trace!("planned");
        let (reservation, _) = self.reserve(path, takes, Tier::Gpu, &device, || {
            made = Some(create_patiently(&memory, placed.device_len()).and_then(|memory| {
                tracing::trace!("the memory is made");
                let mapping = memory.map(Access::ReadWrite)?;
                tracing::trace!("mapped");
                Ok((memory, mapping))
            }));
        })?;
        tracing::trace!("reserved");
        let made = made.ok_or_else(|| self.confused("a reservation before it was asked for"))?;
        let (allocation, mut mapping) = made.map_err(|error| match memory.memory_info() {
            Ok(info) if error.is_out_of_memory() => Error::DeviceFull {
                path: path.to_string(),
                volume: self.id(),
                device: gpuvol_protocol::DeviceUuid(device).to_string(),
                need: placed.device_len(),
                free: info.free,
                total: info.total,
            },
            _ => Error::memory(path)(error),
        })?;
        copy(&mut mapping, &placed).map_err(Error::memory(path))?;
        // While the GPU copies, the store checks the memory and hands it to the keeper.
        let fd = allocation.export().map_err(Error::memory(path))?;
        let mut fds: Vec<BorrowedFd<'_>> = vec![fd.as_fd()];
        let on_device = AllocationKind::CudaVmm.into();
        let mut allocations =
            vec![Allocation { id: 0, kind: on_device, len: allocation.size(), device: device.to_vec() }];
        if let Some(meta) = &meta {
            let kind = AllocationKind::Memfd.into();
            allocations.push(Allocation { id: 0, kind, len: meta.len(), device: Vec::new() });
            fds.push(meta.as_fd());
        }
        tracing::trace!("copies are enqueued, the memory is exported");
        let attach = Attach { reservation: reservation.id, allocations };
        self.session().call(Op::Attach(attach), &fds)?;
        drop(fds);
        drop(fd);
        tracing::trace!("attached");
        mapping.synchronize(options.stream).map_err(Error::memory(path))?;
        tracing::trace!("copied");
        let seal = Seal {
            reservation: reservation.id,
            kind: kind.into(),
            segments: placed.segments(meta.is_some()),
            attributes,
            exclusive: options.exclusive,
            ..Seal::default()
        };
        let version = reservation.seal(seal, || {
            drop((mapping, allocation));
            tracing::trace!("unmapped");
        })?;
        tracing::trace!("sealed");
        Ok(Put { version, size: plan.len, way })
    }

    fn reserve(
        &self,
        path: &ObjectPath,
        size: u64,
        tier: Tier,
        device: &[u8],
        meanwhile: impl FnOnce(),
    ) -> Result<(Reservation<'_>, Option<OwnedFd>)> {
        let create = Create { path: path.as_bytes().to_vec(), size, tier: tier.into(), device: device.to_vec() };
        match self.session().call_while(Op::Create(create), &[], meanwhile)? {
            (Answer::Created(created), fds) => {
                let reservation = Reservation { volume: self, id: created.reservation, sealed: false };
                Ok((reservation, fds.into_iter().next()))
            }
            _ => Err(self.confused("no reservation")),
        }
    }

    fn sealed(&self, op: Op, meanwhile: impl FnOnce()) -> Result<u64> {
        match self.session().call_while(op, &[], meanwhile)? {
            (Answer::Sealed(sealed), _) => Ok(sealed.version),
            _ => Err(self.confused("no version")),
        }
    }
}

/// Device memory; waits a moment where there is none, because what was removed just now is freed in the background.
fn create_patiently(memory: &CudaMemory, len: u64) -> gpuvol_memory::Result<CudaAllocation> {
    const TRIES: u32 = 5;
    let mut tries = 0;
    loop {
        match memory.create(len) {
            Err(error) if error.is_out_of_memory() && tries < TRIES => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
            other => return other,
        }
    }
}

/// Enqueues all copies within the GPU, and the padding.
fn copy_within(
    target: &mut CudaMapping,
    placed: &PlacedPlan<'_, DeviceBuffer>,
    stream: Option<u64>,
) -> gpuvol_memory::Result<()> {
    placed.write_zeros(target)?;
    for (offset, source) in &placed.jobs {
        target.copy_from_device(*offset, source.address, source.len, stream)?;
    }
    placed.copy_zeros(target, stream)
}

/// A plan over host memory as byte slices, in order.
pub(crate) fn host_parts(plan: &FilePlan<Buffer>) -> Vec<&[u8]> {
    fn part(piece: &Piece<Buffer>) -> &[u8] {
        match piece {
            Piece::Meta { bytes, .. } => bytes.as_slice(),
            Piece::Body { source, .. } => source.as_slice(),
        }
    }
    plan.pieces.iter().map(part).collect()
}

/// Quota taken for an object; given back when it is not sealed after all.
struct Reservation<'v> {
    volume: &'v Volume,
    id: u64,
    sealed: bool,
}

impl Reservation<'_> {
    /// Does something else while the store seals.
    fn seal(mut self, seal: Seal, meanwhile: impl FnOnce()) -> Result<u64> {
        let version = self.volume.sealed(Op::Seal(seal), meanwhile)?;
        self.sealed = true;
        Ok(version)
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if !self.sealed {
            // If this fails too, the store takes it back when this client's lease ends.
            let _ = self.volume.session().call(Op::Abort(Abort { reservation: self.id }), &[]);
        }
    }
}

fn meta_of<B>(piece: &Piece<B>) -> Option<&[u8]> {
    match piece {
        Piece::Meta { bytes, .. } => Some(bytes),
        Piece::Body { .. } => None,
    }
}

fn body_pieces<'p>(parts: &[&'p [u8]]) -> Vec<Piece<&'p [u8]>> {
    let mut offset = 0;
    let filled = parts.iter().filter(|part| !part.is_empty());
    filled
        .map(|part| {
            let len = part.len() as u64;
            let piece = Piece::Body { offset, source: *part, len };
            offset += len;
            piece
        })
        .collect()
}

fn tensor_header(path: &ObjectPath, meta: &TensorMeta, data: u64) -> Result<Vec<u8>> {
    let want = meta.data_bytes().map_err(Error::layout(path))?;
    if want != data {
        let message = format!("{path}: {data} bytes for a tensor of {want} bytes ({meta:?})");
        let fault = gpuvol_protocol::Fault::new(gpuvol_protocol::Code::InvalidArgument, message);
        return Err(Error::Refused(fault));
    }
    plan_tensor(meta).map_err(Error::layout(path))
}

fn tensor_plan<B>(header: Vec<u8>, source: B, len: u64) -> FilePlan<B> {
    let offset = header.len() as u64;
    let mut pieces = vec![Piece::Meta { offset: 0, bytes: header }];
    if len > 0 {
        pieces.push(Piece::Body { offset, source, len });
    }
    FilePlan { pieces, len: offset + len }
}

fn tensor_attributes(meta: &TensorMeta) -> Vec<Attribute> {
    let value = meta.attributes();
    if value.is_empty() { Vec::new() } else { vec![Attribute { name: TENSOR_ATTRIBUTE.into(), value }] }
}
