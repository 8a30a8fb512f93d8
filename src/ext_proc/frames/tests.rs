//! Frames however they are cut, and what is none.

use std::convert::Infallible;
use std::task::Waker;

use futures_util::stream;
use http_body::Frame;
use http_body_util::StreamBody;
use proptest::prelude::*;
use tonic::Code;

use super::super::message::{HttpBody, HttpTrailers, Incoming, ProcessingRequest};
use super::*;

fn message(request: Incoming) -> ProcessingRequest {
    ProcessingRequest { request: Some(request), ..Default::default() }
}

fn body(bytes: Vec<u8>) -> ProcessingRequest {
    message(Incoming::RequestBody(HttpBody { body: bytes, end_of_stream: true }))
}

fn frames(messages: &[ProcessingRequest]) -> Bytes {
    let mut bytes = BytesMut::new();
    for message in messages {
        append(message, None, &mut bytes).unwrap();
    }
    bytes.freeze()
}

/// All that comes of these chunks, up to the first error.
fn read(chunks: Vec<Bytes>, max: usize) -> Result<Vec<ProcessingRequest>, Code> {
    let chunks = chunks.into_iter().map(|chunk| Ok::<_, Infallible>(Frame::data(chunk)));
    let mut inbound = Inbound::new(StreamBody::new(stream::iter(chunks)), max);
    let mut cx = Context::from_waker(Waker::noop());
    let mut messages = Vec::new();
    loop {
        match inbound.poll_next(&mut cx) {
            Poll::Ready(Some(message)) => messages.push(message.map_err(|status| status.code())?),
            Poll::Ready(None) => return Ok(messages),
            Poll::Pending => panic!("a body that is all there waits for nothing"),
        }
    }
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutants: a prefix that is read from a chunk of less than five bytes; the rest of a chunk that is
    /// forgotten after a message; the prefix left in a message that came in parts.
    #[test]
    fn messages_do_not_depend_on_how_they_are_cut(
        sizes in prop::collection::vec(prop_oneof![0..40_usize, 0..200_000_usize], 0..6),
        cuts in prop::collection::vec(prop_oneof![0..9_usize, 0..40_000_usize], 0..40),
    ) {
        let mut messages: Vec<_> = sizes.iter().map(|size| body(vec![7; *size])).collect();
        messages.push(message(Incoming::RequestTrailers(HttpTrailers {})));
        let mut bytes = frames(&messages);
        let mut chunks: Vec<_> =
            cuts.iter().map(|cut| bytes.split_to((*cut).min(bytes.len()))).collect();
        chunks.push(bytes);
        prop_assert_eq!(read(chunks, usize::MAX).unwrap(), messages);
    }

    /// Mutant: memory set aside for what a prefix claims, or a read past the end of what is there.
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64), cut in 0..64_usize) {
        let mut bytes = Bytes::from(bytes);
        let first = bytes.split_to(cut.min(bytes.len()));
        let _ = read(vec![first, bytes], 1 << 20);
    }
}

/// Mutants: a limit that counts the prefix; a stream cut within a message that looks like a clean end.
#[test]
fn what_is_no_message_has_its_own_code() {
    let whole = frames(&[body(vec![1; 100])]);
    let length = whole.len() - PREFIX;
    assert_eq!(read(vec![whole.clone()], length).map(|all| all.len()), Ok(1));
    assert_eq!(read(vec![whole.clone()], length - 1), Err(Code::OutOfRange));
    // Before the message has come: it is not waited for.
    assert_eq!(read(vec![whole.slice(..PREFIX)], length - 1), Err(Code::OutOfRange));
    for cut in [1, PREFIX, PREFIX + 1, whole.len() - 1] {
        assert_eq!(read(vec![whole.slice(..cut)], length), Err(Code::Internal), "{cut}");
    }
    let mut compressed = BytesMut::from(&whole[..]);
    compressed[0] = 1;
    assert_eq!(read(vec![compressed.freeze()], length), Err(Code::Internal));
    let no_message = Bytes::from_static(&[0, 0, 0, 0, 1, 0xff]);
    assert_eq!(read(vec![no_message], length), Err(Code::Internal));
    assert_eq!(read(Vec::new(), length), Ok(Vec::new()));
}

/// Mutant: an answer over the limit of which a part has been written.
#[test]
fn an_answer_over_the_limit_is_not_begun() {
    let mut bytes = BytesMut::new();
    let answer = body(vec![1; 100]);
    let length = answer.encoded_len();
    append(&answer, Some(length), &mut bytes).unwrap();
    let before = bytes.len();
    assert_eq!(append(&answer, Some(length - 1), &mut bytes).unwrap_err().code(), Code::OutOfRange);
    assert_eq!(bytes.len(), before);
}
