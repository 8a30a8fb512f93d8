//! One HTTP/1.1 answer, found in a buffer while its bytes arrive.
//!
//! Decides where head and body end and whether the connection can carry another exchange; does no
//! I/O. A chunked body is moved together in place, so that a page is one slice whatever its framing.
//! Sizes are bytes.

use std::ops::Range;

/// Largest page that is read, before and after inflating.
pub(super) const MAX_PAGE: usize = 8 << 20;
/// Largest head.
const MAX_HEAD: usize = 64 << 10;
/// Room for a read while the size of the answer is unknown.
const ROOM: usize = 16 << 10;

/// Why bytes are no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum AnswerError {
    #[error("the connection was closed before an answer")]
    Closed,
    #[error("the answer ended early")]
    Cut,
    #[error("the answer is no HTTP/1 ({0})")]
    NotHttp(&'static str),
    #[error("the page is over {MAX_PAGE} bytes")]
    TooLarge,
}

/// A complete answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answer {
    /// As sent.
    pub(super) status: u16,
    /// Whether the body is gzip.
    pub(super) gzip: bool,
    /// Where a redirection leads.
    pub(super) location: Option<String>,
    /// Where the body is in the buffer.
    pub(super) body: Range<usize>,
    /// Whether the connection can carry another exchange.
    pub(super) keep: bool,
}

/// What a buffer holds so far.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More is needed; make room for so many bytes.
    More(usize),
    /// All is there.
    Done(Answer),
}

/// Reads one answer; feed it the same growing buffer until it is done.
#[derive(Debug, Default)]
pub(super) struct AnswerReader {
    /// Where the head begins: behind interim answers.
    start: usize,
    /// How far the end of the head was looked for.
    searched: usize,
    body: Option<Body>,
}

#[derive(Debug)]
struct Body {
    answer: Answer,
    framing: Framing,
}

#[derive(Debug)]
enum Framing {
    /// Bytes of the body.
    Length(usize),
    /// Where the next size line begins; the decoded body is `answer.body`.
    Chunked {
        next: usize,
    },
    UntilClosed,
}

/// What a head says.
#[derive(Default)]
struct Head {
    length: Option<usize>,
    chunked: bool,
    close: bool,
    keep_alive: bool,
    gzip: bool,
    location: Option<String>,
}

// === impl AnswerReader ===

impl AnswerReader {
    /// Looks at `bytes` again; `ended` when no more will come.
    ///
    /// # Errors
    /// [`AnswerError`]; the connection is of no further use then.
    pub(super) fn advance(
        &mut self,
        bytes: &mut [u8],
        ended: bool,
    ) -> Result<Progress, AnswerError> {
        while self.body.is_none() {
            match self.find_head(bytes)? {
                Some(end) => self.take_head(bytes, end)?,
                None if !ended => return Ok(Progress::More(ROOM)),
                None if bytes.len() == self.start => return Err(AnswerError::Closed),
                None => return Err(AnswerError::Cut),
            }
        }
        let Some(body) = &mut self.body else { return Err(AnswerError::Cut) };
        match body.missing(bytes, ended)? {
            None => {
                let body = self.body.take().ok_or(AnswerError::Cut)?;
                Ok(Progress::Done(body.answer))
            }
            Some(_) if ended => Err(AnswerError::Cut),
            Some(missing) => Ok(Progress::More(missing)),
        }
    }

    /// Where the head ends, behind its empty line.
    fn find_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, AnswerError> {
        // From a little before, as the empty line may have come in two pieces.
        let from = self.searched.saturating_sub(3).max(self.start);
        for at in memchr::memchr_iter(b'\n', &bytes[from..]).map(|at| from + at) {
            let line = &bytes[self.start..at];
            if line.ends_with(b"\n") || line.ends_with(b"\n\r") {
                return Ok(Some(at + 1));
            }
        }
        self.searched = bytes.len();
        if bytes.len() - self.start > MAX_HEAD {
            return Err(AnswerError::NotHttp("its head does not end"));
        }
        Ok(None)
    }

    fn take_head(&mut self, bytes: &[u8], end: usize) -> Result<(), AnswerError> {
        let mut lines = bytes[self.start..end].split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let (minor, status) = status_line(lines.next().unwrap_or_default())
            .ok_or(AnswerError::NotHttp("its first line is no status"))?;
        if (100..200).contains(&status) {
            (self.start, self.searched) = (end, end);
            return Ok(());
        }
        let mut head = Head::default();
        for line in lines.filter(|line| !line.is_empty()) {
            head.take(line)?;
        }
        let empty = status == 204 || status == 304;
        let framing = match head.length {
            _ if empty => Framing::Length(0),
            _ if head.chunked => Framing::Chunked { next: end },
            Some(length) if length > MAX_PAGE => return Err(AnswerError::TooLarge),
            Some(length) => Framing::Length(length),
            None => Framing::UntilClosed,
        };
        let keep = !head.close
            && (minor > 0 || head.keep_alive)
            && !matches!(framing, Framing::UntilClosed);
        let (gzip, location) = (head.gzip, head.location);
        let answer = Answer { status, gzip, location, body: end..end, keep };
        self.body = Some(Body { answer, framing });
        Ok(())
    }
}

// === impl Body ===

impl Body {
    /// How many bytes are still missing, at least; `None` when the body is whole.
    fn missing(&mut self, bytes: &mut [u8], ended: bool) -> Result<Option<usize>, AnswerError> {
        let body = &mut self.answer.body;
        match &mut self.framing {
            Framing::Length(length) => {
                body.end = body.start + *length;
                // Bytes that nobody asked for: what follows cannot be trusted.
                self.answer.keep &= bytes.len() <= body.end;
                Ok(body.end.checked_sub(bytes.len()).filter(|missing| *missing > 0))
            }
            Framing::UntilClosed => {
                body.end = bytes.len();
                if body.len() > MAX_PAGE {
                    return Err(AnswerError::TooLarge);
                }
                Ok((!ended).then_some(ROOM))
            }
            Framing::Chunked { next } => loop {
                let Some((size, data)) = size_line(bytes, *next)? else { return Ok(Some(ROOM)) };
                if size == 0 {
                    let Some(end) = trailers_end(bytes, data) else { return Ok(Some(ROOM)) };
                    self.answer.keep &= bytes.len() == end;
                    return Ok(None);
                }
                if body.len() + size > MAX_PAGE {
                    return Err(AnswerError::TooLarge);
                }
                // One more byte shows the line's end behind the data.
                let end = data + size;
                let Some(after) = bytes.get(end..).filter(|after| !after.is_empty()) else {
                    return Ok(Some(end + 1 - bytes.len() + ROOM));
                };
                let skip = match after {
                    [b'\n', ..] => 1,
                    [b'\r', b'\n', ..] => 2,
                    [b'\r'] => return Ok(Some(ROOM)),
                    _ => return Err(AnswerError::NotHttp("a chunk is longer than its size")),
                };
                bytes.copy_within(data..end, body.end);
                body.end += size;
                *next = end + skip;
            },
        }
    }
}

// === impl Head ===

impl Head {
    fn take(&mut self, line: &[u8]) -> Result<(), AnswerError> {
        let Some(colon) = memchr::memchr(b':', line) else {
            return Err(AnswerError::NotHttp("a header has no colon"));
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        let holds = |word: &str| {
            value
                .split(|b| *b == b',')
                .any(|v| v.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
        };
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or(AnswerError::NotHttp("a bad content-length"))?;
            if self.length.replace(length).is_some_and(|before| before != length) {
                return Err(AnswerError::NotHttp("two content-lengths"));
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.chunked |= holds("chunked");
        } else if name.eq_ignore_ascii_case(b"connection") {
            self.close |= holds("close");
            self.keep_alive |= holds("keep-alive");
        } else if name.eq_ignore_ascii_case(b"content-encoding") {
            self.gzip |= holds("gzip") || holds("x-gzip");
        } else if name.eq_ignore_ascii_case(b"location") {
            self.location = std::str::from_utf8(value).ok().map(str::to_owned);
        }
        Ok(())
    }
}

/// Minor version and status of `HTTP/1.x NNN reason`.
fn status_line(line: &[u8]) -> Option<(u8, u16)> {
    let rest = line.strip_prefix(b"HTTP/1.")?;
    let [minor @ b'0'..=b'9', b' ', code @ ..] = rest else { return None };
    let digits = code.get(..3)?;
    let ended = matches!(code.get(3), None | Some(b' '));
    let status = decimal(digits).filter(|status| ended && *status >= 100)?;
    Some((minor - b'0', u16::try_from(status).ok()?))
}

/// The size at `at` and where the data begins; `None` until the line is whole.
fn size_line(bytes: &[u8], at: usize) -> Result<Option<(usize, usize)>, AnswerError> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(end) = memchr::memchr(b'\n', rest) else {
        let long = rest.len() > 256;
        return if long { Err(AnswerError::NotHttp("a bad chunk size")) } else { Ok(None) };
    };
    let line = rest[..end].split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let size = std::str::from_utf8(line).ok().filter(|text| !text.starts_with('+'));
    let size = size.and_then(|text| usize::from_str_radix(text, 16).ok());
    let size = size.ok_or(AnswerError::NotHttp("a bad chunk size"))?;
    if size > MAX_PAGE {
        return Err(AnswerError::TooLarge);
    }
    Ok(Some((size, at + end + 1)))
}

/// Where the trailers that begin at `at` end, behind their empty line.
fn trailers_end(bytes: &[u8], at: usize) -> Option<usize> {
    let mut start = at;
    loop {
        let rest = bytes.get(start..)?;
        let end = memchr::memchr(b'\n', rest)?;
        start += end + 1;
        if rest[..end].trim_ascii().is_empty() {
            return Some(start);
        }
    }
}

fn decimal(text: &[u8]) -> Option<usize> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(text).ok()?.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The answer and its body when `bytes` come in pieces of `step`.
    fn read(bytes: &[u8], step: usize) -> Result<(Answer, String), AnswerError> {
        let mut reader = AnswerReader::default();
        let mut buffer = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            if let Progress::Done(answer) = reader.advance(&mut buffer, false)? {
                let body = String::from_utf8_lossy(&buffer[answer.body.clone()]).into_owned();
                // Whether bytes follow depends on how far the buffer went.
                return Ok((Answer { body: 0..0, ..answer }, body));
            }
        }
        match reader.advance(&mut buffer, true)? {
            Progress::Done(answer) => {
                let body = String::from_utf8_lossy(&buffer[answer.body.clone()]).into_owned();
                Ok((Answer { body: 0..0, ..answer }, body))
            }
            Progress::More(_) => panic!("asks for more after the end"),
        }
    }

    fn answer(status: u16, keep: bool) -> Answer {
        Answer { status, gzip: false, location: None, body: 0..0, keep }
    }

    /// Mutants: looking for the head's end from where it stopped; `copy_within` left out; no interim
    /// answers; HTTP/1.0 kept open.
    #[test]
    fn every_framing_reads_however_it_is_cut() {
        let location = Some("/metrics/".to_owned());
        for (text, expected, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na 1", answer(200, true), "a 1"),
            ("HTTP/1.1 200\ncontent-length:3\n\na 1", answer(200, true), "a 1"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na 1\r\n1;x=y\r\n\n\r\nA\r\n\
                 0123456789\r\n0\r\nX: y\r\n\r\n",
                answer(200, true),
                "a 1\n0123456789",
            ),
            ("HTTP/1.1 200 OK\r\n\r\nuntil the end", answer(200, false), "until the end"),
            ("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na", answer(200, false), "a"),
            (
                "HTTP/1.0 200 OK\r\nConnection: Keep-Alive\r\nContent-Length: 1\r\n\r\na",
                answer(200, true),
                "a",
            ),
            (
                "HTTP/1.1 503 Busy\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n",
                answer(503, false),
                "",
            ),
            ("HTTP/1.1 204 No\r\nContent-Length: 7\r\n\r\n", answer(204, true), ""),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\na",
                answer(200, true),
                "a",
            ),
            (
                "HTTP/1.1 307 There\r\nLocation: /metrics/\r\ncontent-encoding: gzip\r\n\
                 content-length: 0\r\n\r\n",
                Answer { gzip: true, location, ..answer(307, true) },
                "",
            ),
        ] {
            for step in [1, 2, 3, 7, 4096] {
                let read = read(text.as_bytes(), step);
                assert_eq!(read, Ok((expected.clone(), body.to_owned())), "{step}: {text}");
            }
        }
    }

    /// Mutants: no limit of a declared length; a cut answer taken as whole.
    #[test]
    fn what_is_no_answer_is_refused() {
        use AnswerError::{Closed, Cut, NotHttp, TooLarge};
        for (text, expected) in [
            ("", Closed),
            ("HTTP/1.1 200 OK\r\n", Cut),
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na", Cut),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na 1\r\n", Cut),
            ("HTTP/2 200 OK\r\n\r\n", NotHttp("its first line is no status")),
            ("HTTP/1.1 20 OK\r\n\r\n", NotHttp("its first line is no status")),
            ("HTTP/1.1 200 OK\r\nx\r\n\r\n", NotHttp("a header has no colon")),
            ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", NotHttp("a bad content-length")),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                NotHttp("two content-lengths"),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Length: 8388609\r\n\r\n", TooLarge),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", TooLarge),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                NotHttp("a chunk is longer than its size"),
            ),
        ] {
            assert_eq!(read(text.as_bytes(), 4096), Err(expected), "{text}");
        }
    }

    /// Bytes behind an answer were not asked for. Mutant: keeping such a connection.
    #[test]
    fn a_connection_with_bytes_to_spare_is_not_kept() {
        for text in [
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nb",
        ] {
            assert!(!read(text.as_bytes(), 4096).unwrap().0.keep, "{text}");
        }
    }

    proptest! {
        #![proptest_config(crate::fixed_seed())]

        /// Any bytes are an answer or an error, and cuts do not change which. Mutant: an index past
        /// the end anywhere above.
        #[test]
        fn any_bytes_are_read_or_refused(
            pieces in prop::collection::vec(prop_oneof![
                prop::sample::select(vec![
                    "HTTP/1.1 200 OK\r\n", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n",
                    "\r\n", "\n", "3\r\n", "0\r\n", "abc", ":", "\r", "HTTP/1.1 100 C\r\n\r\n",
                ]).prop_map(|text| text.as_bytes().to_vec()),
                prop::collection::vec(any::<u8>(), 0..4),
            ], 0..14),
            step in 1_usize..9,
        ) {
            let bytes = pieces.concat();
            let plain = |read: Result<(Answer, String), AnswerError>| {
                read.map(|(answer, body)| (Answer { keep: false, ..answer }, body))
            };
            prop_assert_eq!(plain(read(&bytes, step)), plain(read(&bytes, bytes.len().max(1))));
        }
    }
}
