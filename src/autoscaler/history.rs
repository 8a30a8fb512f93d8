//! What was planned lately, for those who look: the newest input with its memory, and the last plans.
//!
//! Decides how much is kept. Times are RFC 3339 and milliseconds of the loop's clock.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;

use crate::scaling::input::Input;
use crate::scaling::learned::Learned;
use crate::scaling::plan::Plan;

/// Plans that are kept: two minutes of one a second.
const KEPT: usize = 120;

/// One plan and when it was made.
#[derive(Debug, Clone, Serialize)]
pub struct Made {
    /// RFC 3339.
    pub at: String,
    /// What made it: `start`, `interval`, `policy`, `membership`, `saturation`, `held`,
    /// `variants` or `standing`.
    pub trigger: &'static str,
    /// The plan.
    #[serde(flatten)]
    pub plan: Plan,
}

/// Everything that the newest plan was made from; `plumbline plan --input` reads it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// Readings and variants.
    #[serde(flatten)]
    pub input: Input,
    /// The memory that went in.
    pub learned: Learned,
    /// The present of that plan.
    pub now_millis: u64,
}

#[derive(Debug, Default)]
struct Kept {
    plans: VecDeque<Arc<Made>>,
    snapshot: Option<Arc<Snapshot>>,
    strangers: Vec<String>,
    fault: Option<String>,
}

/// Shared between the loop and the pages; a clone is the same history.
#[derive(Debug, Clone, Default)]
pub struct History(Arc<Mutex<Kept>>);

impl History {
    /// Keeps a plan, what it was made from, and the endpoints that no variant has.
    pub(super) fn keep(&self, made: Made, snapshot: Snapshot, strangers: Vec<String>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.plans.push_back(Arc::new(made));
        if kept.plans.len() > KEPT {
            kept.plans.pop_front();
        }
        kept.snapshot = Some(Arc::new(snapshot));
        kept.strangers = strangers;
    }

    /// Notes why no plan can be made, or that one can; returns a reason that is new.
    pub(super) fn fault(&self, fault: Option<String>) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let news = fault.clone().filter(|fault| kept.fault.as_ref() != Some(fault));
        kept.fault = fault;
        news
    }

    /// Why no plan can be made now.
    pub fn why_none(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).fault.clone()
    }

    /// The last plans, oldest first.
    pub fn plans(&self) -> Vec<Arc<Made>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.plans.iter().cloned().collect()
    }

    /// The newest plan.
    pub fn newest(&self) -> Option<Arc<Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).plans.back().cloned()
    }

    /// What the newest plan was made from.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).snapshot.clone()
    }

    /// Endpoints that no variant has.
    pub fn strangers(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).strangers.clone()
    }
}
