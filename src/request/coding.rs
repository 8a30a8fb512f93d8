//! Content codings, undone as the body arrives so that it can be read; it is passed on as it came.
//!
//! Decides which codings are understood and how much they may inflate to. What comes out of one
//! decoder goes straight into the next and at last into the reader, so nothing inflated is kept
//! beyond a decoder's own window (8 MiB for zstd, 16 MiB for brotli, 32 KiB for the rest).

use std::io::{self, Write};

use brotli_decompressor::DecompressorWriter;
use flate2::write::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::BodyError;
use super::reader::JsonReader;
use super::zstd::ZstdDecoder;

/// Codings on top of each other; more than this is not read.
const MAX_CODINGS: usize = 4;

/// One coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Gzip,
    /// Zlib, as the standard says, or bare deflate, as some send.
    Deflate,
    Zstd,
    Brotli,
}

/// The codings of a `content-encoding` header in the order of application, or `None` if one of them is
/// not understood.
pub(super) fn codings(header: &str) -> Option<Vec<Coding>> {
    let mut found = Vec::new();
    for name in header.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("identity") {
            continue;
        }
        found.push(if is("gzip") || is("x-gzip") {
            Coding::Gzip
        } else if is("deflate") {
            Coding::Deflate
        } else if is("zstd") {
            Coding::Zstd
        } else if is("br") {
            Coding::Brotli
        } else {
            return None;
        });
    }
    (found.len() <= MAX_CODINGS).then_some(found)
}

/// A decoder with what follows it; the last is the reader of JSON.
pub(super) enum Stage {
    Json(Box<JsonReader>),
    Gzip(Box<MultiGzDecoder<Stage>>),
    Zlib(Box<ZlibDecoder<Stage>>),
    Deflate(Box<DeflateDecoder<Stage>>),
    /// The first bytes decide between the two above.
    Unsure(Vec<u8>, Option<Box<Stage>>),
    Zstd(Box<ZstdDecoder<Stage>>),
    Brotli(Box<DecompressorWriter<Stage>>),
}

/// Bytes that the brotli decoder hands on at once.
const BROTLI_BUFFER: usize = 4096;

impl Stage {
    /// Puts a decoder before this stage.
    pub(super) fn behind(self, coding: Coding) -> Self {
        match coding {
            Coding::Gzip => Self::Gzip(Box::new(MultiGzDecoder::new(self))),
            Coding::Deflate => Self::Unsure(Vec::new(), Some(Box::new(self))),
            Coding::Zstd => Self::Zstd(Box::new(ZstdDecoder::new(self))),
            Coding::Brotli => Self::Brotli(Box::new(DecompressorWriter::new(self, BROTLI_BUFFER))),
        }
    }

    /// Reads the next piece.
    pub(super) fn feed(&mut self, piece: &[u8]) -> Result<(), BodyError> {
        match self {
            Self::Json(reader) => reader.feed(piece),
            decoder => decoder.write_all(piece).map_err(cause),
        }
    }

    /// The body is over: gives back the reader, having heard all.
    pub(super) fn finish(self) -> Result<Box<JsonReader>, BodyError> {
        let next = match self {
            Self::Json(reader) => return Ok(reader),
            Self::Gzip(decoder) => decoder.finish().map_err(cause)?,
            Self::Zlib(decoder) => decoder.finish().map_err(cause)?,
            Self::Deflate(decoder) => decoder.finish().map_err(cause)?,
            Self::Unsure(..) => return Err(BodyError::Coding("it ends too early".to_owned())),
            Self::Zstd(decoder) => decoder.finish().map_err(cause)?,
            Self::Brotli(mut decoder) => {
                decoder.close().map_err(cause)?;
                (*decoder)
                    .into_inner()
                    .map_err(|_| BodyError::Coding("it ends too early".to_owned()))?
            }
        };
        next.finish()
    }

    /// Enough bytes of a `deflate` body to tell what it is.
    fn decide(&mut self) -> io::Result<()> {
        let Self::Unsure(head, next) = self else { return Ok(()) };
        let &[first, second, ..] = head.as_slice() else { return Ok(()) };
        let Some(next) = next.take() else { return Err(io::ErrorKind::InvalidData.into()) };
        let head = std::mem::take(head);
        let zlib = first & 0x0f == 8 && u16::from_be_bytes([first, second]).is_multiple_of(31);
        *self = if zlib {
            Self::Zlib(Box::new(ZlibDecoder::new(*next)))
        } else {
            Self::Deflate(Box::new(DeflateDecoder::new(*next)))
        };
        self.write_all(&head)
    }
}

impl Write for Stage {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Json(reader) => {
                reader.feed(bytes).map(|()| bytes.len()).map_err(io::Error::other)
            }
            Self::Gzip(decoder) => decoder.write(bytes),
            Self::Zlib(decoder) => decoder.write(bytes),
            Self::Deflate(decoder) => decoder.write(bytes),
            Self::Unsure(head, _) => {
                head.extend_from_slice(bytes);
                self.decide().map(|()| bytes.len())
            }
            Self::Zstd(decoder) => decoder.write(bytes),
            Self::Brotli(decoder) => decoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The reader's own refusal where it was one, else a fault of the coding.
fn cause(error: io::Error) -> BodyError {
    match error.downcast::<BodyError>() {
        Ok(refusal) => refusal,
        Err(error) => BodyError::Coding(error.to_string()),
    }
}
