//! The real binary: how it starts, refuses to start, drains and ends; and what `check` answers.

mod check;
mod drain;
mod flags;
mod scores;
mod start;
mod tls;
