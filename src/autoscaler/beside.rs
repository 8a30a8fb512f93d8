//! Analyzers besides `saturation`, run beside the loop.
//!
//! Decides when one is started, how long the loop waits for it (100 ms in all), and what of it is
//! shown: the newest result that it finished, however late. One that is still busy is skipped, one
//! that errs or panics loses that result and nothing else. None of them can hold up a plan. Times are
//! milliseconds of the loop's clock.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::scaling::analyzer::{Analyzer, AnalyzerInput, AnalyzerResult, Memory};
use crate::scaling::input::ModelInput;
use crate::scaling::learned::Learned;
use crate::scaling::plan::Step;
use crate::scaling::registry::{BUDGET, Registry, run};
use crate::thresholds::Thresholds;

/// One model at one moment, as every analyzer gets it.
#[derive(Debug, Clone)]
pub struct Job {
    /// Replicas, variants and the queue before them.
    pub model: ModelInput,
    /// The line, as it holds for this model.
    pub line: Thresholds,
    /// Oldest reading that counts, seconds.
    pub freshness_seconds: f64,
    /// The present, milliseconds of the loop's clock.
    pub now_millis: u64,
}

/// What is known beside `saturation` when a plan is made.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Beside {
    /// The newest result of each analyzer, in order of registration, by `namespace/model`.
    pub results: BTreeMap<String, Vec<AnalyzerResult>>,
    /// Why a result is missing or old, by `namespace/model`.
    pub steps: BTreeMap<String, Vec<Step>>,
}

/// What one run over all models leaves.
struct Finished {
    memories: BTreeMap<String, Memory>,
    outcomes: BTreeMap<String, Result<AnalyzerResult, String>>,
}

struct Runner {
    analyzer: Arc<dyn Analyzer>,
    running: Option<JoinHandle<Finished>>,
    newest: BTreeMap<String, Result<AnalyzerResult, String>>,
}

/// The analyzers with what they are doing.
pub struct Runners {
    runners: Vec<Runner>,
    budget: Duration,
}

impl std::fmt::Debug for Runners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let busy: Vec<(&str, bool)> =
            self.runners.iter().map(|r| (r.analyzer.name(), r.running.is_some())).collect();
        f.debug_struct("Runners").field("busy", &busy).finish()
    }
}

impl Runners {
    /// One runner for each analyzer besides `saturation`; closes the registry.
    pub fn new(registry: &mut Registry) -> Self {
        registry.start();
        let runners = registry.others().iter().map(|analyzer| Runner {
            analyzer: Arc::clone(analyzer),
            running: None,
            newest: BTreeMap::new(),
        });
        Self { runners: runners.collect(), budget: BUDGET }
    }

    /// Starts every analyzer that is not busy, waits for all of them within the budget, and returns
    /// what is known then. What they remember moves through `learned`.
    pub async fn turn(&mut self, jobs: Vec<Job>, learned: &mut Learned) -> Beside {
        let deadline = Instant::now() + self.budget;
        let jobs = Arc::new(jobs);
        // All start before any is waited for: the budget is that of the loop, not of each.
        let mut late = Vec::new();
        for runner in &mut self.runners {
            late.push(runner.running.is_some());
            runner.start(&jobs, learned);
        }
        let mut beside = Beside::default();
        for (runner, was_busy) in self.runners.iter_mut().zip(late) {
            runner.collect(deadline, learned).await;
            runner.tell(&jobs, was_busy, &mut beside);
        }
        beside
    }
}

impl Runner {
    fn start(&mut self, jobs: &Arc<Vec<Job>>, learned: &Learned) {
        if self.running.is_some() {
            return;
        }
        let (analyzer, jobs) = (Arc::clone(&self.analyzer), Arc::clone(jobs));
        let memories = learned.analyzers.get(analyzer.name()).cloned().unwrap_or_default();
        self.running =
            Some(tokio::task::spawn_blocking(move || run_all(analyzer.as_ref(), &jobs, memories)));
    }

    async fn collect(&mut self, deadline: Instant, learned: &mut Learned) {
        let Some(running) = self.running.as_mut() else { return };
        let Ok(joined) = timeout_at(deadline, running).await else { return };
        self.running = None;
        // A panic is caught inside the run; what else ends a task is the end of the program.
        if let Ok(Finished { memories, outcomes }) = joined {
            learned.analyzers.insert(self.analyzer.name().to_owned(), memories);
            self.newest = outcomes;
        }
    }

    fn tell(&self, jobs: &[Job], was_busy: bool, beside: &mut Beside) {
        let name = self.analyzer.name();
        for job in jobs {
            let key = job.model.key();
            let mut say = |text: String| {
                let steps = beside.steps.entry(key.clone()).or_default();
                steps.push(Step::new("analyzer", format!("{name}: {text}"), []));
            };
            if self.running.is_some() {
                say("still busy, skipped".to_owned());
            } else if was_busy {
                say("finished late, an older input is shown".to_owned());
            }
            match self.newest.get(&key) {
                Some(Ok(result)) => {
                    beside.results.entry(key).or_default().push(result.clone());
                }
                Some(Err(why)) => say(format!("no result, {why}")),
                None => {}
            }
        }
    }
}

/// One run over all models. Memory of models that are gone goes with them.
fn run_all(
    analyzer: &dyn Analyzer,
    jobs: &[Job],
    mut memories: BTreeMap<String, Memory>,
) -> Finished {
    memories.retain(|key, _| jobs.iter().any(|job| job.model.key() == *key));
    let mut outcomes = BTreeMap::new();
    for Job { model, line, freshness_seconds, now_millis } in jobs {
        let input = AnalyzerInput {
            model,
            line,
            freshness_seconds: *freshness_seconds,
            now_millis: *now_millis,
        };
        let memory = memories.entry(model.key()).or_default();
        outcomes.insert(model.key(), run(analyzer, &input, memory));
    }
    Finished { memories, outcomes }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// Ends each run when it is told how.
    struct Gated(Mutex<Receiver<bool>>);

    impl Analyzer for Gated {
        fn name(&self) -> &str {
            "gated"
        }

        fn analyze(
            &self,
            input: &AnalyzerInput<'_>,
            memory: &mut Memory,
        ) -> Result<AnalyzerResult, String> {
            assert!(self.0.lock().unwrap().recv().unwrap(), "told to panic");
            *memory = Memory::from(input.now_millis);
            let total_demand = input.now_millis as f64;
            Ok(AnalyzerResult { name: "gated".to_owned(), total_demand, ..Default::default() })
        }
    }

    /// Longer than any machine is slow, for runs that are told to end.
    const LONG: Duration = Duration::from_secs(3600);

    fn gated() -> (Runners, Sender<bool>) {
        let (tell, told) = channel();
        let mut registry = Registry::new();
        registry.register(Arc::new(Gated(Mutex::new(told)))).unwrap();
        let mut runners = Runners::new(&mut registry);
        assert_eq!(std::mem::replace(&mut runners.budget, LONG), Duration::from_millis(100));
        (runners, tell)
    }

    fn jobs(now_millis: u64) -> Vec<Job> {
        let (model_id, namespace) = ("m".to_owned(), "ns".to_owned());
        let model = ModelInput { model_id, namespace, ..ModelInput::default() };
        vec![Job { model, line: Thresholds::default(), freshness_seconds: 30.0, now_millis }]
    }

    fn demand(beside: &Beside) -> Option<f64> {
        beside.results.get("ns/m").map(|results| results[0].total_demand)
    }

    fn said(beside: &Beside) -> String {
        beside.steps.get("ns/m").map(|steps| steps[0].text.clone()).unwrap_or_default()
    }

    /// Mutants: a second run beside a busy one; the loop waiting without an end; a late result lost;
    /// its memory lost.
    #[tokio::test]
    async fn a_busy_analyzer_is_skipped_and_its_late_result_is_shown() {
        let (mut runners, tell) = gated();
        let mut learned = Learned::default();
        tell.send(true).unwrap();
        let first = runners.turn(jobs(1), &mut learned).await;
        assert_eq!((demand(&first), said(&first).as_str()), (Some(1.0), ""));
        runners.budget = Duration::ZERO;
        let busy = runners.turn(jobs(2), &mut learned).await;
        assert_eq!(
            (demand(&busy), said(&busy).as_str()),
            (Some(1.0), "gated: still busy, skipped")
        );
        let again = runners.turn(jobs(3), &mut learned).await;
        assert_eq!(demand(&again), Some(1.0));
        tell.send(true).unwrap();
        runners.budget = LONG;
        let late = runners.turn(jobs(4), &mut learned).await;
        assert_eq!(demand(&late), Some(2.0), "the run that was started with the second turn");
        assert!(said(&late).contains("finished late"), "{}", said(&late));
        assert_eq!(learned.analyzers["gated"]["ns/m"], 2);
        tell.send(true).unwrap();
        assert_eq!(demand(&runners.turn(jobs(5), &mut learned).await), Some(5.0));
    }

    /// Mutants: the panic ends the runner; an old result shown beside the error.
    #[tokio::test]
    async fn a_panic_costs_one_result() {
        let (mut runners, tell) = gated();
        let mut learned = Learned::default();
        for told in [true, false] {
            tell.send(told).unwrap();
            let beside = runners.turn(jobs(1), &mut learned).await;
            assert_eq!(demand(&beside).is_some(), told);
            assert_eq!(said(&beside).contains("no result, panicked: told to panic"), !told);
        }
        assert_eq!(learned.analyzers["gated"]["ns/m"], 1);
        tell.send(true).unwrap();
        assert_eq!(demand(&runners.turn(jobs(2), &mut learned).await), Some(2.0));
    }

    /// Mutant: memory of a model that is gone.
    #[tokio::test]
    async fn what_is_remembered_of_a_model_goes_with_it() {
        let (mut runners, tell) = gated();
        let mut learned = Learned::default();
        tell.send(true).unwrap();
        runners.turn(jobs(1), &mut learned).await;
        let beside = runners.turn(Vec::new(), &mut learned).await;
        assert_eq!(beside, Beside::default());
        assert!(learned.analyzers["gated"].is_empty());
        let mut registry = Registry::built_in();
        Runners::new(&mut registry);
        assert!(registry.register(Arc::new(crate::scaling::throughput::Throughput)).is_err());
    }
}
