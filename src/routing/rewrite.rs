//! Model rewrites: which model a request is sent on as.
//!
//! Decides which rule holds for a model name and which of its targets is drawn; whether a path has a
//! model at all is the request parser's decision, and editing the body the caller's. Weights are
//! plain shares without a unit, times are seconds since 1970.

use std::collections::BTreeMap;

use rand::Rng;

/// One document of rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rewrite {
    /// Its name; of two documents with one name the later one counts.
    pub name: String,
    /// When it was created, in seconds since 1970. `None` is newer than every time: a cluster would
    /// stamp the document the moment it is applied.
    pub created: Option<i64>,
    /// Its rules, the earlier one first.
    pub rules: Vec<Rule>,
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// For which models it holds.
    pub matches: Matches,
    /// What it may turn them into. Without any the model becomes empty, which refuses the request.
    pub targets: Vec<Target>,
}

/// The models for which a rule holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// All, a missing one too.
    Any,
    /// Exactly these, case counts. None of them: the rule never holds.
    Models(Vec<String>),
}

/// What a model is rewritten to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name sent on.
    pub model: String,
    /// Share among the targets of its rule. A target without one is never drawn beside one that has
    /// a share above 0; if none has, all are drawn equally often.
    pub weight: Option<u32>,
}

/// All rules in force, ready to be asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rewrites {
    exact: BTreeMap<String, InForce>,
    generic: Option<InForce>,
}

/// The one rule that holds for a model, or for all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InForce {
    /// The document that the rule comes from.
    pub document: String,
    /// Its targets.
    pub targets: Vec<Target>,
}

/// What a request is sent on as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The model. Empty: there is none, and the request is to be refused.
    pub target: &'a str,
    /// Whether the body must be edited, because it names another model or none.
    pub changed: bool,
}

impl Rewrites {
    /// Sorts out once which rule holds for which model: an exact match before a rule for all, then
    /// the oldest document, then its name, then the order within the document.
    pub fn new(documents: impl IntoIterator<Item = Rewrite>) -> Self {
        let by_name: BTreeMap<String, Rewrite> =
            documents.into_iter().map(|document| (document.name.clone(), document)).collect();
        let mut documents: Vec<Rewrite> = by_name.into_values().collect();
        // Stable, so equal times keep the order of the names.
        documents.sort_by_key(|document| (document.created.is_none(), document.created));
        let mut rewrites = Self::default();
        for Rewrite { name, rules, .. } in documents {
            for Rule { matches, targets } in rules {
                let rule = InForce { document: name.clone(), targets };
                match matches {
                    Matches::Any => _ = rewrites.generic.get_or_insert(rule),
                    Matches::Models(models) => {
                        for model in models {
                            rewrites.exact.entry(model).or_insert_with(|| rule.clone());
                        }
                    }
                }
            }
        }
        rewrites
    }

    /// Whether there is no rule at all.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.generic.is_none()
    }

    /// Every rule in force with the model it holds for, by name; `None` is the rule for all others.
    pub fn rules(&self) -> impl Iterator<Item = (Option<&str>, &InForce)> {
        let exact = self.exact.iter().map(|(model, rule)| (Some(model.as_str()), rule));
        exact.chain(self.generic.iter().map(|rule| (None, rule)))
    }

    /// The model that a request is sent on as: what the rule for the model of its body draws, else
    /// what its rewrite header asks for, else what its body says. An empty header is none. Rules are
    /// not chained, and they never look at the header.
    pub fn resolve<'a>(
        &'a self,
        body_model: Option<&'a str>,
        header_target: Option<&'a str>,
        rng: &mut impl Rng,
    ) -> Resolved<'a> {
        let incoming = body_model.unwrap_or_default();
        let target = match self.exact.get(incoming).or(self.generic.as_ref()) {
            Some(rule) => draw(&rule.targets, rng),
            None => header_target.filter(|target| !target.is_empty()).unwrap_or(incoming),
        };
        Resolved { target, changed: body_model != Some(target) }
    }
}

/// One of the targets by weight; without weights each with equal chance; empty without targets.
fn draw<'a>(targets: &'a [Target], rng: &mut impl Rng) -> &'a str {
    if let [only] = targets {
        return &only.model;
    }
    let weight = |target: &Target| u64::from(target.weight.unwrap_or(0));
    let sum: u64 = targets.iter().map(weight).sum();
    let drawn = match (targets.len(), sum) {
        (0, _) => None,
        (count, 0) => targets.get(rng.random_range(0..count)),
        (_, sum) => {
            let mut left = rng.random_range(0..sum);
            targets.iter().find(|target| {
                let share = weight(target);
                let here = left < share;
                left = left.saturating_sub(share);
                here
            })
        }
    };
    drawn.map_or("", |target| &target.model)
}

#[cfg(test)]
mod tests;
