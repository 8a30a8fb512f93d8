//! The one integration binary: every module here runs the real parts it names.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod corpus;
mod demo;
mod exposition;
mod layering;
mod licences;
mod sim;
mod vectors;
