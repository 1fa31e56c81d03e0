//! What buffers and children each Arrow type has, and the check that an array really has them.
//!
//! Source: the Arrow columnar format, "Buffer Listing for Each Layout".

use arrow_schema::{DataType, Field, FieldRef, UnionMode};

use super::array::{ArrayNode, BodySource};
use super::error::LayoutError;

/// Deepest nesting of types that is written or read. Flatbuffers' own limit is 64 tables.
pub(crate) const MAX_DEPTH: usize = 60;

/// One buffer of a layout, by how its size follows from the array's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Slot {
    /// One bit per element, absent when there are no nulls.
    Validity,
    /// One bit per element.
    Bits,
    /// This many bytes per element.
    Fixed(u64),
    /// Offsets of this many bytes, one more than elements; may be empty when there are none.
    Offsets(u64),
    /// Bytes that offsets point into: any size.
    Bytes,
}

impl Slot {
    /// Bytes that an array of `len` elements needs here; `None` when the size does not follow from `len`.
    pub(crate) fn exact(self, len: u64) -> Option<u64> {
        match self {
            Self::Validity | Self::Bits => Some(len.div_ceil(8)),
            Self::Fixed(width) => len.checked_mul(width),
            Self::Offsets(width) => len.checked_add(1)?.checked_mul(width),
            Self::Bytes => None,
        }
    }

    /// Every writer's buffer is a multiple of this many bytes: padding is a power of two.
    pub(crate) fn granule(self) -> u64 {
        match self {
            Self::Fixed(width) | Self::Offsets(width) if width.is_power_of_two() => width,
            _ => 1,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Validity => "validity",
            Self::Bits => "bit values",
            Self::Fixed(_) => "values",
            Self::Offsets(_) => "offsets",
            Self::Bytes => "bytes",
        }
    }
}

/// The layout of a type, one level deep.
#[derive(Debug)]
pub(crate) struct Shape<'a> {
    /// Buffers in order.
    pub(crate) slots: Vec<Slot>,
    /// The view types: any number of byte buffers follow the slots.
    pub(crate) variadic: bool,
    /// Child fields in order.
    pub(crate) children: Vec<&'a FieldRef>,
}

impl<'a> Shape<'a> {
    pub(crate) fn has_validity(&self) -> bool {
        self.slots.first() == Some(&Slot::Validity)
    }

    /// The layout of `data_type`; of the keys, for a dictionary type.
    pub(crate) fn of(data_type: &'a DataType, column: &str) -> Result<Self, LayoutError> {
        use Slot::{Bits, Bytes, Fixed, Offsets, Validity};
        let flat = |slots: &[Slot]| Shape { slots: slots.to_vec(), variadic: false, children: Vec::new() };
        let nested = |slots: &[Slot], children| Shape { slots: slots.to_vec(), variadic: false, children };
        Ok(match data_type {
            DataType::Null => flat(&[]),
            DataType::Boolean => flat(&[Validity, Bits]),
            DataType::FixedSizeBinary(width) => match u64::try_from(*width) {
                Ok(width) => flat(&[Validity, Fixed(width)]),
                Err(_) => return Err(LayoutError::malformed(column, data_type, "negative width")),
            },
            DataType::Utf8 | DataType::Binary => flat(&[Validity, Offsets(4), Bytes]),
            DataType::LargeUtf8 | DataType::LargeBinary => flat(&[Validity, Offsets(8), Bytes]),
            DataType::Utf8View | DataType::BinaryView => {
                Shape { slots: vec![Validity, Fixed(16)], variadic: true, children: Vec::new() }
            }
            DataType::List(field) => nested(&[Validity, Offsets(4)], vec![field]),
            DataType::Map(field, _) => {
                if !matches!(field.data_type(), DataType::Struct(entry) if entry.len() == 2) {
                    return Err(LayoutError::malformed(column, data_type, "entries must be a struct of key and value"));
                }
                nested(&[Validity, Offsets(4)], vec![field])
            }
            DataType::LargeList(field) => nested(&[Validity, Offsets(8)], vec![field]),
            DataType::ListView(field) => nested(&[Validity, Fixed(4), Fixed(4)], vec![field]),
            DataType::LargeListView(field) => nested(&[Validity, Fixed(8), Fixed(8)], vec![field]),
            DataType::FixedSizeList(field, size) => {
                if *size < 0 {
                    return Err(LayoutError::malformed(column, data_type, "negative list size"));
                }
                nested(&[Validity], vec![field])
            }
            DataType::Struct(fields) => nested(&[Validity], fields.iter().collect()),
            DataType::Union(fields, UnionMode::Sparse) => {
                nested(&[Fixed(1)], fields.iter().map(|(_, field)| field).collect())
            }
            DataType::Union(fields, UnionMode::Dense) => {
                nested(&[Fixed(1), Fixed(4)], fields.iter().map(|(_, field)| field).collect())
            }
            DataType::RunEndEncoded(ends, values) => {
                if !matches!(ends.data_type(), DataType::Int16 | DataType::Int32 | DataType::Int64) {
                    return Err(LayoutError::malformed(column, data_type, "run ends must be int16, int32 or int64"));
                }
                nested(&[], vec![ends, values])
            }
            DataType::Dictionary(keys, values) => {
                if !keys.is_dictionary_key_type() {
                    return Err(LayoutError::malformed(column, data_type, "keys must be integers"));
                }
                if matches!(values.as_ref(), DataType::Dictionary(_, _)) {
                    return Err(LayoutError::unsupported(
                        column,
                        data_type,
                        "an Arrow file cannot describe a dictionary of dictionaries; cast the values to a plain type",
                    ));
                }
                flat(&[Validity, Fixed(fixed_width(keys, column)?)])
            }
            other => flat(&[Validity, Fixed(fixed_width(other, column)?)]),
        })
    }
}

fn fixed_width(data_type: &DataType, column: &str) -> Result<u64, LayoutError> {
    match data_type.primitive_width() {
        Some(width) => Ok(width as u64),
        None => Err(LayoutError::unsupported(column, data_type, "no known buffer layout")),
    }
}

/// The path of a child: `parent.child`.
pub(crate) fn child_path(parent: &str, field: &Field) -> String {
    if field.name().is_empty() { format!("{parent}.[]") } else { format!("{parent}.{}", field.name()) }
}

/// Checks a whole tree against its type: counts of buffers and children, sizes, lengths of children.
///
/// Contents (offsets, views, type ids, dictionary keys) are not looked at: they may be on a device.
pub(crate) fn check<B: BodySource>(node: &ArrayNode<B>, column: &str) -> Result<(), LayoutError> {
    check_at(node, column, 0)
}

fn check_at<B: BodySource>(node: &ArrayNode<B>, column: &str, depth: usize) -> Result<(), LayoutError> {
    let data_type = &node.data_type;
    let bad = |detail: String| Err(LayoutError::malformed(column, data_type, detail));
    if depth > MAX_DEPTH {
        return Err(LayoutError::unsupported(column, data_type, format!("nested deeper than {MAX_DEPTH} levels")));
    }
    let shape = Shape::of(data_type, column)?;
    check_null_count(node, &shape, column)?;
    let slots = shape.slots.len();
    if node.buffers.len() < slots || (node.buffers.len() > slots && !shape.variadic) {
        return bad(format!("{} buffers where the type has {slots}", node.buffers.len()));
    }
    for (index, (slot, buffer)) in shape.slots.iter().zip(&node.buffers).enumerate() {
        let found = buffer.as_ref().map_or(0, BodySource::byte_len);
        let needed = match slot {
            Slot::Bytes => continue,
            Slot::Validity if node.null_count == 0 => continue,
            Slot::Offsets(_) if node.len == 0 => continue,
            other => other.exact(node.len),
        };
        match needed {
            Some(needed) if needed <= found => {}
            Some(needed) => {
                let name = slot.name();
                return bad(format!(
                    "buffer {index} ({name}) has {found} bytes and {} elements need {needed}",
                    node.len
                ));
            }
            None => return bad(format!("length {} is out of range", node.len)),
        }
    }
    check_children(node, &shape, column)?;
    for (child, field) in node.children.iter().zip(&shape.children) {
        check_at(child, &child_path(column, field), depth + 1)?;
    }
    match (&node.dictionary, data_type) {
        (Some(values), DataType::Dictionary(_, value_type)) => {
            if !values.data_type.equals_datatype(value_type) {
                return bad(format!("dictionary values of type {} instead of {value_type}", values.data_type));
            }
            check_at(values, &format!("{column}.[dictionary]"), depth + 1)
        }
        (None, DataType::Dictionary(_, _)) => bad("no dictionary values".to_owned()),
        (Some(_), _) => bad("dictionary values on a type that has none".to_owned()),
        (None, _) => Ok(()),
    }
}

fn check_null_count<B>(node: &ArrayNode<B>, shape: &Shape<'_>, column: &str) -> Result<(), LayoutError> {
    let allowed = match node.data_type {
        DataType::Null => node.null_count == node.len,
        _ if shape.has_validity() => node.null_count <= node.len,
        _ => node.null_count == 0,
    };
    if allowed {
        return Ok(());
    }
    let detail = format!("null count {} is not possible for {} elements of this type", node.null_count, node.len);
    Err(LayoutError::malformed(column, &node.data_type, detail))
}

fn check_children<B: BodySource>(node: &ArrayNode<B>, shape: &Shape<'_>, column: &str) -> Result<(), LayoutError> {
    let bad = |detail: String| Err(LayoutError::malformed(column, &node.data_type, detail));
    if node.children.len() != shape.children.len() {
        return bad(format!("{} children where the type has {}", node.children.len(), shape.children.len()));
    }
    for (child, field) in node.children.iter().zip(&shape.children) {
        if !child.data_type.equals_datatype(field.data_type()) {
            let expected = field.data_type();
            return bad(format!("child '{}' has type {} instead of {expected}", field.name(), child.data_type));
        }
        match &node.data_type {
            DataType::Struct(_) | DataType::Union(_, UnionMode::Sparse) if child.len != node.len => {
                return bad(format!("child '{}' has {} elements instead of {}", field.name(), child.len, node.len));
            }
            DataType::FixedSizeList(_, size) => {
                let needed = u64::try_from(*size).ok().and_then(|size| node.len.checked_mul(size));
                if needed.is_none_or(|needed| child.len < needed) {
                    return bad(format!("{} lists of {size} do not fit in {} values", node.len, child.len));
                }
            }
            DataType::RunEndEncoded(_, _) => {
                let runs = node.children[0].len;
                if node.children[1].len < runs || (runs == 0 && node.len > 0) {
                    let values = node.children[1].len;
                    return bad(format!("{runs} run ends and {values} values for {} elements", node.len));
                }
                if node.children[0].null_count > 0 {
                    return bad("run ends have nulls".to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(())
}
