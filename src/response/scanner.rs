//! One forward pass over JSON that arrives in pieces: finds keys, their values and the ends of texts.
//!
//! Decides what is a key, a value, inside a string, or no JSON at all; the meaning of keys is the
//! tally's and the rename's. Keeps no more of the text than one short token, so a text may be of any
//! length and be cut anywhere. It is no validator: what is well-formed is read right, and what is not
//! is skipped, at the latest, up to the next line of an event stream. Sizes are bytes.

use std::ops::Range;

use memchr::memchr2;

use super::rename::{Renaming, Step};
use super::tally::Tally;

/// The longest key or value that anyone asks about. A longer one is skipped unread, and so is one with
/// an escape in it.
const MAX_TOKEN: usize = 32;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum State {
    /// Between tokens.
    #[default]
    Between,
    /// After a string that a colon would make a key.
    AfterText,
    /// In a string.
    Text,
    /// In a string, after a backslash.
    Escaped,
    /// In a string that may be the name to restore.
    Watched,
    /// In a number or a word.
    Bare,
    /// No JSON: skipped until the next reset.
    Broken,
}

/// Where the pass stands.
#[derive(Debug)]
pub(super) struct Scanner {
    state: State,
    /// Open brackets of both kinds.
    depth: u64,
    /// A colon was read, its value not yet.
    value_due: bool,
    /// The value due is a model's name.
    model_due: bool,
    token: Token,
    /// What the text told so far.
    pub(super) tally: Tally,
    renaming: Option<Box<Renaming>>,
}

impl Scanner {
    /// At the start of a text. With `renaming`, names are restored on the way.
    pub(super) fn new(renaming: Option<Renaming>) -> Self {
        Self {
            state: State::default(),
            depth: 0,
            value_due: false,
            model_due: false,
            token: Token::default(),
            tally: Tally::default(),
            renaming: renaming.map(Box::new),
        }
    }

    /// Whether a text without the name of a usage field may be skipped.
    pub(super) fn only_counts(&self) -> bool {
        self.renaming.is_none()
    }

    /// Reads on, in `chunk[range]`. The ranges of one chunk come in order.
    pub(super) fn scan(&mut self, chunk: &[u8], range: Range<usize>) {
        let bytes = &chunk[..range.end];
        let mut at = range.start;
        while at < bytes.len() {
            at = match self.state {
                State::Between | State::AfterText => self.between(bytes, at),
                State::Text => self.text(bytes, at),
                State::Escaped => {
                    self.state = State::Text;
                    at + 1
                }
                State::Watched => self.watched(bytes, at),
                State::Bare => self.bare(bytes, at),
                State::Broken => return,
            };
        }
    }

    /// A line of an event stream ended: white space to JSON, but no string goes over it. What was no
    /// JSON ends here too.
    pub(super) fn line_ended(&mut self) {
        match self.state {
            State::Between | State::AfterText => {}
            State::Bare => self.end_bare(None),
            State::Text | State::Escaped | State::Watched | State::Broken => self.reset(),
        }
    }

    /// Forgets an unfinished text and starts anew.
    pub(super) fn reset(&mut self) {
        self.give_up();
        self.state = State::Between;
    }

    /// What of `chunk` goes on to the client, now that it was scanned.
    pub(super) fn passed_on(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        match &mut self.renaming {
            None => chunk,
            Some(renaming) => renaming.passed_on(chunk, self.state == State::Watched),
        }
    }

    /// Bytes that wait for the next chunk.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.renaming.as_ref().map_or(0, |renaming| renaming.held())
    }

    /// The text is not JSON, or was cut: nothing of it counts.
    fn give_up(&mut self) {
        if let (State::Watched, Some(renaming)) = (self.state, &mut self.renaming) {
            renaming.differs();
        }
        self.state = State::Broken;
        self.depth = 0;
        self.value_due = false;
        self.tally.discard();
    }

    fn between(&mut self, bytes: &[u8], at: usize) -> usize {
        match bytes[at] {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'{' | b'[' => {
                self.depth += 1;
                self.tally.open(self.depth, self.value_due);
                self.value_due = false;
                self.state = State::Between;
            }
            // Only objects and arrays have anything to tell, and nothing else stands between them.
            _ if self.depth == 0 => self.give_up(),
            b'"' if self.value_due && self.model_due => {
                self.state = State::Watched;
                if let Some(renaming) = &mut self.renaming {
                    renaming.open(at + 1);
                }
            }
            b'"' => {
                self.token.clear();
                self.state = State::Text;
            }
            b':' if self.state == State::AfterText => self.end_key(None),
            b':' => self.give_up(),
            b'}' | b']' => {
                self.depth -= 1;
                self.value_due = false;
                self.state = State::Between;
                if self.depth == 0 {
                    self.tally.commit();
                }
            }
            b',' => {
                self.value_due = false;
                self.state = State::Between;
            }
            _ => {
                self.token.clear();
                self.state = State::Bare;
                return at;
            }
        }
        at + 1
    }

    fn text(&mut self, bytes: &[u8], at: usize) -> usize {
        let Some(length) = memchr2(b'"', b'\\', &bytes[at..]) else {
            self.token.push(&bytes[at..]);
            return bytes.len();
        };
        let end = at + length;
        if bytes[end] == b'\\' {
            self.token.spoil();
            self.state = State::Escaped;
            return end + 1;
        }
        let piece = &bytes[at..end];
        if self.value_due {
            self.tally.scalar(self.token.with(piece));
            self.value_due = false;
            self.state = State::Between;
        } else if bytes.get(end + 1) == Some(&b':') {
            self.end_key(Some(piece));
            return end + 2;
        } else {
            self.token.push(piece);
            self.state = State::AfterText;
        }
        end + 1
    }

    /// The last string was a key; `piece` is what of it is not in the token yet.
    fn end_key(&mut self, piece: Option<&[u8]>) {
        let name = self.token.with(piece.unwrap_or_default());
        self.tally.key(self.depth, name);
        self.model_due = self.renaming.is_some() && name == b"model";
        self.value_due = true;
        self.state = State::Between;
    }

    fn watched(&mut self, bytes: &[u8], mut at: usize) -> usize {
        let Some(renaming) = &mut self.renaming else {
            self.state = State::Text;
            return at;
        };
        while at < bytes.len() {
            match renaming.step(bytes[at]) {
                Step::More => at += 1,
                Step::Equal => {
                    renaming.replace(bytes, at);
                    self.value_due = false;
                    self.state = State::Between;
                    return at + 1;
                }
                // The byte is read again, as one of any other string.
                Step::Differs { escaped } => {
                    renaming.differs();
                    self.token.spoil();
                    self.state = if escaped { State::Escaped } else { State::Text };
                    return at;
                }
            }
        }
        at
    }

    fn bare(&mut self, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at..];
        match rest.iter().position(|byte| ends_bare(*byte)) {
            Some(length) => {
                self.end_bare(Some(&rest[..length]));
                at + length
            }
            None => {
                self.token.push(rest);
                bytes.len()
            }
        }
    }

    fn end_bare(&mut self, piece: Option<&[u8]>) {
        if self.value_due {
            self.tally.scalar(self.token.with(piece.unwrap_or_default()));
            self.value_due = false;
        }
        self.state = State::Between;
    }
}

fn ends_bare(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b':' | b'"' | b'{' | b'[' | b' ' | b'\t' | b'\r' | b'\n')
}

/// What of a key or value came in earlier pieces.
#[derive(Debug, Default)]
struct Token {
    bytes: [u8; MAX_TOKEN],
    len: usize,
    spoilt: bool,
}

impl Token {
    fn clear(&mut self) {
        self.len = 0;
        self.spoilt = false;
    }

    /// Nobody asks about this one.
    fn spoil(&mut self) {
        self.spoilt = true;
    }

    fn push(&mut self, piece: &[u8]) {
        match self.bytes.get_mut(self.len..self.len + piece.len()) {
            Some(room) if !self.spoilt => {
                room.copy_from_slice(piece);
                self.len += piece.len();
            }
            _ => self.spoilt = true,
        }
    }

    /// The whole of it, `piece` being the last part; empty when nobody could ask about it. Copies
    /// nothing where all of it came in one piece.
    fn with<'a>(&'a mut self, piece: &'a [u8]) -> &'a [u8] {
        if self.len == 0 && !self.spoilt && piece.len() <= MAX_TOKEN {
            return piece;
        }
        self.push(piece);
        if self.spoilt { &[] } else { &self.bytes[..self.len] }
    }
}
