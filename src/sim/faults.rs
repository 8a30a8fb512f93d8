//! What can go wrong on purpose: kinds of faults, and which request suffers one.
//!
//! Decides by a seeded draw; carries nothing out (`http` does). Delays are milliseconds, ratios
//! fractions of 1.

use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

/// A fault and how often it strikes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fault {
    /// What happens.
    pub kind: FaultKind,
    /// Share of requests that suffer it, in [0, 1].
    pub ratio: f64,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultKind {
    /// It is served after a delay.
    Slow {
        /// The delay, milliseconds.
        delay_ms: u64,
    },
    /// It is answered with an error of this status.
    Status {
        /// HTTP status in [200, 599].
        code: u16,
    },
    /// It is never answered.
    Hang,
    /// HTTP/1.1: its connection is closed without an answer. HTTP/2: its stream is reset.
    Drop,
}

impl Fault {
    /// In the form that `POST /admin/set` reads.
    pub(super) fn json(self) -> Value {
        let ratio = self.ratio;
        match self.kind {
            FaultKind::Slow { delay_ms } => {
                json!({"kind": "slow", "delay_ms": delay_ms, "ratio": ratio})
            }
            FaultKind::Status { code } => json!({"kind": "status", "code": code, "ratio": ratio}),
            FaultKind::Hang => json!({"kind": "hang", "ratio": ratio}),
            FaultKind::Drop => json!({"kind": "drop", "ratio": ratio}),
        }
    }
}

/// How `/metrics` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MetricsMode {
    /// With the page.
    #[default]
    Ok,
    /// With status 500.
    Error,
    /// Never.
    Hang,
    /// 200 with an empty body.
    Empty,
    /// 200 with bytes that are no metrics.
    Garbage,
}

impl MetricsMode {
    /// The names, in the order of the variants.
    pub const NAMES: [&'static str; 5] = ["ok", "500", "hang", "empty", "garbage"];

    /// The mode called `name`.
    pub fn named(name: &str) -> Option<Self> {
        let modes = [Self::Ok, Self::Error, Self::Hang, Self::Empty, Self::Garbage];
        modes.into_iter().find(|mode| mode.name() == name)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// The seeded draw.
#[derive(Debug)]
pub(super) struct Dice(SmallRng);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// The fault that the next request suffers. Ratios of 0 and 1 are exact.
    pub(super) fn strike(&mut self, fault: Option<Fault>) -> Option<FaultKind> {
        let fault = fault?;
        (self.0.random::<f64>() < fault.ratio).then_some(fault.kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strikes(seed: u64, ratio: f64) -> Vec<bool> {
        let mut dice = Dice::new(seed);
        let fault = Some(Fault { kind: FaultKind::Hang, ratio });
        (0..400).map(|_| dice.strike(fault).is_some()).collect()
    }

    /// Mutants: `<=` strikes at ratio 0 only by luck, but `>` swaps the shares; an unseeded draw
    /// differs between the two runs.
    #[test]
    fn the_share_is_kept_and_the_seed_repeats() {
        assert!(strikes(1, 1.0).iter().all(|hit| *hit));
        assert!(!strikes(1, 0.0).iter().any(|hit| *hit));
        let quarter = strikes(1, 0.25).iter().filter(|hit| **hit).count();
        assert!((60..140).contains(&quarter), "{quarter}");
        assert_eq!(strikes(5, 0.5), strikes(5, 0.5));
        assert_ne!(strikes(5, 0.5), strikes(6, 0.5));
    }

    #[test]
    fn every_mode_is_found_by_its_name() {
        for name in MetricsMode::NAMES {
            assert_eq!(MetricsMode::named(name).map(MetricsMode::name), Some(name));
        }
    }
}
