//! The integration binary of a cluster: a real Kubernetes API server, real controllers, the real Plumbline.
//!
//! `make test-kube` builds the server and runs this; plain `cargo test` does not.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used)]

mod api;
mod cluster;
mod hpa;
mod keys;

/// What the other integration binary has for a world without a cluster.
#[path = "../it"]
#[allow(dead_code, unused_imports)]
mod it {
    pub mod harness;
}
use it::harness;
