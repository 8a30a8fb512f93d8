//! Which analyzers there are, and in which order they run.
//!
//! Decides that a name is taken once, that the set is closed before the first run, and what a
//! configuration names that does not exist. `saturation` is in from the start: it runs first and alone
//! decides. Runs nothing itself; [`run`] is one isolated call for whoever does.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::analyzer::{Analyzer, AnalyzerInput, AnalyzerResult, Memory, SATURATION};
use super::learned::Learned;
use super::plan::Step;
use super::throughput::Throughput;

/// Longest time that the loop grants an analyzer besides `saturation` before it counts as overdue.
pub const BUDGET: Duration = Duration::from_millis(100);

/// Why an analyzer was not registered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The name is taken.
    #[error("analyzer {0:?} is already registered")]
    Duplicate(String),
    /// The loop has started, and a plan must not change its analyzers between two runs.
    #[error("analyzer {0:?} comes too late: the scaling loop has started")]
    Late(String),
}

/// The analyzers besides `saturation`, in the order in which they were registered.
#[derive(Clone, Default)]
pub struct Registry {
    analyzers: Vec<Arc<dyn Analyzer>>,
    started: bool,
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").field("names", &self.names()).finish_non_exhaustive()
    }
}

impl Registry {
    /// `saturation` alone.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the program itself brings: `saturation`, then `throughput`.
    pub fn built_in() -> Self {
        Self { analyzers: vec![Arc::new(Throughput)], started: false }
    }

    /// Adds an analyzer behind those that are in.
    ///
    /// # Errors
    /// [`RegisterError`] where the name is taken or the loop has started; nothing changes then.
    pub fn register(&mut self, analyzer: Arc<dyn Analyzer>) -> Result<(), RegisterError> {
        let name = analyzer.name().to_owned();
        if self.started {
            return Err(RegisterError::Late(name));
        }
        if self.names().contains(&name.as_str()) {
            return Err(RegisterError::Duplicate(name));
        }
        self.analyzers.push(analyzer);
        Ok(())
    }

    /// Closes the set; the loop calls it before its first run.
    pub fn start(&mut self) {
        self.started = true;
    }

    /// All names in order of processing.
    pub fn names(&self) -> Vec<&str> {
        std::iter::once(SATURATION).chain(self.analyzers.iter().map(|a| a.name())).collect()
    }

    /// The analyzers besides `saturation`, in order of processing.
    pub fn others(&self) -> &[Arc<dyn Analyzer>] {
        &self.analyzers
    }

    /// The configured names that nobody registered, in their order: each deserves a warning.
    pub fn unknown<'n>(&self, configured: impl IntoIterator<Item = &'n str>) -> Vec<&'n str> {
        let known = self.names();
        configured.into_iter().filter(|name| !known.contains(name)).collect()
    }
}

/// One call, in which an error or a panic costs this result and nothing else. On either, the memory
/// is as it was: half of a run is worth nothing.
///
/// # Errors
/// The analyzer's own text, or that it panicked and with what.
pub fn run(
    analyzer: &dyn Analyzer,
    input: &AnalyzerInput<'_>,
    memory: &mut Memory,
) -> Result<AnalyzerResult, String> {
    let mut after = memory.clone();
    let outcome = catch_unwind(AssertUnwindSafe(|| analyzer.analyze(input, &mut after)));
    let result = match outcome {
        Ok(result) => result?,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
            return Err(format!("panicked: {}", text.unwrap_or_else(|| "no text".to_owned())));
        }
    };
    *memory = after;
    Ok(result)
}

/// Runs every analyzer besides `saturation` on one model, in order, on the spot: for who plans from a
/// document. A loop runs them beside itself instead.
pub fn run_others(
    registry: &Registry,
    input: &AnalyzerInput<'_>,
    learned: &mut Learned,
) -> (Vec<AnalyzerResult>, Vec<Step>) {
    let (mut results, mut steps) = (Vec::new(), Vec::new());
    let model = input.model.key();
    for analyzer in registry.others() {
        let name = analyzer.name();
        let memories = learned.analyzers.entry(name.to_owned()).or_default();
        match run(analyzer.as_ref(), input, memories.entry(model.clone()).or_default()) {
            Ok(result) => results.push(result),
            Err(why) => steps.push(Step::new("analyzer", format!("{name}: no result, {why}"), [])),
        }
    }
    (results, steps)
}

#[cfg(test)]
mod tests {
    use super::super::input::ModelInput;
    use super::*;
    use crate::thresholds::Thresholds;

    /// Counts its runs in its memory, and ends each as its name says.
    struct Probe(&'static str);

    impl Analyzer for Probe {
        fn name(&self) -> &str {
            self.0
        }

        fn analyze(
            &self,
            _: &AnalyzerInput<'_>,
            memory: &mut Memory,
        ) -> Result<AnalyzerResult, String> {
            *memory = Memory::from(memory.as_u64().unwrap_or(0) + 1);
            match self.0 {
                "fails" => Err("no data".to_owned()),
                "panics" => std::panic::panic_any("half way".to_owned()),
                _ => Ok(AnalyzerResult::default()),
            }
        }
    }

    /// Mutants: a name taken twice; `saturation` given away; the order of names for that of coming.
    #[test]
    fn a_name_is_taken_once_and_order_is_that_of_coming() {
        let mut registry = Registry::new();
        for name in ["slo", "cost"] {
            registry.register(Arc::new(Probe(name))).unwrap();
        }
        for name in ["slo", SATURATION] {
            let refused = registry.register(Arc::new(Probe(name)));
            assert_eq!(refused, Err(RegisterError::Duplicate(name.to_owned())));
        }
        assert_eq!(registry.names(), [SATURATION, "slo", "cost"]);
        assert_eq!(registry.others().len(), 2);
        assert_eq!(Registry::built_in().names(), [SATURATION, "throughput"]);
    }

    /// Mutant: the set left open.
    #[test]
    fn nobody_joins_a_running_loop() {
        let mut registry = Registry::new();
        registry.start();
        let late = registry.register(Arc::new(Probe("slo")));
        assert_eq!(late, Err(RegisterError::Late("slo".to_owned())));
        assert!(late.unwrap_err().to_string().contains("has started"));
        assert_eq!(registry.names(), [SATURATION]);
    }

    /// Mutant: `saturation` unknown.
    #[test]
    fn configured_names_that_nobody_has_are_reported() {
        let names = [SATURATION, "throughput", "slo", "queue_model"];
        assert_eq!(Registry::built_in().unknown(names), ["slo", "queue_model"]);
    }

    /// Mutants: the panic let through; the memory of half a run kept.
    #[test]
    fn a_faulty_analyzer_costs_its_result_alone() {
        let (model, line) = (ModelInput::default(), Thresholds::default());
        let input =
            AnalyzerInput { model: &model, line: &line, freshness_seconds: 30.0, now_millis: 0 };
        let mut memory = Memory::Null;
        for _ in 0..2 {
            assert!(run(&Probe("works"), &input, &mut memory).is_ok());
        }
        let failed = run(&Probe("fails"), &input, &mut memory);
        assert_eq!(failed, Err("no data".to_owned()));
        let panicked = run(&Probe("panics"), &input, &mut memory);
        assert_eq!(panicked, Err("panicked: half way".to_owned()));
        assert_eq!(memory, 2);
    }

    /// Mutants: the first fault ends the row; one memory for all models.
    #[test]
    fn others_run_in_order_and_each_remembers_each_model() {
        let mut registry = Registry::new();
        for name in ["works", "panics", "fails", "also"] {
            registry.register(Arc::new(Probe(name))).unwrap();
        }
        let line = Thresholds::default();
        let mut learned = Learned::default();
        for name in ["a", "b", "a"] {
            let model = ModelInput { model_id: name.to_owned(), ..ModelInput::default() };
            let input = AnalyzerInput {
                model: &model,
                line: &line,
                freshness_seconds: 30.0,
                now_millis: 0,
            };
            let (results, steps) = run_others(&registry, &input, &mut learned);
            assert_eq!((results.len(), steps.len()), (2, 2));
            assert_eq!(steps[0].text, "panics: no result, panicked: half way");
        }
        let runs = |name: &str| learned.analyzers["also"][name].as_u64();
        assert_eq!((runs("/a"), runs("/b")), (Some(2), Some(1)));
    }
}
