//! Plumbline: an endpoint picker and scaling loop for LLM inference pools.
//!
//! The modules stand in reading order, from the shell down to the adapters; `ARCHITECTURE.md` draws
//! the picture. Imports point down only, and `tests/it/layering.rs` fails on one that does not.

// Vocabulary: plain values.
pub mod endpoint;
pub mod units;

// Adapters in.
pub mod discovery;
