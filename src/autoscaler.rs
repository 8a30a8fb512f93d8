//! The scaling loop's outside: what it looks at, what must not run inside it, and what it published
//! for everybody who tells it on.
//!
//! Decides when a plan is made and what stands for a replica in it; the plan is decided by `scaling`.
//! Times are milliseconds of the loop's own clock.

pub mod beside;
mod cadence;
mod counter;
mod gather;
pub mod history;
mod inert;
pub mod live;
mod observer;
pub mod published;

#[cfg(test)]
mod tests;

pub use history::History;
pub use live::{Autoscaler, Pace, Sources, Subject};
pub use published::{Published, Standing};
