//! The client's name for a model, put back where the model server's stands.
//!
//! Decides whether a string equals the target, escapes decoded, and which bytes of a chunk go on. Only
//! the contents of that string change. Which strings are asked about is the scanner's. The bytes that
//! wait are those of one possible match: at most six for each of the target's, and an escape. Sizes
//! are bytes.

use std::fmt::Write as _;

/// What one more byte of a string says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Equal so far.
    More,
    /// The closing quote of an equal string.
    Equal,
    /// Another string.
    Differs {
        /// The byte stands behind a backslash.
        escaped: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Escape {
    None,
    Backslash,
    /// After `\u`: digits read, and their value.
    Unicode(u8, u32),
}

/// A comparison under way and what it made of the chunk.
#[derive(Debug)]
pub(super) struct Renaming {
    target: Vec<u8>,
    /// The client's name as the contents of a JSON string.
    replacement: Vec<u8>,
    /// Bytes of the target that were met.
    met: usize,
    escape: Escape,
    /// The first half of a surrogate pair, else 0.
    high: u32,
    /// Where in the chunk the string begins.
    from: usize,
    /// What of the string came in earlier chunks.
    held: Vec<u8>,
    /// What goes on, in place of the chunk up to `done`.
    out: Vec<u8>,
    done: usize,
}

impl Renaming {
    /// Puts `incoming` in the place of `target`.
    pub(super) fn new(target: &str, incoming: &str) -> Self {
        Self {
            target: target.as_bytes().to_vec(),
            replacement: escaped(incoming).into_bytes(),
            met: 0,
            escape: Escape::None,
            high: 0,
            from: 0,
            held: Vec::new(),
            out: Vec::new(),
            done: 0,
        }
    }

    /// A string opens; its contents begin at `from` in the chunk.
    pub(super) fn open(&mut self, from: usize) {
        self.met = 0;
        self.escape = Escape::None;
        self.high = 0;
        self.from = from;
    }

    /// Compares one more byte of the string.
    pub(super) fn step(&mut self, byte: u8) -> Step {
        let equal = match self.escape {
            Escape::None if byte == b'"' => {
                if self.met == self.target.len() && self.high == 0 {
                    return Step::Equal;
                }
                false
            }
            Escape::None if byte == b'\\' => {
                self.escape = Escape::Backslash;
                true
            }
            Escape::None => self.high == 0 && self.meets(&[byte]),
            Escape::Backslash if byte == b'u' => {
                self.escape = Escape::Unicode(0, 0);
                true
            }
            Escape::Backslash => match short_escape(byte) {
                Some(plain) if self.high == 0 && self.meets(&[plain]) => {
                    self.escape = Escape::None;
                    true
                }
                _ => false,
            },
            Escape::Unicode(digits, value) => match char::from(byte).to_digit(16) {
                Some(digit) if digits == 3 => self.meets_unit(value << 4 | digit),
                Some(digit) => {
                    self.escape = Escape::Unicode(digits + 1, value << 4 | digit);
                    true
                }
                None => false,
            },
        };
        if equal { Step::More } else { Step::Differs { escaped: self.escape == Escape::Backslash } }
    }

    /// The string equals the target; its closing quote stands at `end` in the chunk.
    pub(super) fn replace(&mut self, chunk: &[u8], end: usize) {
        self.out.extend_from_slice(&chunk[self.done..self.from]);
        self.out.extend_from_slice(&self.replacement);
        self.held.clear();
        self.done = end;
    }

    /// The string is another one: what was held goes on.
    pub(super) fn differs(&mut self) {
        // It stands before all of this chunk, of which nothing went on before the string was decided.
        self.out.append(&mut self.held);
    }

    /// What of the chunk goes on; `open` while the string is undecided.
    pub(super) fn passed_on(&mut self, chunk: Vec<u8>, open: bool) -> Vec<u8> {
        if open && self.from < chunk.len() {
            self.held.extend_from_slice(&chunk[self.from..]);
            self.out.extend_from_slice(&chunk[self.done..self.from]);
            self.done = chunk.len();
        }
        self.from = 0;
        let done = std::mem::take(&mut self.done);
        if done == 0 && self.out.is_empty() {
            return chunk;
        }
        self.out.extend_from_slice(&chunk[done..]);
        std::mem::take(&mut self.out)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.held.len()
    }

    fn meets(&mut self, bytes: &[u8]) -> bool {
        let equal = self.target[self.met..].starts_with(bytes);
        self.met += if equal { bytes.len() } else { 0 };
        equal
    }

    /// One UTF-16 code unit of an escape.
    fn meets_unit(&mut self, unit: u32) -> bool {
        self.escape = Escape::None;
        let high = std::mem::take(&mut self.high);
        let code = match (high, unit) {
            (0, 0xD800..=0xDBFF) => {
                self.high = unit;
                return true;
            }
            (0, _) => unit,
            (_, 0xDC00..=0xDFFF) => 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00),
            _ => return false,
        };
        char::from_u32(code).is_some_and(|c| self.meets(c.encode_utf8(&mut [0; 4]).as_bytes()))
    }
}

fn short_escape(byte: u8) -> Option<u8> {
    Some(match byte {
        b'"' | b'\\' | b'/' => byte,
        b'b' => 0x08,
        b'f' => 0x0C,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// `name` as the contents of a JSON string.
fn escaped(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            // Writing to a string cannot fail.
            c if c < ' ' => drop(write!(text, "\\u{:04x}", u32::from(c))),
            c => text.push(c),
        }
    }
    text
}
