//! The `plumbline` binary.
#![allow(missing_docs)]

fn main() {}
