//! The pool: which endpoints exist now, and a view of them with the load read once.
//!
//! Decides order (by id, so that equal sets give equal answers) and lookup; who may change membership
//! is `store`'s business. A view is frozen: decisions on it replay in a test.

use std::fmt;
use std::sync::Arc;

use crate::endpoint::{Endpoint, Load};

/// The place of an endpoint's load cell. Stays the same as long as the endpoint is a member, and
/// until its last in-flight request ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub u32);

/// One member of the pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// What discovery said.
    pub endpoint: Endpoint,
    /// Where its load is kept.
    pub slot: Slot,
    /// The address as the destination header spells it, `ip:port` or `[v6]:port`.
    pub destination: Arc<str>,
}

/// A membership snapshot, in the order of the ids.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Pool {
    /// Rises by one with every change of membership.
    pub generation: u64,
    /// Ordered by id, each id once.
    pub members: Vec<Member>,
}

/// What one decision reads: the members and, index by index, their loads at one instant.
#[derive(Debug, Clone, Copy)]
pub struct PoolView<'a> {
    /// The members, ordered by id.
    pub members: &'a [Member],
    /// The load of `members[i]` at index `i`; never shorter than `members`.
    pub loads: &'a [Load],
}

/// How a cluster calls the pool: the key of its `InferencePool` object.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PoolName {
    /// API group of the object.
    pub group: String,
    /// Namespace of the object.
    pub namespace: String,
    /// Name of the object; `None` for a pool that no cluster knows.
    pub name: Option<String>,
}

impl fmt::Display for PoolName {
    /// `namespace/name`; a pool without a name is its namespace and a dash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name.as_deref().unwrap_or("-"))
    }
}
