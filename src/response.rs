//! What a response says about itself, read while it passes: token usage, events, the end of a stream.
//!
//! Decides which bodies are read, what goes on to the client (every byte as it came, but for the name
//! of a rewritten model) and what was counted. Never holds a body: without a rewrite a chunk is handed
//! back as it is; with one, at most the bytes that may still become the target's name wait for the next
//! chunk. Compressed bodies and other content types pass unread. Counts are tokens, events, chunks and
//! bytes.
//!
//! ```text
//! chunk ──▶ sse (lines, events) ──▶ scanner (JSON, one pass) ──▶ tally (usage)
//!                                                           └──▶ rename (model values)
//! ```

mod rename;
mod scanner;
mod sse;
mod tally;
#[cfg(test)]
mod tests;

use rename::Renaming;
use scanner::Scanner;
use sse::Framer;

/// The facts of the response headers that decide how its body is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// `content-type`, parameters included, any case. An absent one is read as JSON, which ends at the
    /// first byte that is none.
    pub content_type: Option<&'a str>,
    /// `content-encoding`; anything but `identity` leaves the body unread.
    pub content_encoding: Option<&'a str>,
    /// `:status`, 100 to 599; 0 when unknown.
    pub status: u16,
}

/// A model rewrite that the client is not to see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Restore {
    /// The name that the model server was asked for.
    pub target: String,
    /// The name that the client asked for.
    pub incoming: String,
}

/// Tokens that the model server counted; each at most 2^53.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens generated.
    pub completion: u64,
    /// As the server added them up, else the sum of both.
    pub total: u64,
    /// Prompt tokens found in a cache, where the server tells.
    pub cached: Option<u64>,
}

/// How a body is read.
#[derive(Debug)]
enum Body {
    /// Not at all.
    Opaque,
    /// One JSON text, or several in a row.
    Json,
    /// Server-sent events with JSON in them.
    Events(Framer),
}

/// Reads one response while it passes.
#[derive(Debug)]
pub struct ResponseReader {
    body: Body,
    scanner: Scanner,
    status: u16,
    chunks: u64,
    bytes: u64,
}

impl ResponseReader {
    /// A response that begins with `head`. With `restore` the client gets to see the name it asked for;
    /// empty or equal names restore nothing.
    pub fn new(head: ResponseHead<'_>, restore: Option<Restore>) -> Self {
        let body = Body::of(head);
        let restore = restore.filter(|names| {
            let real = !names.target.is_empty() && !names.incoming.is_empty();
            real && names.target != names.incoming && !matches!(body, Body::Opaque)
        });
        let renaming = restore.map(|names| Renaming::new(&names.target, &names.incoming));
        Self { body, scanner: Scanner::new(renaming), status: head.status, chunks: 0, bytes: 0 }
    }

    /// Takes the next chunk and returns what goes to the client now. After `end` everything is out; a
    /// body that ends with trailers is ended by an empty chunk.
    ///
    /// Without a rewrite the chunk itself comes back, neither copied nor changed.
    pub fn feed(&mut self, chunk: Vec<u8>, end: bool) -> Vec<u8> {
        self.chunks += u64::from(!chunk.is_empty());
        self.bytes += chunk.len() as u64;
        match &mut self.body {
            Body::Opaque => return chunk,
            Body::Json => self.scanner.scan(&chunk, 0..chunk.len()),
            Body::Events(framer) => framer.feed(&chunk, &mut self.scanner),
        }
        if end {
            match &mut self.body {
                Body::Events(framer) => framer.finish(&mut self.scanner),
                Body::Opaque | Body::Json => self.scanner.reset(),
            }
        }
        self.scanner.passed_on(chunk)
    }

    /// The usage told so far. Where a stream tells it again and again, the last one.
    pub fn usage(&self) -> Option<Usage> {
        self.scanner.tally.usage()
    }

    /// Something of the answer arrived: of an event stream the first data that is no terminator, of any
    /// other body its first byte. Comments and empty chunks are nothing.
    pub fn first_token_seen(&self) -> bool {
        match &self.body {
            Body::Events(framer) => framer.data_seen(),
            Body::Opaque | Body::Json => self.bytes > 0,
        }
    }

    /// Complete events with data that is no terminator; 0 for a body that is no event stream. An event
    /// is complete with its blank line, or with the end of the body.
    pub fn events(&self) -> u64 {
        match &self.body {
            Body::Events(framer) => framer.events(),
            Body::Opaque | Body::Json => 0,
        }
    }

    /// The stream said `[DONE]`.
    pub fn done_seen(&self) -> bool {
        matches!(&self.body, Body::Events(framer) if framer.done())
    }

    /// The body is an event stream in plain bytes.
    pub fn is_event_stream(&self) -> bool {
        matches!(self.body, Body::Events(_))
    }

    /// Chunks that were not empty.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Bytes of the body as the endpoint sent them.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The model server answered with an error: a status of 400 or above.
    pub fn is_error(&self) -> bool {
        self.status >= 400
    }
}

// === impl Body ===

impl Body {
    fn of(head: ResponseHead<'_>) -> Self {
        let encoding = head.content_encoding.unwrap_or_default().trim();
        if !encoding.is_empty() && !encoding.eq_ignore_ascii_case("identity") {
            return Self::Opaque;
        }
        let content = head.content_type.unwrap_or_default();
        let media = content.split(';').next().unwrap_or_default().trim();
        if contains(media, "text/event-stream") {
            Self::Events(Framer::default())
        } else if media.is_empty() || contains(media, "json") {
            Self::Json
        } else {
            Self::Opaque
        }
    }
}

/// Whether `text` contains `part`, which is lower case, in any case.
fn contains(text: &str, part: &str) -> bool {
    text.as_bytes().windows(part.len()).any(|window| window.eq_ignore_ascii_case(part.as_bytes()))
}
