//! Server-sent events that arrive in pieces: lines, data, the blank lines between events.
//!
//! Decides which bytes are data and which events are complete; the data goes to the scanner. Lines end
//! with LF or CRLF, data may have a space before it or not, the last newline may be missing, and an
//! event's data may stand on several lines. Comments and other fields are passed over. A line that ends
//! with a lone CR, which no model server sends, does not end here. Counts are events.

use std::ops::Range;
use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::Finder;

use super::scanner::Scanner;

/// The one field that is read.
const DATA: &[u8] = b"data:";

/// The data that says there is no more.
const DONE: &[u8] = b"[DONE]";

/// Every key path that is counted has one of these in it, and keys with escapes are not counted.
static COUNTED: LazyLock<[Finder<'static>; 2]> =
    LazyLock::new(|| [Finder::new("usage\""), Finder::new("meta_info\"")]);

/// Where in a line the pass stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// So many bytes of `data:` were met.
    Field(usize),
    /// A lone CR so far: blank, if LF follows.
    Return,
    /// After the colon, where one space may stand.
    Space,
    /// In the data.
    Data,
    /// In a line that says nothing here.
    Other,
}

/// Takes an event stream apart.
#[derive(Debug)]
pub(super) struct Framer {
    line: Line,
    /// How much of the terminator the data of this line is; `None` once it is something else.
    terminator: Option<usize>,
    /// The event has a line of data.
    pending: bool,
    /// The event has data that is no terminator.
    counts: bool,
    data_seen: bool,
    done: bool,
    events: u64,
}

impl Default for Framer {
    fn default() -> Self {
        Self {
            line: Line::Field(0),
            terminator: None,
            pending: false,
            counts: false,
            data_seen: false,
            done: false,
            events: 0,
        }
    }
}

impl Framer {
    /// Complete events with data that is no terminator.
    pub(super) fn events(&self) -> u64 {
        self.events
    }

    /// The terminator was read.
    pub(super) fn done(&self) -> bool {
        self.done
    }

    /// Data began that is no terminator.
    pub(super) fn data_seen(&self) -> bool {
        self.data_seen
    }

    /// Reads on.
    pub(super) fn feed(&mut self, chunk: &[u8], scanner: &mut Scanner) {
        let mut at = 0;
        while at < chunk.len() {
            match memchr(b'\n', &chunk[at..]) {
                Some(length) => {
                    self.part(chunk, at..at + length, scanner);
                    self.end_line(scanner);
                    at += length + 1;
                }
                None => {
                    self.part(chunk, at..chunk.len(), scanner);
                    return;
                }
            }
        }
    }

    /// The body ended, and with it the last line and event.
    pub(super) fn finish(&mut self, scanner: &mut Scanner) {
        self.end_line(scanner);
        self.end_event(scanner);
    }

    /// A part of a line, without its newline.
    fn part(&mut self, chunk: &[u8], range: Range<usize>, scanner: &mut Scanner) {
        let mut at = range.start;
        while at < range.end {
            match self.line {
                Line::Field(0) if chunk[at..range.end].starts_with(DATA) => {
                    at += DATA.len();
                    self.begin_data();
                }
                Line::Field(met) if chunk[at] == DATA[met] => {
                    at += 1;
                    self.line = Line::Field(met + 1);
                    if met + 1 == DATA.len() {
                        self.begin_data();
                    }
                }
                Line::Field(0) if chunk[at] == b'\r' => {
                    at += 1;
                    self.line = Line::Return;
                }
                Line::Space => {
                    at += usize::from(chunk[at] == b' ');
                    self.line = Line::Data;
                    if self.nothing_to_read(chunk, at..range.end, scanner) {
                        return;
                    }
                }
                Line::Data => {
                    self.compare(&chunk[at..range.end]);
                    return scanner.scan(chunk, at..range.end);
                }
                Line::Field(_) | Line::Return | Line::Other => {
                    self.line = Line::Other;
                    return;
                }
            }
        }
    }

    fn begin_data(&mut self) {
        self.line = Line::Space;
        self.terminator = Some(0);
    }

    /// Whether the data that begins here need not be read: it is the whole of its event, so that what
    /// follows does not depend on it, and it names nothing that is counted. Most events are of this
    /// kind, and this is several times faster than reading them.
    fn nothing_to_read(&mut self, chunk: &[u8], data: Range<usize>, scanner: &Scanner) -> bool {
        let after = chunk.get(data.end + 1..).unwrap_or_default();
        let whole = !self.pending && (after.starts_with(b"\n") || after.starts_with(b"\r\n"));
        if !whole || !scanner.only_counts() {
            return false;
        }
        let data = &chunk[data];
        let [usage, meta_info] = &*COUNTED;
        let told = |at: usize| !is_null(&data[at + usage.needle().len()..]);
        if usage.find_iter(data).any(told) || meta_info.find(data).is_some() {
            return false;
        }
        self.compare(data);
        true
    }

    /// Goes on comparing the data of a line with the terminator, behind which white space may stand.
    fn compare(&mut self, data: &[u8]) {
        for byte in data {
            self.terminator = match self.terminator {
                Some(met) if DONE.get(met) == Some(byte) => Some(met + 1),
                Some(met) if met == DONE.len() && matches!(byte, b' ' | b'\r') => Some(met),
                // An empty line of data with CRLF is no data yet.
                Some(0) if *byte == b'\r' => Some(0),
                _ => {
                    self.data_seen = true;
                    self.terminator = None;
                    return;
                }
            };
        }
    }

    fn end_line(&mut self, scanner: &mut Scanner) {
        match std::mem::replace(&mut self.line, Line::Field(0)) {
            Line::Field(0) | Line::Return => self.end_event(scanner),
            Line::Space | Line::Data => {
                self.pending = true;
                let done = self.terminator == Some(DONE.len());
                self.done |= done;
                self.counts |= !done;
                scanner.line_ended();
            }
            Line::Field(_) | Line::Other => {}
        }
    }

    fn end_event(&mut self, scanner: &mut Scanner) {
        self.events += u64::from(std::mem::take(&mut self.counts));
        if std::mem::take(&mut self.pending) {
            scanner.reset();
        }
    }
}

/// Whether the value of the key that ends before `rest` is `null`, as many servers write it in every
/// event but the last.
fn is_null(rest: &[u8]) -> bool {
    let value = rest.trim_ascii_start().strip_prefix(b":");
    value.is_some_and(|value| value.trim_ascii_start().starts_with(b"null"))
}
