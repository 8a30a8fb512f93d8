//! The inside of a JSON string, in pieces: runs of bytes as they are, escapes decoded.
//!
//! Decides where a string ends and what its escapes mean. A surrogate without its partner becomes
//! U+FFFD, as in Go; other bytes pass unchecked. Lengths are bytes.

use memchr::memchr2;

use super::wording::{Place, Syntax};

/// Longest key that is told apart; no field has a longer name.
pub(super) const MAX_KEY: usize = 48;

/// Whether the string went on past the piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// It did.
    Open,
    /// It ended; the next byte is at this index.
    Closed(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Escape {
    #[default]
    None,
    /// A backslash was read.
    Begun,
    /// `\u` and this many digits were read.
    Hex(u8),
}

/// The state within a string, and the last key.
#[derive(Debug)]
pub(super) struct Strings {
    escape: Escape,
    /// Digits of `\u` so far.
    code: u32,
    /// A first half of a surrogate pair that waits for its second, or zero.
    high: u32,
    key: [u8; MAX_KEY],
    /// More than [`MAX_KEY`] when the key was too long.
    key_length: usize,
}

impl Default for Strings {
    fn default() -> Self {
        Self { escape: Escape::None, code: 0, high: 0, key: [0; MAX_KEY], key_length: 0 }
    }
}

impl Strings {
    /// A quote was read.
    pub(super) fn begin(&mut self) {
        self.key_length = 0;
    }

    /// The key read last; empty if it was too long.
    pub(super) fn key(&self) -> &[u8] {
        self.key.get(..self.key_length).unwrap_or_default()
    }

    /// The key from `at` on, if nothing of it was read yet and it ends in this piece, plain and short.
    #[inline]
    pub(super) fn whole_key<'a>(&self, piece: &'a [u8], at: usize) -> Option<&'a [u8]> {
        if self.key_length > 0 || self.escape != Escape::None || self.high != 0 {
            return None;
        }
        let rest = &piece[at..];
        let length = rest.iter().take(MAX_KEY).position(|byte| ends_run(*byte))?;
        (rest[length] == b'"').then(|| &rest[..length])
    }

    /// Like [`Self::read`], into the key.
    pub(super) fn read_key(&mut self, piece: &[u8], at: usize) -> Result<Text, Syntax> {
        let (mut key, mut length) = (self.key, self.key_length);
        let outcome = self.read(piece, at, |text| {
            let end = length + text.len();
            match key.get_mut(length..end) {
                Some(room) => {
                    room.copy_from_slice(text);
                    length = end;
                }
                None => length = MAX_KEY + 1,
            }
        });
        (self.key, self.key_length) = (key, length);
        outcome
    }

    /// Reads from `at` to the closing quote or the end of the piece, and tells `each` the decoded text.
    #[inline]
    pub(super) fn read(
        &mut self,
        piece: &[u8],
        mut at: usize,
        mut each: impl FnMut(&[u8]),
    ) -> Result<Text, Syntax> {
        while at < piece.len() {
            if self.escape != Escape::None {
                self.escaped(piece[at], &mut each)?;
                at += 1;
                continue;
            }
            let rest = &piece[at..];
            let run = run(rest);
            let text = &rest[..run];
            if let Some(&byte) = rest.get(run).filter(|byte| **byte < b' ') {
                return unexpected(byte, "in string literal");
            }
            if run > 0 {
                self.flush(&mut each);
                each(text);
            }
            at += run;
            match piece.get(at) {
                None => {}
                Some(b'"') => {
                    self.flush(&mut each);
                    return Ok(Text::Closed(at + 1));
                }
                Some(_) => {
                    self.escape = Escape::Begun;
                    at += 1;
                }
            }
        }
        Ok(Text::Open)
    }

    /// A first half without a second becomes U+FFFD.
    fn flush(&mut self, each: &mut impl FnMut(&[u8])) {
        if self.high != 0 {
            self.high = 0;
            each("\u{fffd}".as_bytes());
        }
    }

    fn escaped(&mut self, byte: u8, each: &mut impl FnMut(&[u8])) -> Result<(), Syntax> {
        if let Escape::Hex(digits) = self.escape {
            let Some(digit) = char::from(byte).to_digit(16) else {
                return unexpected(byte, r"in \u hexadecimal character escape");
            };
            self.code = self.code << 4 | digit;
            self.escape = if digits == 3 { Escape::None } else { Escape::Hex(digits + 1) };
            if digits == 3 {
                self.unit(self.code, each);
            }
            return Ok(());
        }
        self.escape = Escape::None;
        let plain = match byte {
            b'u' => {
                (self.code, self.escape) = (0, Escape::Hex(0));
                return Ok(());
            }
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            _ => return unexpected(byte, "in string escape code"),
        };
        self.flush(each);
        each(&[plain]);
        Ok(())
    }

    /// One UTF-16 unit of a `\u` escape.
    fn unit(&mut self, code: u32, each: &mut impl FnMut(&[u8])) {
        let mut room = [0; 4];
        if self.high != 0 && (0xdc00..0xe000).contains(&code) {
            let whole = 0x1_0000 + ((self.high - 0xd800) << 10) + (code - 0xdc00);
            self.high = 0;
            let character = char::from_u32(whole).unwrap_or('\u{fffd}');
            each(character.encode_utf8(&mut room).as_bytes());
            return;
        }
        self.flush(each);
        if (0xd800..0xdc00).contains(&code) {
            self.high = code;
        } else {
            let character = char::from_u32(code).unwrap_or('\u{fffd}');
            each(character.encode_utf8(&mut room).as_bytes());
        }
    }
}

/// Strings up to this long are not worth a call.
const SHORT: usize = 24;

/// Whether a byte ends a run of text: a quote, a backslash, or what may not stand in a string.
#[inline]
fn ends_run(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// Bytes until one that ends a run, or to the end of the piece.
#[inline]
fn run(rest: &[u8]) -> usize {
    if let Some(run) = rest.iter().take(SHORT).position(|byte| ends_run(*byte)) {
        return run;
    }
    let run = memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
    // Without a branch, so that it is done many bytes at a time.
    if rest[..run].iter().fold(false, |found, byte| found | (*byte < b' ')) {
        return rest.iter().position(|byte| *byte < b' ').unwrap_or(run);
    }
    run
}

fn unexpected<T>(byte: u8, phrase: &'static str) -> Result<T, Syntax> {
    Err(Syntax::Unexpected { byte, place: Place::Phrase(phrase) })
}
