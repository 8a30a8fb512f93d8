//! JSON read once, forward, in pieces: bytes in, events out, no tree and no recursion.
//!
//! Decides what is JSON, as strictly as Go's `encoding/json` and as leniently: any bytes may stand in
//! a string, lone surrogates too. Nesting is a stack of bits, 10,000 at most. Knows no field and no
//! API. Offsets are bytes from the start of the body.

use super::text::{Strings, Text};
use super::wording::{Place, Syntax};

/// Containers within each other that Go accepts.
const MAX_DEPTH: usize = 10_000;

/// What kind of value begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

/// Where a value stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    /// Containers around it.
    pub(super) depth: usize,
    /// The innermost of them is an array.
    pub(super) in_array: bool,
    /// First byte of the value.
    pub(super) at: u64,
}

/// A number, read as far as a count or a token id needs; the digits themselves are nobody's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Number {
    /// A minus stood before it.
    pub(super) negative: bool,
    /// It has a fraction or an exponent.
    pub(super) fraction: bool,
    /// The digits before those; saturates.
    pub(super) digits: u64,
}

/// Who hears what was read. Keys and strings come decoded.
pub(super) trait Events {
    /// A member's key; empty when longer than [`super::text::MAX_KEY`] bytes.
    fn key(&mut self, key: &[u8], depth: usize);
    /// A value begins; a scalar other than string and number is over with it.
    fn value(&mut self, kind: Kind, spot: Spot);
    /// A number is over.
    fn number(&mut self, number: Number, depth: usize);
    /// A piece of the string that began last.
    fn text(&mut self, piece: &[u8]);
    /// That string is over; `end` is one past its closing quote.
    fn string_end(&mut self, depth: usize, end: u64);
    /// A container is over; `depth` containers remain around it.
    fn close(&mut self, depth: usize, end: u64);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// A value must come; or, first in an array, its end.
    Value {
        or_close: bool,
    },
    /// A key must come; or, first in an object, its end.
    Key {
        or_close: bool,
    },
    Colon,
    /// A value is over.
    After,
    InKey,
    InString,
    /// So many bytes of a literal were read.
    Literal(Literal, u8),
    Number(Digits),
}

/// What begins with a letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Literal {
    Null,
    True,
    False,
}

impl Literal {
    fn text(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::True => "true",
            Self::False => "false",
        }
    }
}

/// Which part of a number was read last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Digits {
    Minus,
    Zero,
    Whole,
    Point,
    Fraction,
    Exponent,
    ExponentSign,
    ExponentMore,
}

/// The state between two pieces.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    /// One bit a container, set for arrays.
    stack: Vec<u64>,
    depth: usize,
    in_array: bool,
    /// Bytes of earlier pieces.
    base: u64,
    strings: Strings,
    number: Number,
}

impl Scanner {
    pub(super) fn new() -> Self {
        Self {
            state: State::Value { or_close: false },
            stack: Vec::new(),
            depth: 0,
            in_array: false,
            base: 0,
            strings: Strings::default(),
            number: Number::default(),
        }
    }

    /// Reads the next piece. After an error the scanner is of no more use.
    pub(super) fn feed(&mut self, piece: &[u8], events: &mut impl Events) -> Result<(), Syntax> {
        let mut at = 0;
        while at < piece.len() {
            at = match self.state {
                State::InString => self.string(piece, at, events)?,
                State::InKey => self.key(piece, at, events)?,
                State::Number(digits) => self.digits(digits, piece, at, events)?,
                State::Literal(literal, read) => self.literal(literal, read, piece[at], at)?,
                _ => {
                    if !matches!(piece[at], b' ' | b'\t' | b'\n' | b'\r') {
                        self.structure(piece[at], self.base + at as u64, events)?;
                    }
                    at + 1
                }
            };
        }
        self.base += piece.len() as u64;
        Ok(())
    }

    /// The body is over: whether a whole value was read.
    pub(super) fn finish(&mut self, events: &mut impl Events) -> Result<(), Syntax> {
        if let State::Number(
            Digits::Zero | Digits::Whole | Digits::Fraction | Digits::ExponentMore,
        ) = self.state
        {
            self.state = State::After;
            events.number(self.number, self.depth);
        }
        if self.state == State::After && self.depth == 0 { Ok(()) } else { Err(Syntax::Truncated) }
    }

    #[inline]
    fn structure(&mut self, byte: u8, at: u64, events: &mut impl Events) -> Result<(), Syntax> {
        match self.state {
            State::Value { or_close: true } if byte == b']' => self.close(at, events),
            State::Value { .. } => return self.value(byte, at, events),
            State::Key { .. } if byte == b'"' => {
                self.strings.begin();
                self.state = State::InKey;
            }
            State::Key { or_close: true } if byte == b'}' => self.close(at, events),
            State::Key { .. } => {
                return unexpected(byte, "looking for beginning of object key string");
            }
            State::Colon if byte == b':' => self.state = State::Value { or_close: false },
            State::Colon => return unexpected(byte, "after object key"),
            // After a value.
            _ if self.depth == 0 => return unexpected(byte, "after top-level value"),
            _ => match (byte, self.in_array) {
                (b',', true) => self.state = State::Value { or_close: false },
                (b',', false) => self.state = State::Key { or_close: false },
                (b']', true) | (b'}', false) => self.close(at, events),
                (_, true) => return unexpected(byte, "after array element"),
                (_, false) => return unexpected(byte, "after object key:value pair"),
            },
        }
        Ok(())
    }

    #[inline]
    fn value(&mut self, byte: u8, at: u64, events: &mut impl Events) -> Result<(), Syntax> {
        let spot = Spot { depth: self.depth, in_array: self.in_array, at };
        let (kind, state) = match byte {
            b'"' => {
                self.strings.begin();
                (Kind::String, State::InString)
            }
            b'{' | b'[' => {
                let array = byte == b'[';
                events.value(if array { Kind::Array } else { Kind::Object }, spot);
                return self.open(array);
            }
            b'n' => (Kind::Null, State::Literal(Literal::Null, 1)),
            b't' => (Kind::Bool(true), State::Literal(Literal::True, 1)),
            b'f' => (Kind::Bool(false), State::Literal(Literal::False, 1)),
            b'-' | b'0'..=b'9' => {
                let negative = byte == b'-';
                let digits = if negative { 0 } else { u64::from(byte - b'0') };
                self.number = Number { negative, fraction: false, digits };
                (
                    Kind::Number,
                    State::Number(match byte {
                        b'-' => Digits::Minus,
                        b'0' => Digits::Zero,
                        _ => Digits::Whole,
                    }),
                )
            }
            _ => return unexpected(byte, "looking for beginning of value"),
        };
        self.state = state;
        events.value(kind, spot);
        Ok(())
    }

    #[inline]
    fn open(&mut self, array: bool) -> Result<(), Syntax> {
        if self.depth == MAX_DEPTH {
            return Err(Syntax::TooDeep);
        }
        let (word, bit) = (self.depth / 64, self.depth % 64);
        if word == self.stack.len() {
            self.stack.push(0);
        }
        self.stack[word] = self.stack[word] & !(1 << bit) | u64::from(array) << bit;
        self.depth += 1;
        self.in_array = array;
        self.state =
            if array { State::Value { or_close: true } } else { State::Key { or_close: true } };
        Ok(())
    }

    #[inline]
    fn close(&mut self, at: u64, events: &mut impl Events) {
        self.depth -= 1;
        self.in_array = self
            .depth
            .checked_sub(1)
            .is_some_and(|top| self.stack[top / 64] >> (top % 64) & 1 == 1);
        self.state = State::After;
        events.close(self.depth, at + 1);
    }

    #[inline]
    fn string(
        &mut self,
        piece: &[u8],
        at: usize,
        events: &mut impl Events,
    ) -> Result<usize, Syntax> {
        match self.strings.read(piece, at, |text| events.text(text))? {
            Text::Open => Ok(piece.len()),
            Text::Closed(next) => {
                self.state = State::After;
                events.string_end(self.depth, self.base + next as u64);
                Ok(next)
            }
        }
    }

    #[inline]
    fn key(&mut self, piece: &[u8], at: usize, events: &mut impl Events) -> Result<usize, Syntax> {
        // Nearly every key is whole, short and without escapes; those need no copy.
        if let Some(key) = self.strings.whole_key(piece, at) {
            self.state = State::Colon;
            events.key(key, self.depth);
            return Ok(at + key.len() + 1);
        }
        match self.strings.read_key(piece, at)? {
            Text::Open => Ok(piece.len()),
            Text::Closed(next) => {
                self.state = State::Colon;
                events.key(self.strings.key(), self.depth);
                Ok(next)
            }
        }
    }

    fn literal(
        &mut self,
        literal: Literal,
        read: u8,
        byte: u8,
        at: usize,
    ) -> Result<usize, Syntax> {
        let text = literal.text();
        let due = text.as_bytes()[usize::from(read)];
        if byte != due {
            return Err(Syntax::Unexpected { byte, place: Place::Literal { literal: text, due } });
        }
        let read = read + 1;
        let over = usize::from(read) == text.len();
        self.state = if over { State::After } else { State::Literal(literal, read) };
        Ok(at + 1)
    }

    /// Takes the digits from `at` on, most of all there are in a list of token ids.
    #[inline]
    fn whole(&mut self, piece: &[u8], mut at: usize) -> usize {
        let mut digits = self.number.digits;
        while let Some(digit) =
            piece.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|d| *d < 10)
        {
            digits = digits.saturating_mul(10).saturating_add(u64::from(digit));
            at += 1;
        }
        self.number.digits = digits;
        at
    }

    #[inline]
    fn digits(
        &mut self,
        mut part: Digits,
        piece: &[u8],
        mut at: usize,
        events: &mut impl Events,
    ) -> Result<usize, Syntax> {
        if part == Digits::Whole {
            at = self.whole(piece, at);
        }
        while let Some(&byte) = piece.get(at) {
            part = match (part, byte) {
                (Digits::Whole | Digits::Minus, b'0'..=b'9') => {
                    let digit = u64::from(byte - b'0');
                    self.number.digits =
                        self.number.digits.saturating_mul(10).saturating_add(digit);
                    if part == Digits::Minus && byte == b'0' { Digits::Zero } else { Digits::Whole }
                }
                (Digits::Point | Digits::Fraction, b'0'..=b'9') => Digits::Fraction,
                (Digits::Exponent | Digits::ExponentSign | Digits::ExponentMore, b'0'..=b'9') => {
                    Digits::ExponentMore
                }
                (Digits::Zero | Digits::Whole, b'.') => Digits::Point,
                (Digits::Zero | Digits::Whole | Digits::Fraction, b'e' | b'E') => Digits::Exponent,
                (Digits::Exponent, b'+' | b'-') => Digits::ExponentSign,
                (Digits::Minus, _) => return unexpected(byte, "in numeric literal"),
                (Digits::Point, _) => {
                    return unexpected(byte, "after decimal point in numeric literal");
                }
                (Digits::Exponent | Digits::ExponentSign, _) => {
                    return unexpected(byte, "in exponent of numeric literal");
                }
                _ => {
                    self.state = State::After;
                    events.number(self.number, self.depth);
                    return Ok(at);
                }
            };
            self.number.fraction |= matches!(part, Digits::Point | Digits::Exponent);
            at += 1;
        }
        self.state = State::Number(part);
        Ok(at)
    }
}

fn unexpected<T>(byte: u8, phrase: &'static str) -> Result<T, Syntax> {
    Err(Syntax::Unexpected { byte, place: Place::Phrase(phrase) })
}
