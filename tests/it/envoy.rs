//! The whole path: a real Envoy, a real picker, simulated servers; both kinds of cluster.
//!
//! Every check runs against the ORIGINAL_DST listener and the override_host listener of one Envoy.

mod failures;
mod guards;
mod in_flight;
mod passing;
mod reloading;
mod rewriting;
mod steering;
mod waiting;
