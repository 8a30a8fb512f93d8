//! The scaling loop's outside: what must not run inside it, and what it published for everybody
//! who tells it on.

pub mod beside;
pub mod published;

pub use published::{Published, Standing};
