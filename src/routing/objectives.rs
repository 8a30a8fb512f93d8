//! Objectives: how important a request is, by the name that it carries.
//!
//! Decides that an unknown name and one without a priority are 0. What a priority does is decided by
//! those who ask: higher is more important, negative may be shed.

use std::collections::BTreeMap;

/// Priorities by the name of the objective.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Objectives(BTreeMap<String, i32>);

impl Objectives {
    /// Of several with one name the last counts; `None` is 0.
    pub fn new(objectives: impl IntoIterator<Item = (String, Option<i32>)>) -> Self {
        Self(objectives.into_iter().map(|(name, p)| (name, p.unwrap_or(0))).collect())
    }

    /// The priority of a request that names this objective.
    pub fn priority(&self, name: Option<&str>) -> i32 {
        name.and_then(|name| self.0.get(name)).copied().unwrap_or(0)
    }

    /// Name and priority of each, by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, i32)> {
        self.0.iter().map(|(name, priority)| (name.as_str(), *priority))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: an unknown name as the lowest priority, or the first of a name.
    #[test]
    fn unknown_and_unset_are_zero() {
        let given = [("shed", Some(-1)), ("unset", None), ("twice", Some(3)), ("twice", Some(4))];
        let objectives = Objectives::new(given.map(|(name, p)| (name.to_owned(), p)));
        let ask = |name| objectives.priority(name);
        assert_eq!(
            [Some("shed"), Some("unset"), Some("twice"), Some("Shed"), None].map(ask),
            [-1, 0, 4, 0, 0]
        );
        assert_eq!(objectives.iter().len(), 3);
    }
}
