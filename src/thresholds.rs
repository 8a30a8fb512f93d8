//! THE line: the one set of numbers that routing and scaling both read, and the questions asked of it.
//!
//! Decides which combinations are contradictions and where "at the line" begins. Does not know where a
//! number came from (that is `config`) nor what is done about an answer. Queue depths are requests,
//! KV-cache use and the bounds are fractions, staleness is a duration.

use std::fmt;
use std::time::Duration;

/// Names of the thresholds as users write them; where routing and scaling have a name each, the
/// routing name.
pub const NAMES: [&str; 8] = [
    "queueDepthThreshold",
    "kvCacheUtilThreshold",
    "metricsStalenessThreshold",
    "headroom",
    "kvSpareTrigger",
    "queueSpareTrigger",
    "scaleUpThreshold",
    "scaleDownBoundary",
];

/// Unchecked numbers on their way to [`Thresholds::try_new`]; the default is the built-in layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draft {
    /// Waiting requests at which an endpoint is saturated; > 0. Seed default 5.
    pub queue_depth: f64,
    /// KV-cache use at which an endpoint is saturated; in (0, 1]. Seed default 0.8.
    pub kv_cache_util: f64,
    /// Age above which a reading is stale; > 0. Seed default 200 ms.
    pub staleness: Duration,
    /// Burst above the line that the filter allows, as a fraction; >= 0. Seed default 0.
    pub headroom: f64,
    /// Mean spare KV-cache use below which V1 adds a replica; in [0, 1]. Seed default 0.10.
    pub kv_spare_trigger: f64,
    /// Mean spare queue depth below which V1 adds a replica; >= 0. Seed default 3.
    pub queue_spare_trigger: f64,
    /// Demand over supply above which V2 scales up; in (0, 1]. Seed default 0.85.
    pub scale_up_threshold: f64,
    /// Demand over supply below which V2 scales down; in (0, 1]. Seed default 0.70.
    pub scale_down_boundary: f64,
}

impl Default for Draft {
    fn default() -> Self {
        Self {
            queue_depth: 5.0,
            kv_cache_util: 0.8,
            staleness: Duration::from_millis(200),
            headroom: 0.0,
            kv_spare_trigger: 0.10,
            queue_spare_trigger: 3.0,
            scale_up_threshold: 0.85,
            scale_down_boundary: 0.70,
        }
    }
}

/// One rule that a set of numbers breaks: the field by its user-facing name, and the rule with the
/// number in it.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// A name of [`NAMES`].
    pub field: &'static str,
    /// The rule and what was given instead.
    pub rule: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.rule)
    }
}

/// A set of numbers without contradictions. Cheap to copy; the default is the built-in layer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Thresholds(Draft);

impl Thresholds {
    /// Checks every range and every cross-field rule of the two seed documents.
    ///
    /// # Errors
    /// All violations at once, in the order of [`NAMES`], cross-field rules last.
    pub fn try_new(draft: Draft) -> Result<Self, Vec<Violation>> {
        let mut broken = range_violations(&draft);
        let d = &draft;
        if d.kv_cache_util < d.kv_spare_trigger {
            broken.push(Violation {
                field: "kvCacheUtilThreshold",
                rule: format!(
                    "({:.2}) should be >= kvSpareTrigger ({:.2})",
                    d.kv_cache_util, d.kv_spare_trigger
                ),
            });
        }
        if d.scale_up_threshold <= d.scale_down_boundary {
            broken.push(Violation {
                field: "scaleUpThreshold",
                rule: format!(
                    "({:.2}) must be > scaleDownBoundary ({:.2})",
                    d.scale_up_threshold, d.scale_down_boundary
                ),
            });
        }
        if broken.is_empty() { Ok(Self(draft)) } else { Err(broken) }
    }

    /// Waiting requests at which an endpoint is saturated; > 0.
    pub fn queue_depth(&self) -> f64 {
        self.0.queue_depth
    }

    /// KV-cache use at which an endpoint is saturated; in (0, 1].
    pub fn kv_cache_util(&self) -> f64 {
        self.0.kv_cache_util
    }

    /// Age above which a reading is stale.
    pub fn staleness(&self) -> Duration {
        self.0.staleness
    }

    /// Allowed burst above the line, as a fraction.
    pub fn headroom(&self) -> f64 {
        self.0.headroom
    }

    /// The numbers, for those who print or hash them.
    pub fn numbers(&self) -> Draft {
        self.0
    }

    /// How far `waiting` requests are up the queue roof: 1.0 is at the line, no upper bound.
    pub fn queue_ratio(&self, waiting: f64) -> f64 {
        waiting / self.0.queue_depth
    }

    /// How far a KV-cache use is up the memory roof: 1.0 is at the line, no upper bound.
    pub fn kv_ratio(&self, kv: f64) -> f64 {
        kv / self.0.kv_cache_util
    }

    /// The filter's queue limit, `QueueThreshold * (1 + Headroom)`; an endpoint must stay below it.
    pub fn queue_limit(&self) -> f64 {
        self.0.queue_depth * (1.0 + self.0.headroom)
    }

    /// The filter's KV limit, `min(1.0, KVCacheThreshold * (1 + Headroom))`; an endpoint must stay
    /// below it.
    pub fn kv_limit(&self) -> f64 {
        (self.0.kv_cache_util * (1.0 + self.0.headroom)).min(1.0)
    }
}

/// The rules that look at one number each. A NaN breaks every one of them.
pub fn range_violations(d: &Draft) -> Vec<Violation> {
    let in_unit = |v: f64| v > 0.0 && v <= 1.0;
    let zero_to_one = |v: f64| (0.0..=1.0).contains(&v);
    let at_least_zero = |v: f64| v >= 0.0 && v.is_finite();
    let checks: [(&'static str, bool, String); 8] = [
        (
            NAMES[0],
            d.queue_depth > 0.0 && d.queue_depth.is_finite(),
            format!("must be strictly positive, got {}", d.queue_depth),
        ),
        (
            NAMES[1],
            in_unit(d.kv_cache_util),
            format!("must be in (0.0, 1.0], got {:.6}", d.kv_cache_util),
        ),
        (NAMES[2], !d.staleness.is_zero(), "must be strictly positive, got 0s".to_owned()),
        (
            NAMES[3],
            at_least_zero(d.headroom),
            format!("must be a non-negative value, got {:.6}", d.headroom),
        ),
        (
            NAMES[4],
            zero_to_one(d.kv_spare_trigger),
            format!("must be between 0 and 1, got {:.2}", d.kv_spare_trigger),
        ),
        (
            NAMES[5],
            at_least_zero(d.queue_spare_trigger),
            format!("must be >= 0, got {:.1}", d.queue_spare_trigger),
        ),
        (
            NAMES[6],
            in_unit(d.scale_up_threshold),
            format!("must be in (0, 1], got {:.2}", d.scale_up_threshold),
        ),
        (
            NAMES[7],
            in_unit(d.scale_down_boundary),
            format!("must be in (0, 1], got {:.2}", d.scale_down_boundary),
        ),
    ];
    checks
        .into_iter()
        .filter(|(_, holds, _)| !holds)
        .map(|(field, _, rule)| Violation { field, rule })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(draft: Draft) -> Vec<&'static str> {
        Thresholds::try_new(draft)
            .map_or_else(|broken| broken.iter().map(|v| v.field).collect(), |_| Vec::new())
    }

    /// Mutant: any comparison of `range_violations` turned round.
    #[test]
    fn every_violation_is_reported_at_once() {
        let all_wrong = Draft {
            queue_depth: 0.0,
            kv_cache_util: 1.01,
            staleness: Duration::ZERO,
            headroom: -0.1,
            kv_spare_trigger: 1.5,
            queue_spare_trigger: f64::NAN,
            scale_up_threshold: 0.0,
            scale_down_boundary: 2.0,
        };
        let named = fields(all_wrong);
        assert_eq!(named[..8], NAMES);
        assert_eq!(named.len(), 10, "and both cross-field rules: {named:?}");
    }

    /// Mutant: `<=` for `<` in either cross-field rule.
    #[test]
    fn cross_field_rules_allow_the_border_that_the_seed_allows() {
        let spare = |kv, trigger| {
            fields(Draft { kv_cache_util: kv, kv_spare_trigger: trigger, ..Draft::default() })
        };
        assert_eq!(spare(0.5, 0.5), [""; 0]);
        assert_eq!(spare(0.5, 0.6), ["kvCacheUtilThreshold"]);
        let bounds = |up, down| {
            fields(Draft { scale_up_threshold: up, scale_down_boundary: down, ..Draft::default() })
        };
        assert_eq!(bounds(0.7, 0.7), ["scaleUpThreshold"]);
        assert_eq!(bounds(0.71, 0.7), [""; 0]);
    }

    /// Mutant: leaving out the cap, as the Go code does.
    #[test]
    fn the_kv_limit_is_capped_at_one() {
        let wide = Thresholds::try_new(Draft { headroom: 0.5, ..Draft::default() }).unwrap();
        assert_eq!(wide.kv_limit(), 1.0);
        assert_eq!(wide.queue_limit(), 7.5);
    }
}
