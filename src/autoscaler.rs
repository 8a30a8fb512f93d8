//! The scaling loop's outside: what it published, for everybody who tells it on.

pub mod published;

pub use published::{Published, Standing};
