//! The Python literal in a `.npy` header: a dict of exactly `descr`, `fortran_order` and `shape`.
//!
//! A strict reader of that one form, because `eval` is what made this format dangerous elsewhere.

use super::error::LayoutError;
use super::tensor::MAX_DIMS;

/// Longest `descr`, in bytes. Structured types are longer, and refused.
const MAX_DESCR: usize = 64;

/// A header, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) descr: String,
    pub(crate) fortran_order: bool,
    pub(crate) shape: Vec<u64>,
}

/// Reads the text between the header's length and the elements.
pub(crate) fn parse_header(text: &[u8]) -> Result<Header, LayoutError> {
    let mut literal = Literal { text, at: 0 };
    let (mut descr, mut fortran_order, mut shape) = (None, None, None);
    literal.expect(b'{')?;
    while !literal.take(b'}') {
        let key = literal.string()?;
        literal.expect(b':')?;
        let again = match key.as_str() {
            "descr" => descr.replace(literal.string()?).is_some(),
            "fortran_order" => fortran_order.replace(literal.boolean()?).is_some(),
            "shape" => shape.replace(literal.shape()?).is_some(),
            _ => return Err(literal.error("a key other than descr, fortran_order and shape")),
        };
        if again {
            return Err(literal.error("a key given twice"));
        }
        if !literal.take(b',') {
            literal.expect(b'}')?;
            break;
        }
    }
    literal.end()?;
    match (descr, fortran_order, shape) {
        (Some(descr), Some(fortran_order), Some(shape)) => Ok(Header { descr, fortran_order, shape }),
        _ => Err(literal.error("descr, fortran_order or shape missing")),
    }
}

struct Literal<'a> {
    text: &'a [u8],
    at: usize,
}

impl Literal<'_> {
    fn error(&self, found: &str) -> LayoutError {
        LayoutError::corrupt(".npy header", format!("{found} at byte {} of its dict", self.at))
    }

    fn peek(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\n')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), LayoutError> {
        if self.take(byte) { Ok(()) } else { Err(self.error(&format!("no '{}'", char::from(byte)))) }
    }

    fn end(&mut self) -> Result<(), LayoutError> {
        if self.peek().is_none() { Ok(()) } else { Err(self.error("more than padding")) }
    }

    /// A quoted string of printable ASCII without escapes.
    fn string(&mut self) -> Result<String, LayoutError> {
        let quote = match self.peek() {
            Some(quote @ (b'\'' | b'"')) => quote,
            _ => return Err(self.error("no string (structured types are not tensors)")),
        };
        self.at += 1;
        let rest = &self.text[self.at..];
        let len = rest.iter().take(MAX_DESCR + 1).position(|byte| *byte == quote);
        let Some(value) = len.map(|len| &rest[..len]) else {
            return Err(self.error("an endless string"));
        };
        if !value.iter().all(|byte| (b' '..=b'~').contains(byte) && *byte != b'\\') {
            return Err(self.error("an escape or a control character"));
        }
        self.at += value.len() + 1;
        Ok(value.iter().map(|byte| char::from(*byte)).collect())
    }

    fn boolean(&mut self) -> Result<bool, LayoutError> {
        self.peek();
        for (word, value) in [("True", true), ("False", false)] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.error("neither True nor False"))
    }

    fn shape(&mut self) -> Result<Vec<u64>, LayoutError> {
        let mut dims = Vec::new();
        self.expect(b'(')?;
        while !self.take(b')') {
            if dims.len() == MAX_DIMS {
                return Err(self.error("too many dimensions"));
            }
            dims.push(self.number()?);
            if !self.take(b',') {
                // (3) is a number, not a tuple.
                if dims.len() == 1 {
                    return Err(self.error("a number where a tuple belongs"));
                }
                self.expect(b')')?;
                break;
            }
        }
        Ok(dims)
    }

    fn number(&mut self) -> Result<u64, LayoutError> {
        self.peek();
        let mut value: Option<u64> = None;
        while let Some(digit @ b'0'..=b'9') = self.text.get(self.at) {
            let digit = u64::from(digit - b'0');
            let next = value.unwrap_or(0).checked_mul(10).and_then(|value| value.checked_add(digit));
            value = Some(next.ok_or_else(|| self.error("a number past 64 bits"))?);
            self.at += 1;
        }
        // Python 2 wrote long integers so.
        self.at += usize::from(self.text.get(self.at) == Some(&b'L'));
        value.ok_or_else(|| self.error("no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Option<Header> {
        parse_header(text.as_bytes()).ok()
    }

    #[test]
    fn the_forms_that_numpy_writes() {
        let expected =
            |shape: &[u64]| Some(Header { descr: "<f8".to_owned(), fortran_order: false, shape: shape.to_vec() });
        assert_eq!(header("{'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }   \n"), expected(&[3, 4]));
        assert_eq!(header("{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n"), expected(&[3]));
        assert_eq!(header("{'shape': (), 'fortran_order': False, 'descr': \"<f8\"}"), expected(&[]));
        assert_eq!(header("{'descr': '<f8', 'fortran_order': False, 'shape': (3L, 4L), }\n"), expected(&[3, 4]));
    }

    #[test]
    fn everything_else_is_refused() {
        for text in [
            "",
            "{",
            "{}",
            "{'descr': '<f8', 'fortran_order': False}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3 4)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-3,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999999999,)}",
            "{'descr': '<f8', 'fortran_order': 0, 'shape': (3,)}",
            "{'descr': '<f8', 'descr': '<f8', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,), 'x': 'y'}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (3,)} + 1",
            "{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f\\x38', 'fortran_order': False, 'shape': (3,)}",
            "{'descr': '<f8",
        ] {
            assert_eq!(header(text), None, "{text}");
        }
        let many = "1, ".repeat(65);
        assert_eq!(header(&format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({many})}}")), None);
    }
}
