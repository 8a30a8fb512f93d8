//! How a JSON error reads: the sentences of Go's `encoding/json`, which clients of the Go picker know.
//!
//! Decides the text only; what is an error is the scanner's word.

use std::fmt;

/// Why bytes are no JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    /// The body ended inside a value, or before one.
    Truncated,
    /// A byte that may not stand where it stands.
    Unexpected {
        /// The byte.
        byte: u8,
        /// Where, as a phrase.
        place: Place,
    },
    /// More than 10,000 containers within each other.
    TooDeep,
}

/// Where a byte was not expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// One phrase says it all.
    Phrase(&'static str),
    /// In a literal of which another byte should have come.
    Literal {
        /// The whole literal.
        literal: &'static str,
        /// The byte due.
        due: u8,
    },
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Truncated => f.write_str("unexpected end of JSON input"),
            Self::TooDeep => f.write_str("exceeded max depth"),
            Self::Unexpected { byte, place } => {
                write!(f, "invalid character {} ", Quoted(byte))?;
                match place {
                    Place::Phrase(phrase) => f.write_str(phrase),
                    Place::Literal { literal, due } => {
                        write!(f, "in literal {literal} (expecting {})", Quoted(due))
                    }
                }
            }
        }
    }
}

/// A byte as Go quotes it: the character of that code point, with escapes for what does not print.
struct Quoted(u8);

impl fmt::Display for Quoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b'\'' => f.write_str(r"'\''"),
            b'\\' => f.write_str(r"'\\'"),
            0x07 => f.write_str(r"'\a'"),
            0x08 => f.write_str(r"'\b'"),
            b'\t' => f.write_str(r"'\t'"),
            b'\n' => f.write_str(r"'\n'"),
            0x0b => f.write_str(r"'\v'"),
            0x0c => f.write_str(r"'\f'"),
            b'\r' => f.write_str(r"'\r'"),
            byte @ (0..=0x1f | 0x7f) => write!(f, r"'\x{byte:02x}'"),
            byte @ (0x80..=0xa0 | 0xad) => write!(f, r"'\u{byte:04x}'"),
            byte => write!(f, "'{}'", char::from(byte)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: the high bytes printed as they are, or the quote not escaped.
    #[test]
    fn bytes_are_quoted_as_in_go() {
        for (byte, text) in [
            (b'x', "'x'"),
            (b'"', "'\"'"),
            (b'\'', r"'\''"),
            (0x1f, r"'\x1f'"),
            (0xef, "'ï'"),
            (0x90, r"'\u0090'"),
            (b'\n', r"'\n'"),
        ] {
            assert_eq!(Quoted(byte).to_string(), text);
        }
    }
}
