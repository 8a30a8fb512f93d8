//! Plays a dialog on one stream and keeps what is answered, with the step that it came after.
//!
//! Decides how long to listen: until what is due has come, at most `patience`, and then a short `quiet`
//! in which an answer too many shows itself. Nothing sleeps where an answer is expected.

use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use envoy_types::pb::envoy::service::ext_proc::v3::ProcessingResponse;
use prost::Message as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::dialog::Step;

/// How long to listen after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Longest wait for what is due.
    pub patience: Duration,
    /// How long to listen for what nobody expects.
    pub quiet: Duration,
}

/// What the picker did, and after which step.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Index of the last step that was played before it came.
    pub after: usize,
    /// What it did.
    pub said: Said,
}

/// One thing that a picker does.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// A message.
    Message(Box<ProcessingResponse>),
    /// The end of the stream.
    End {
        /// Its gRPC status.
        code: Code,
        /// The text of the status.
        message: String,
    },
}

/// A stream in play. Dropping it resets the stream.
pub struct Play {
    to: Option<mpsc::UnboundedSender<Outgoing>>,
    from: mpsc::UnboundedReceiver<Said>,
    reading: JoinHandle<()>,
    answers: Vec<Answer>,
    ended: bool,
    at: usize,
}

impl Play {
    /// Opens a stream for a dialog of these steps.
    pub fn open(channel: &Channel, steps: &[Step]) -> Self {
        let (to, outgoing) = mpsc::unbounded_channel();
        let (heard, from) = mpsc::unbounded_channel();
        let deadline = steps.iter().find_map(|step| match step {
            Step::Deadline(limit) => Some(*limit),
            _ => None,
        });
        let call = call(channel.clone(), outgoing, heard.clone(), deadline);
        let reading = tokio::spawn(async move {
            let status = match deadline {
                None => call.await,
                Some(limit) => match timeout_at(Instant::now() + limit, call).await {
                    Ok(status) => status,
                    Err(_) => Status::deadline_exceeded("(client side)"),
                },
            };
            let end = Said::End { code: status.code(), message: status.message().to_owned() };
            // A play that is gone wants to hear nothing more.
            let _ = heard.send(end);
        });
        Self { to: Some(to), from, reading, answers: Vec::new(), ended: false, at: 0 }
    }

    /// What was answered so far.
    pub fn answers(&self) -> &[Answer] {
        &self.answers
    }

    /// What was answered, and whether the stream is still open.
    pub fn finish(mut self) -> (Vec<Answer>, bool) {
        (std::mem::take(&mut self.answers), !self.ended)
    }

    /// Plays one step and listens until `done` holds of all answers so far, and a quiet while longer.
    pub async fn step(
        &mut self,
        index: usize,
        step: &Step,
        pace: &Pace,
        done: impl Fn(&[Answer]) -> bool,
    ) {
        self.at = index;
        match step {
            Step::Say { message, times } => {
                for _ in 0..*times {
                    self.say(Outgoing::Message(message.clone()));
                }
            }
            Step::HalfClose => self.to = None,
            Step::Cancel => {
                // The reset goes out with the failing half; the other is given up here.
                self.say(Outgoing::Reset);
                self.reading.abort();
                let message = "(client side)".to_owned();
                self.hear(Said::End { code: Code::Cancelled, message });
            }
            Step::Wait(time) => self.listen(*time, |_| false).await,
            Step::Deadline(_) | Step::Event(_) => {}
        }
        self.listen(pace.patience, done).await;
        self.listen(pace.quiet, |_| false).await;
    }

    fn say(&mut self, message: Outgoing) {
        if let Some(to) = &self.to {
            // A stream that has ended takes no more; its end is among the answers.
            let _ = to.send(message);
        }
    }

    fn hear(&mut self, said: Said) {
        self.ended |= matches!(said, Said::End { .. });
        self.answers.push(Answer { after: self.at, said });
    }

    async fn listen(&mut self, limit: Duration, done: impl Fn(&[Answer]) -> bool) {
        let until = Instant::now() + limit;
        while !self.ended && !done(&self.answers) {
            match timeout_at(until, self.from.recv()).await {
                Ok(Some(said)) => self.hear(said),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

impl Drop for Play {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

async fn call(
    channel: Channel,
    outgoing: mpsc::UnboundedReceiver<Outgoing>,
    heard: mpsc::UnboundedSender<Said>,
    deadline: Option<Duration>,
) -> Status {
    let mut client = Grpc::new(channel).max_decoding_message_size(usize::MAX);
    if let Err(error) = client.ready().await {
        return Status::unavailable(error.to_string());
    }
    let mut request = Request::new(UnboundedReceiverStream::new(outgoing));
    if let Some(limit) = deadline {
        request.set_timeout(limit);
    }
    let path = PathAndQuery::from_static("/envoy.service.ext_proc.v3.ExternalProcessor/Process");
    // Some pickers send no response headers before their first answer, so this may take as long as it.
    let mut from = match client.streaming(request, path, Verbatim).await {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match from.message().await {
            Ok(Some(message)) => drop(heard.send(Said::Message(Box::new(message)))),
            Ok(None) => return Status::ok(""),
            Err(status) => return status,
        }
    }
}

enum Outgoing {
    Message(Bytes),
    /// Fails the sending half, which resets the stream.
    Reset,
}

/// Sends bytes as they are, so that what is no protobuf can be sent too.
#[derive(Clone, Copy)]
struct Verbatim;

impl Codec for Verbatim {
    type Encode = Outgoing;
    type Decode = ProcessingResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Verbatim {
    type Item = Outgoing;
    type Error = Status;

    fn encode(&mut self, item: Outgoing, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match item {
            Outgoing::Message(bytes) => {
                to.put(bytes);
                Ok(())
            }
            Outgoing::Reset => Err(Status::cancelled("the dialog resets the stream")),
        }
    }
}

impl Decoder for Verbatim {
    type Item = ProcessingResponse;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<ProcessingResponse>, Status> {
        ProcessingResponse::decode(from)
            .map(Some)
            .map_err(|error| Status::internal(format!("an answer that is no message: {error}")))
    }
}
