//! The scaling loop's surroundings: what must not run inside it.
//!
//! The core plans on values; here is the part of a run that takes time of its own.

pub mod beside;
