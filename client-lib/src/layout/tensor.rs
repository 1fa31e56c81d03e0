//! A tensor as a `.npy` file: a header padded to 64 bytes, then the elements.

use super::dtype::Dtype;
use super::error::LayoutError;
use super::npy_header::{Header, parse_header};

/// Most dimensions that numpy has.
pub const MAX_DIMS: usize = 64;
/// `\x93NUMPY`: the first bytes of every `.npy` file.
const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Alignment of the elements, in bytes from the file's start; numpy's own choice.
const ALIGNMENT: usize = 64;
/// Largest header that is read, in bytes. Ours need under 2 KiB; numpy's loader stops at 10 000 unless told otherwise.
const MAX_HEADER: u64 = 1 << 20;
/// Key of the one attribute.
const DTYPE_KEY: &str = "dtype=";

/// What a tensor is; its elements lie densely in C order, or in Fortran order where the flag is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorMeta {
    /// Element type.
    pub dtype: Dtype,
    /// Length of each dimension; empty for a scalar.
    pub shape: Vec<u64>,
    /// First dimension contiguous instead of the last.
    pub fortran_order: bool,
}

impl TensorMeta {
    /// A tensor in C order.
    pub fn new(dtype: Dtype, shape: Vec<u64>) -> Self {
        Self { dtype, shape, fortran_order: false }
    }

    /// Elements.
    ///
    /// # Errors
    /// [`LayoutError::Tensor`] when the product does not fit in 63 bits or there are more than 64 dimensions.
    pub fn elements(&self) -> Result<u64, LayoutError> {
        if self.shape.len() > MAX_DIMS {
            let detail = format!("{} dimensions, numpy has at most {MAX_DIMS}", self.shape.len());
            return Err(LayoutError::Tensor(detail));
        }
        if self.shape.contains(&0) {
            return Ok(0);
        }
        let product = self.shape.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim));
        product
            .filter(|elements| i64::try_from(*elements).is_ok())
            .ok_or_else(|| LayoutError::Tensor(format!("shape {:?} has too many elements", self.shape)))
    }

    /// Bytes of the elements.
    ///
    /// # Errors
    /// As [`elements`](Self::elements).
    pub fn data_bytes(&self) -> Result<u64, LayoutError> {
        let bytes = self.elements()?.checked_mul(self.dtype.itemsize());
        bytes
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| LayoutError::Tensor(format!("shape {:?} has too many bytes", self.shape)))
    }

    /// Distance in bytes between neighbours of each dimension.
    ///
    /// # Errors
    /// As [`data_bytes`](Self::data_bytes).
    pub fn strides(&self) -> Result<Vec<u64>, LayoutError> {
        self.data_bytes()?;
        let mut strides = vec![0; self.shape.len()];
        let mut stride = self.dtype.itemsize();
        let last = self.shape.len();
        for step in 0..last {
            let dim = if self.fortran_order { step } else { last - 1 - step };
            strides[dim] = stride;
            // A tensor without elements has no meaningful strides; they must only not overflow.
            stride = stride.saturating_mul(self.shape[dim].max(1));
        }
        Ok(strides)
    }

    /// The string to keep with the object: what the header cannot say.
    pub fn attributes(&self) -> String {
        format!("{DTYPE_KEY}{}", self.dtype.name())
    }

    /// The element type that [`attributes`](Self::attributes) named; `None` when the string does not name one.
    ///
    /// # Errors
    /// [`LayoutError::Tensor`] for the name of a type that this version does not know.
    pub fn from_attributes(attributes: &str) -> Result<Option<Dtype>, LayoutError> {
        let named = attributes.split(';').find_map(|part| part.strip_prefix(DTYPE_KEY));
        named.map_or(Ok(None), |name| match Dtype::from_name(name) {
            Some(dtype) => Ok(Some(dtype)),
            None => Err(LayoutError::Tensor(format!("unknown element type '{name}'; update gpuvol to read it"))),
        })
    }
}

/// The header of the tensor's file; the elements follow it, at a multiple of 64.
///
/// Always format 1.0: with at most 64 dimensions no header outgrows its 16-bit length.
///
/// # Errors
/// [`LayoutError::Tensor`] when the shape is too large.
pub fn plan_tensor(meta: &TensorMeta) -> Result<Vec<u8>, LayoutError> {
    meta.data_bytes()?;
    let mut shape = String::new();
    for dim in &meta.shape {
        shape.push_str(&format!("{dim}, "));
    }
    // numpy writes (3,) and (3, 4).
    let shape = if meta.shape.len() == 1 { shape.trim_end() } else { shape.trim_end_matches(", ") };
    let order = if meta.fortran_order { "True" } else { "False" };
    let descr = meta.dtype.npy_descr();
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({shape}), }}");
    let prefix = MAGIC.len() + 4;
    let total = (prefix + text.len() + 1).next_multiple_of(ALIGNMENT);
    let len = u16::try_from(total - prefix).map_err(|_| LayoutError::Tensor("the header is too large".to_owned()))?;
    let mut header = Vec::with_capacity(total);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&[1, 0]);
    header.extend_from_slice(&len.to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    header.resize(total - 1, b' ');
    header.push(b'\n');
    Ok(header)
}

/// True when bytes that begin with `first` claim to be a `.npy` file. Give at least 6.
pub fn is_npy_file(first: &[u8]) -> bool {
    first.starts_with(MAGIC)
}

/// Bytes before the elements, from the first 12 bytes of the file: how much [`parse_tensor`] needs.
///
/// # Errors
/// [`LayoutError::NotRecognised`] without the magic, [`LayoutError::UnsupportedFeature`] for formats after 3.0,
/// [`LayoutError::Corrupt`] for a header of over 1 MiB or cut short.
pub fn tensor_header_len(first: &[u8]) -> Result<u64, LayoutError> {
    let Some(rest) = first.strip_prefix(MAGIC.as_slice()) else {
        let detail = "it does not begin with \\x93NUMPY".to_owned();
        return Err(LayoutError::NotRecognised { expected: "a .npy file", detail });
    };
    let header_len = match *rest {
        [1, _, low, high, ..] => Some(10 + u64::from(u16::from_le_bytes([low, high]))),
        [2 | 3, _, a, b, c, d, ..] => Some(12 + u64::from(u32::from_le_bytes([a, b, c, d]))),
        [major, minor, ..] if !(1..=3).contains(&major) => {
            return Err(LayoutError::UnsupportedFeature {
                what: ".npy file".to_owned(),
                feature: format!("format {major}.{minor}"),
                advice: "save it with format 1.0 to 3.0",
            });
        }
        _ => None,
    };
    match header_len {
        Some(len) if len <= MAX_HEADER => Ok(len),
        Some(len) => Err(LayoutError::corrupt(".npy header", format!("{len} bytes, at most {MAX_HEADER} are read"))),
        None => Err(LayoutError::corrupt(".npy header", "it ends within its first 12 bytes")),
    }
}

/// Reads a tensor's header from the file's first bytes (all of the header, at least) and the file's length.
///
/// `attributes` is the string kept with the object, empty for a file that another program wrote. Returns the tensor
/// and where its elements begin, in bytes. The elements lie inside the file.
///
/// # Errors
/// Those of [`tensor_header_len`]; [`LayoutError::Corrupt`] for a header that is not numpy's, or too little data;
/// [`LayoutError::UnsupportedFeature`] for element types that tensors do not have.
pub fn parse_tensor(prefix: &[u8], len: u64, attributes: &str) -> Result<(TensorMeta, u64), LayoutError> {
    let corrupt = |detail: String| LayoutError::corrupt(".npy header", detail);
    let data_offset = tensor_header_len(prefix)?;
    let start = if prefix.get(6) == Some(&1) { 10 } else { 12 };
    let text = usize::try_from(data_offset).ok().and_then(|end| prefix.get(start..end));
    let text = text.ok_or_else(|| corrupt(format!("{data_offset} bytes long, {} given", prefix.len())))?;
    let header = parse_header(text)?;
    let dtype = element_type(&header, attributes)?;
    let meta = TensorMeta { dtype, shape: header.shape, fortran_order: header.fortran_order };
    let bytes = meta.data_bytes()?;
    match data_offset.checked_add(bytes) {
        Some(end) if end <= len => Ok((meta, data_offset)),
        _ => Err(corrupt(format!("{bytes} bytes of elements after {data_offset} do not fit in a file of {len}"))),
    }
}

fn element_type(header: &Header, attributes: &str) -> Result<Dtype, LayoutError> {
    let descr = header.descr.as_str();
    let named = TensorMeta::from_attributes(attributes)?;
    match (Dtype::from_descr(descr), named) {
        (Some(dtype), None) => Ok(dtype),
        (Some(dtype), Some(named)) if dtype == named => Ok(dtype),
        (None, Some(named)) if named.npy_descr() == descr => Ok(named),
        (_, Some(named)) => {
            let name = named.name();
            Err(LayoutError::corrupt(".npy header", format!("type '{descr}' where the object is of {name}")))
        }
        (None, None) => Err(LayoutError::UnsupportedFeature {
            what: ".npy file".to_owned(),
            feature: format!("element type '{descr}'"),
            advice: "save it as little-endian bool, int, uint, float or complex; \
                     bfloat16 and float8 need the object's attributes",
        }),
    }
}
