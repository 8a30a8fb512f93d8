//! Which rule holds, and how often each target is drawn.

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::SmallRng;

use super::*;

fn rng() -> SmallRng {
    SmallRng::seed_from_u64(11)
}

fn target(model: &str, weight: Option<u32>) -> Target {
    Target { model: model.to_owned(), weight }
}

fn exact(models: &[&str], to: &str) -> Rule {
    let models = models.iter().map(|model| (*model).to_owned()).collect();
    Rule { matches: Matches::Models(models), targets: vec![target(to, None)] }
}

fn generic(to: &str) -> Rule {
    Rule { matches: Matches::Any, targets: vec![target(to, None)] }
}

fn document(name: &str, created: Option<i64>, rules: Vec<Rule>) -> Rewrite {
    Rewrite { name: name.to_owned(), created, rules }
}

fn weighted(weights: &[Option<u32>]) -> Rewrites {
    let targets = weights.iter().enumerate().map(|(i, w)| target(&i.to_string(), *w)).collect();
    let rule = Rule { matches: Matches::Any, targets };
    Rewrites::new([document("w", None, vec![rule])])
}

/// Mutants: taking the older generic rule; the newest document; the last rule of a document.
#[test]
fn exact_then_oldest_then_name_then_order() {
    let rewrites = Rewrites::new([
        document("z", Some(5), vec![exact(&["m"], "z")]),
        document("a", Some(9), vec![exact(&["m", "n"], "a"), exact(&["n"], "a2")]),
        document("b", Some(9), vec![exact(&["n", "o"], "b")]),
        document("0", None, vec![exact(&["o", "p"], "unstamped")]),
        document("g", Some(1), vec![generic("g"), generic("g2")]),
    ]);
    let to = |model| rewrites.resolve(Some(model), None, &mut rng()).target.to_owned();
    assert_eq!(["m", "n", "o", "p", "q", "M"].map(to), ["z", "a", "b", "unstamped", "g", "g"]);
}

/// Mutant: keeping the first document of a name, or both.
#[test]
fn the_last_document_of_a_name_counts() {
    let rewrites = Rewrites::new([
        document("r", Some(1), vec![exact(&["m"], "old"), exact(&["n"], "old")]),
        document("r", Some(9), vec![exact(&["m"], "new")]),
    ]);
    assert_eq!(rewrites.resolve(Some("m"), None, &mut rng()).target, "new");
    assert_eq!(rewrites.resolve(Some("n"), None, &mut rng()).target, "n");
}

/// Mutants: the header before the rule; the rule asked for the header's model; an empty header as a
/// target; a missing model reported as unchanged.
#[test]
fn the_rule_overrides_the_header_and_looks_at_the_body() {
    let rewrites = Rewrites::new([document("r", None, vec![exact(&["m"], "v2")])]);
    let ask = |body, header| {
        let resolved = rewrites.resolve(body, header, &mut rng());
        (resolved.target.to_owned(), resolved.changed)
    };
    let is = |target: &str, changed| (target.to_owned(), changed);
    assert_eq!(ask(Some("m"), None), is("v2", true));
    assert_eq!(ask(Some("m"), Some("h")), is("v2", true));
    assert_eq!(ask(Some("x"), Some("m")), is("m", true));
    assert_eq!(ask(Some("x"), Some("")), is("x", false));
    assert_eq!(ask(Some("x"), Some("x")), is("x", false));
    assert_eq!(ask(Some("v2"), None), is("v2", false));
    assert_eq!(ask(None, Some("h")), is("h", true));
    assert_eq!(ask(None, None), is("", true));
    assert_eq!(ask(Some(""), None), is("", false));
}

/// Mutants: a rule without targets that is skipped; one without models that holds for all.
#[test]
fn a_rule_without_targets_blanks_and_one_without_models_is_dead() {
    let blank = Rule { matches: Matches::Models(vec!["m".to_owned()]), targets: Vec::new() };
    let rewrites = Rewrites::new([document("r", None, vec![blank, exact(&[], "never")])]);
    assert_eq!(rewrites.resolve(Some("m"), Some("h"), &mut rng()).target, "");
    assert_eq!(rewrites.resolve(Some("x"), None, &mut rng()).target, "x");
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Shares within two points of what the weights say. Mutants: `<=` for `<`, so that a target of
    /// weight 0 or none is drawn; uniform despite weights; the last target when nothing is weighted.
    #[test]
    fn targets_are_drawn_by_weight(
        weights in prop::collection::vec(
            prop_oneof![Just(None), Just(Some(0)), (1_u32..1_000_000).prop_map(Some)], 1..6,
        ),
        seed in any::<u64>(),
    ) {
        let rewrites = weighted(&weights);
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut counts = vec![0_u32; weights.len()];
        for _ in 0..10_000 {
            let drawn: usize = rewrites.resolve(Some("m"), None, &mut rng).target.parse().unwrap();
            counts[drawn] += 1;
        }
        let sum: f64 = weights.iter().flatten().map(|w| f64::from(*w)).sum();
        for (count, weight) in counts.iter().zip(&weights) {
            let share = match weight {
                _ if sum == 0.0 => 1.0 / weights.len() as f64,
                weight => f64::from(weight.unwrap_or(0)) / sum,
            };
            prop_assert!((f64::from(*count) / 1e4 - share).abs() < 0.02, "{:?}", counts);
            prop_assert!(share > 0.0 || *count == 0, "{:?}", counts);
        }
    }

    /// The order in which documents arrive decides nothing as long as names differ. Mutant: leaving
    /// out the sort by name.
    #[test]
    fn the_order_of_arrival_does_not_matter(
        documents in prop::collection::vec((0_i64..3, prop::collection::vec(0_u8..3, 1..3)), 1..8)
            .prop_shuffle(),
    ) {
        let build = |(index, (created, models)): (usize, &(i64, Vec<u8>))| {
            let models: Vec<String> = models.iter().map(u8::to_string).collect();
            let models: Vec<&str> = models.iter().map(String::as_str).collect();
            let created = (*created > 0).then_some(*created);
            document(&format!("d{index}"), created, vec![exact(&models, &format!("t{index}"))])
        };
        let forward = Rewrites::new(documents.iter().enumerate().map(build));
        let backward = Rewrites::new(documents.iter().enumerate().rev().map(build));
        prop_assert_eq!(forward, backward);
    }
}
