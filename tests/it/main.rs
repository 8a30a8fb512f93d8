//! The integration binary that needs no cluster: every module here runs the real parts it names.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod conformance;
mod corpus;
mod demo;
mod envoy;
mod examples;
mod exposition;
mod ext_proc;
mod golden;
mod harness;
mod layering;
mod licences;
mod plan;
mod process;
mod prometheus;
mod scaling;
mod scrape;
mod sim;
mod vectors;
mod wva_analysis;
mod wva_decision;
