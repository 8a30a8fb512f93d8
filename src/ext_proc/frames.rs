//! gRPC's framing: the bytes of one HTTP/2 stream into messages of the gateway, answers into bytes.
//!
//! Decides how much of a message is kept before it is complete and what is no message at all; what the
//! messages say is `message`'s. A frame is a flag for compression, a length of four bytes, and so many
//! bytes (gRPC's "PROTOCOL-HTTP2"). Written by hand because a message that lies in one chunk needs no
//! buffer of its own here: its header values are slices of the chunk. Sizes are bytes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use http_body::Body;
use prost::Message;
use tonic::Status;

/// Flag and length.
const PREFIX: usize = 5;
/// What is set aside at once for a message that comes in parts, however long it says it is.
const AT_ONCE: usize = 64 << 10;

/// The messages that come in.
pub(super) struct Inbound<B> {
    body: B,
    /// What has not been read of the last chunk.
    chunk: Bytes,
    /// The beginning of a message that goes on in a later chunk, its prefix included.
    part: BytesMut,
    max: usize,
}

impl<B: Body<Data = Bytes> + Unpin> Inbound<B> {
    /// Reads `body`. A message over `max` bytes is an error.
    pub(super) fn new(body: B, max: usize) -> Self {
        Self { body, chunk: Bytes::new(), part: BytesMut::new(), max }
    }

    /// The next message; `None` once the gateway has ended its side.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` for a message that is too long, `INTERNAL` for bytes that are none, `CANCELLED` for
    /// a stream that was reset. Nothing is to be read after an error.
    pub(super) fn poll_next<M: Message + Default>(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<M, Status>>> {
        loop {
            match self.message() {
                Ok(None) => {}
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Err(status) => return Poll::Ready(Some(Err(status))),
            }
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                // Trailers of a request say nothing.
                Some(Ok(frame)) => self.chunk = frame.into_data().unwrap_or_default(),
                Some(Err(_)) => {
                    return Poll::Ready(Some(Err(Status::cancelled("the stream was reset"))));
                }
                None if self.part.is_empty() => return Poll::Ready(None),
                None => {
                    let status = Status::internal("the stream ended within a message");
                    return Poll::Ready(Some(Err(status)));
                }
            }
        }
    }

    /// The message that is complete by now, if one is. Without one, the chunk is used up.
    fn message<M: Message + Default>(&mut self) -> Result<Option<M>, Status> {
        if self.part.is_empty() {
            match self.length(&self.chunk)? {
                Some(length) if self.chunk.len() - PREFIX >= length => {
                    self.chunk.advance(PREFIX);
                    return decoded(self.chunk.split_to(length)).map(Some);
                }
                _ => {}
            }
        }
        while !self.chunk.is_empty() {
            let missing = match self.length(&self.part)? {
                None => PREFIX - self.part.len(),
                Some(length) => PREFIX + length - self.part.len(),
            };
            let taken = self.chunk.split_to(missing.min(self.chunk.len()));
            if self.part.capacity() < self.part.len() + taken.len() {
                self.part.reserve(missing.min(AT_ONCE).max(taken.len()));
            }
            self.part.put(taken);
            if let Some(length) = self.length(&self.part)?
                && self.part.len() == PREFIX + length
            {
                let mut whole = std::mem::take(&mut self.part).freeze();
                whole.advance(PREFIX);
                return decoded(whole).map(Some);
            }
        }
        Ok(None)
    }

    /// The length that a prefix states; `None` while the prefix is not complete.
    fn length(&self, mut bytes: &[u8]) -> Result<Option<usize>, Status> {
        if bytes.len() < PREFIX {
            return Ok(None);
        }
        if bytes.get_u8() != 0 {
            return Err(Status::internal("a compressed message, where no compression was agreed"));
        }
        let length = bytes.get_u32() as usize;
        if length > self.max {
            let limit = self.max;
            let text = format!("a message of {length} bytes, over the limit of {limit}");
            return Err(Status::out_of_range(text));
        }
        Ok(Some(length))
    }
}

fn decoded<M: Message + Default>(bytes: Bytes) -> Result<M, Status> {
    M::decode(bytes).map_err(|error| Status::internal(error.to_string()))
}

/// Appends the frame of one answer.
///
/// # Errors
/// `OUT_OF_RANGE` for a message of over `max` bytes or of more than a frame can hold; nothing is
/// appended then.
pub(super) fn append<M: Message>(
    message: &M,
    max: Option<usize>,
    into: &mut BytesMut,
) -> Result<(), Status> {
    let length = message.encoded_len();
    let fits = u32::try_from(length).ok().filter(|_| max.is_none_or(|max| length <= max));
    let Some(stated) = fits else {
        return Err(Status::out_of_range(format!("an answer of {length} bytes, over the limit")));
    };
    into.reserve(PREFIX + length);
    into.put_u8(0);
    into.put_u32(stated);
    message.encode_raw(into);
    Ok(())
}

#[cfg(test)]
mod tests;
