//! Element types of tensors, and their names in numpy, in DLPack and in our own attributes.

/// The type of a tensor's elements, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 8 bits.
    U8,
    /// Unsigned, 16 bits.
    U16,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// IEEE half.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE single.
    F32,
    /// IEEE double.
    F64,
    /// Two F32.
    C64,
    /// Two F64.
    C128,
    /// The finite variant, `float8_e4m3fn` in PyTorch and ml_dtypes.
    F8E4M3,
    /// `float8_e5m2`.
    F8E5M2,
}

struct Row {
    dtype: Dtype,
    name: &'static str,
    itemsize: u64,
    /// What numpy's header says; `|V` where numpy has no such type.
    descr: &'static str,
    /// `DLDataTypeCode` of dlpack.h 1.1.
    dlpack_code: u8,
}

const fn row(dtype: Dtype, name: &'static str, itemsize: u64, descr: &'static str, dlpack_code: u8) -> Row {
    Row { dtype, name, itemsize, descr, dlpack_code }
}

const ROWS: [Row; 17] = [
    row(Dtype::Bool, "bool", 1, "|b1", 6),
    row(Dtype::I8, "int8", 1, "|i1", 0),
    row(Dtype::I16, "int16", 2, "<i2", 0),
    row(Dtype::I32, "int32", 4, "<i4", 0),
    row(Dtype::I64, "int64", 8, "<i8", 0),
    row(Dtype::U8, "uint8", 1, "|u1", 1),
    row(Dtype::U16, "uint16", 2, "<u2", 1),
    row(Dtype::U32, "uint32", 4, "<u4", 1),
    row(Dtype::U64, "uint64", 8, "<u8", 1),
    row(Dtype::F16, "float16", 2, "<f2", 2),
    row(Dtype::Bf16, "bfloat16", 2, "|V2", 4),
    row(Dtype::F32, "float32", 4, "<f4", 2),
    row(Dtype::F64, "float64", 8, "<f8", 2),
    row(Dtype::C64, "complex64", 8, "<c8", 5),
    row(Dtype::C128, "complex128", 16, "<c16", 5),
    row(Dtype::F8E4M3, "float8_e4m3fn", 1, "|V1", 10),
    row(Dtype::F8E5M2, "float8_e5m2", 1, "|V1", 12),
];

impl Dtype {
    /// All element types.
    pub fn all() -> impl Iterator<Item = Self> {
        ROWS.iter().map(|row| row.dtype)
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }

    /// Bytes per element.
    pub fn itemsize(self) -> u64 {
        self.row().itemsize
    }

    /// The name that PyTorch and numpy (with ml_dtypes) use.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The type of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.dtype)
    }

    /// The `descr` of a `.npy` header; a void of the same size where numpy has no such type.
    pub fn npy_descr(self) -> &'static str {
        self.row().descr
    }

    /// The `typestr` of `__cuda_array_interface__`, which has numpy's types only.
    pub fn typestr(self) -> &'static str {
        self.row().descr
    }

    /// DLPack's type code and bits per element; lanes are 1.
    pub fn dlpack(self) -> (u8, u8) {
        let row = self.row();
        // At most 16 bytes, so the bits fit.
        (row.dlpack_code, u8::try_from(row.itemsize * 8).unwrap_or(u8::MAX))
    }

    /// True when numpy has this type, so that the `.npy` header alone says it.
    pub fn is_numpy(self) -> bool {
        !self.row().descr.starts_with("|V")
    }

    /// The numpy type of a `descr`; `None` for voids and everything that is not a type of ours.
    pub(crate) fn from_descr(descr: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.dtype.is_numpy() && row.descr == descr).map(|row| row.dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_enum() {
        for (index, row) in ROWS.iter().enumerate() {
            assert_eq!(row.dtype as usize, index);
            assert_eq!(Dtype::from_name(row.name), Some(row.dtype));
            assert_eq!(Dtype::from_descr(row.descr), row.dtype.is_numpy().then_some(row.dtype));
            assert!(row.descr.ends_with(&row.itemsize.to_string()));
        }
    }

    #[test]
    fn dlpack_codes() {
        assert_eq!(Dtype::Bf16.dlpack(), (4, 16));
        assert_eq!(Dtype::C128.dlpack(), (5, 128));
        assert_eq!(Dtype::Bool.dlpack(), (6, 8));
    }
}
