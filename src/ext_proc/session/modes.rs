//! The body modes that a gateway declares.
//!
//! Names them; what each asks of an answer is the session's.

/// How the gateway sends a body, as its `protocol_config` says; absent means full duplex.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyMode {
    /// No body is sent.
    None,
    /// Chunk by chunk, each waiting for its answer.
    Streamed,
    /// Whole, in one message.
    Buffered,
    /// Up to the gateway's buffer limit, in one message.
    BufferedPartial,
    /// Chunk by chunk, answers come when we like.
    #[default]
    FullDuplex,
    /// Framed gRPC messages; not spoken here.
    Grpc,
}

/// The modes of both directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Modes {
    /// From client to endpoint.
    pub request: BodyMode,
    /// From endpoint to client.
    pub response: BodyMode,
}
