//! Scenarios of the reference that no recorded case has, and what an unknown reading does.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::super::input::{ModelInput, Replica, Role, Variant};
use super::{SpareAnalysis, SpareLine, analyze};
use crate::thresholds::{Draft, Thresholds};

const LINE: SpareLine =
    SpareLine { kv: 0.8, queue: 5.0, kv_trigger: 0.1, queue_trigger: 3.0, endless_triggers: true };

fn row(variant: &str, n: usize, kv: Option<f64>, queue: Option<f64>) -> Replica {
    let (variant, pod) = (variant.to_owned(), format!("{variant}-{n}"));
    Replica { variant, pod, kv, queue, ..Replica::default() }
}

fn rows(of: &[(f64, f64)]) -> ModelInput {
    let replicas = of.iter().enumerate().map(|(n, (kv, q))| row("v", n, Some(*kv), Some(*q)));
    ModelInput { replicas: replicas.collect(), ..ModelInput::default() }
}

fn whole(model: &ModelInput, line: &SpareLine) -> SpareAnalysis {
    analyze(model, line, 30.0).remove(&Role::Both).unwrap_or_default()
}

/// Rows of the reference's table of V1 analyses: replicas, non-saturated, both means, up, safe.
/// Mutants: saturated replicas in a mean; `<=` for the strict trigger; the load not moved to fewer.
#[test]
fn the_table_of_the_reference() {
    type Row = (&'static [(f64, f64)], u32, f64, f64, bool, bool);
    let table: &[Row] = &[
        (&[(0.65, 0.0), (0.72, 0.0)], 2, 0.115, 5.0, false, false),
        (&[(0.65, 0.0), (0.76, 0.0)], 2, 0.095, 5.0, true, false),
        (&[(0.65, 0.0), (0.75, 0.0)], 2, 0.10, 5.0, false, false),
        (&[(0.75, 2.0), (0.76, 2.0)], 2, 0.045, 3.0, true, false),
        (&[(0.5, 3.0), (0.5, 3.0)], 2, 0.30, 2.0, true, false),
        (&[(0.5, 1.0), (0.5, 1.0)], 2, 0.30, 4.0, false, false),
        (&[(0.2, 1.0), (0.3, 1.0), (0.25, 1.0)], 3, 0.55, 4.0, false, true),
        (&[(0.7, 2.0), (0.75, 2.0)], 2, 0.075, 3.0, true, false),
        (&[(0.5, 2.0)], 1, 0.30, 3.0, false, false),
        (&[(0.85, 2.0), (0.5, 6.0), (0.6, 2.0)], 1, 0.20, 3.0, false, false),
        (&[(0.85, 2.0), (0.5, 6.0), (0.9, 7.0)], 0, 0.0, 0.0, true, false),
        (&[(0.8, 0.0), (0.1, 0.0), (0.1, 0.0)], 2, 0.70, 5.0, false, true),
        (&[(0.1, 5.0), (0.1, 0.0)], 1, 0.70, 5.0, false, false),
        (&[(0.3, 1.0), (0.3, 1.0)], 2, 0.50, 4.0, false, true),
        (&[(0.5, 1.0), (0.5, 1.0), (0.5, 1.0)], 3, 0.30, 4.0, false, false),
        (&[(0.35, 0.0), (0.35, 0.0)], 2, 0.45, 5.0, false, true),
        (&[], 0, 0.0, 0.0, false, false),
    ];
    for (replicas, non_saturated, kv, queue, up, safe) in table {
        let seen = whole(&rows(replicas), &LINE);
        let near =
            (seen.avg_spare_kv - kv).abs() < 1e-9 && (seen.avg_spare_queue - queue).abs() < 1e-9;
        assert!(near, "{replicas:?}: {seen:?}");
        let signals = (seen.non_saturated, seen.scale_up, seen.scale_down_safe);
        assert_eq!(signals, (*non_saturated, *up, *safe), "{replicas:?}: {seen:?}");
    }
}

/// Vectors 17b and 18. Mutants: the mean of the variants' means; no rule for a saturated scope.
#[test]
fn variants_weigh_by_their_replicas_and_no_trigger_freezes_a_saturated_scope() {
    let replicas = vec![
        row("v1", 0, Some(0.70), Some(2.0)),
        row("v1", 1, Some(0.75), Some(3.0)),
        row("v2", 0, Some(0.60), Some(1.0)),
        row("v2", 1, Some(0.65), Some(2.0)),
        row("v2", 2, Some(0.65), Some(2.0)),
    ];
    let seen = whole(&ModelInput { replicas, ..ModelInput::default() }, &LINE);
    assert!((seen.avg_spare_kv - 0.13).abs() < 1e-9 && (seen.avg_spare_queue - 3.0).abs() < 1e-9);
    let zero = SpareLine { kv: 0.0, queue: 0.0, kv_trigger: 0.0, queue_trigger: 0.0, ..LINE };
    let seen = whole(&rows(&[(0.1, 0.0), (0.2, 0.0)]), &zero);
    assert!(seen.scale_up && !seen.reason.is_empty(), "{seen:?}");
}

/// Mutants: a missing reading as 0; a replica without one reading left out whole.
#[test]
fn an_unknown_reading_blocks_the_fall_and_not_the_rise() {
    let with = |extra: Replica, base: &[(f64, f64)]| {
        let mut model = rows(base);
        model.replicas.push(extra);
        whole(&model, &LINE)
    };
    let idle: &[(f64, f64)] = &[(0.1, 0.0), (0.1, 0.0), (0.1, 0.0)];
    assert!(whole(&rows(idle), &LINE).scale_down_safe);
    let unread = row("w", 0, None, None);
    let stale = Replica { age_seconds: 30.1, ..row("w", 0, Some(0.1), Some(0.0)) };
    for unknown in [unread.clone(), stale, row("w", 0, Some(f64::NAN), Some(0.0))] {
        let seen = with(unknown, idle);
        assert_eq!((seen.unknown, seen.scale_down_safe, seen.scale_up), (1, false, false));
    }
    let long_queue = with(row("w", 0, None, Some(4.9)), &[(0.1, 4.0)]);
    assert!(long_queue.scale_up, "{long_queue:?}");
    let at_the_line = with(unread, &[(0.9, 0.0)]);
    assert!(at_the_line.scale_up, "{at_the_line:?}");
    let nothing = ModelInput { replicas: vec![row("w", 0, None, None)], ..ModelInput::default() };
    assert!(!whole(&nothing, &LINE).scale_up);
}

/// Mutant: an unmapped signal as unknown.
#[test]
fn a_signal_that_the_engine_does_not_have_takes_no_part() {
    let mut model = rows(&[(0.0, 0.0), (0.0, 0.0)]);
    for replica in &mut model.replicas {
        (replica.kv, replica.kv_unmapped) = (None, true);
    }
    let seen = whole(&model, &LINE);
    assert_eq!((seen.non_saturated, seen.scale_down_safe, seen.scale_up), (2, true, false));
    for replica in &mut model.replicas {
        (replica.queue, replica.queue_unmapped) = (None, true);
    }
    let seen = whole(&model, &LINE);
    assert_eq!((seen.non_saturated, seen.scale_down_safe, seen.scale_up), (0, false, false));
}

/// Mutants: the chosen line with the exemption; the fallback without it.
#[test]
fn a_trigger_at_its_threshold_counts_only_where_v1_was_chosen() {
    let draft = Draft {
        queue_depth: 3.0,
        kv_cache_util: 0.7,
        queue_spare_trigger: 5.0,
        kv_spare_trigger: 0.2,
        ..Draft::default()
    };
    let line = Thresholds::try_new(draft).unwrap();
    let idle = rows(&[(0.0, 0.0), (0.0, 0.0)]);
    let chosen = SpareLine::chosen(&line);
    assert_eq!(chosen.endless(), ["queueSpareTrigger"]);
    assert!(whole(&idle, &chosen).scale_up);
    let fallback = whole(&idle, &SpareLine::fallback(&line));
    assert!(!fallback.scale_up && fallback.scale_down_safe, "{fallback:?}");
    let full = whole(&rows(&[(0.9, 9.0)]), &SpareLine::fallback(&line));
    assert!(full.scale_up, "{full:?}");
    let equal = Draft { queue_spare_trigger: 5.0, ..Draft::default() };
    let equal = SpareLine::fallback(&Thresholds::try_new(equal).unwrap());
    assert!(!whole(&rows(&[(0.0, 1.0), (0.0, 1.0)]), &equal).scale_up);
}

/// Mutant: all replicas in one scope.
#[test]
fn roles_are_scopes_of_their_own() {
    let variant = |name: &str, role| Variant { name: name.to_owned(), role, ..Variant::default() };
    let model = ModelInput {
        variants: vec![variant("p", Role::Prefill), variant("d", Role::Decode)],
        replicas: vec![
            row("p", 0, Some(0.9), Some(9.0)),
            row("d", 0, Some(0.1), Some(0.0)),
            row("d", 1, Some(0.1), Some(0.0)),
        ],
        ..ModelInput::default()
    };
    let scopes: BTreeMap<Role, (bool, bool)> = analyze(&model, &LINE, 30.0)
        .into_iter()
        .map(|(role, seen)| (role, (seen.scale_up, seen.scale_down_safe)))
        .collect();
    assert_eq!(scopes[&Role::Prefill], (true, false));
    assert_eq!(scopes[&Role::Decode], (false, true));
    assert_eq!(scopes.len(), 2);
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutant: `model.replicas` for `replicas_in_order()`.
    #[test]
    fn a_permutation_changes_nothing_to_the_bit(
        (rows, shuffled) in proptest::collection::vec((0..3_u8, 0.0..1.1, 0.0..7.0), 0..12)
            .prop_flat_map(|rows| (Just(rows.clone()), Just(rows).prop_shuffle()))
    ) {
        let model = |rows: &[(u8, f64, f64)]| ModelInput {
            replicas: rows
                .iter()
                .map(|(v, kv, q)| row(&format!("v{v}"), 0, Some(*kv), Some(*q)))
                .collect(),
            ..ModelInput::default()
        };
        prop_assert_eq!(whole(&model(&rows), &LINE), whole(&model(&shuffled), &LINE));
    }
}
