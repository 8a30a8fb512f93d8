//! `plumbline plan`: what scaling would decide on a document, without any server.
//!
//! Decides how the document is read and how a plan reads as text; the plan itself is decided by
//! `scaling`. Times are milliseconds of the clock in which `learned` was written.

mod text;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use serde::Deserialize;

use crate::config::{Layers, scaling as entries};
use crate::policy::{Policy, Source};
use crate::routing::Profile;
use crate::scaling::analyzer::AnalyzerInput;
use crate::scaling::input::{FRESHNESS_SECONDS, Input, ModelInput, SchedulerQueue};
use crate::scaling::learned::Learned;
use crate::scaling::registry::{self, Registry};
use crate::scaling::rules::Rules;
use crate::yaml;

/// Shown under `--help`.
pub const EXAMPLES: &str = "\
Examples:
  plumbline plan --input snapshot.yaml
  plumbline plan --input snapshot.yaml --scaling-config scaling.yaml --output json";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// What to plan from, and how to report.
#[derive(Debug, Clone, Args)]
pub struct PlanArgs {
    /// Readings and variants, as YAML or JSON.
    #[arg(long, value_name = "FILE")]
    input: PathBuf,
    /// ConfigMap of scaling thresholds (wva-saturation-scaling-config), or its bare content. Without
    /// one: V2 with the built-in line.
    #[arg(long, value_name = "FILE")]
    scaling_config: Option<PathBuf>,
    /// Format of the plan.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// The document: an input, and what was learned before it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Document {
    models: Vec<ModelInput>,
    #[serde(default)]
    gpus: Option<BTreeMap<String, u64>>,
    #[serde(default)]
    freshness_seconds: Option<f64>,
    #[serde(default)]
    learned: Option<Learned>,
    /// The present on the clock of `learned`; absent: the newest time in it.
    #[serde(default)]
    now_millis: Option<u64>,
}

/// Prints the plan to standard output.
pub(super) fn run(args: &PlanArgs) -> anyhow::Result<ExitCode> {
    let document = document(&args.input)?;
    let (rules, warnings) = rules(args.scaling_config.as_deref())?;
    for warning in warnings {
        // Nowhere left to report a closed standard error.
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let mut learned = document.learned.unwrap_or_default();
    let now = document.now_millis.unwrap_or_else(|| newest(&learned));
    let mut input = Input {
        models: document.models,
        gpus: document.gpus,
        freshness_seconds: document.freshness_seconds.unwrap_or(FRESHNESS_SECONDS),
    };
    let problems = input.problems();
    if !problems.is_empty() {
        bail!("{}: {}", args.input.display(), problems.join("; "));
    }
    for model in &mut input.models {
        complete(model, &rules, input.freshness_seconds, now, &mut learned);
    }
    let (plan, _) = crate::scaling::plan(&input, &rules, &learned, now);
    let text = match args.output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&plan)?),
        Output::Text => text::of(&plan),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A document describes no pickers: what it does not say of them is nothing, not unknown. The further
/// analyzers run on the spot, unless their results are in it.
fn complete(
    model: &mut ModelInput,
    rules: &Rules,
    freshness_seconds: f64,
    now_millis: u64,
    learned: &mut Learned,
) {
    model.in_flight.get_or_insert(0);
    model.scheduler_queue.get_or_insert(SchedulerQueue::default());
    if model.others.is_empty() {
        let line = rules.table.entry(&model.model_id, &model.namespace).thresholds;
        let seen = AnalyzerInput { model, line: &line, freshness_seconds, now_millis };
        let (others, _) = registry::run_others(&Registry::built_in(), &seen, learned);
        model.others = others;
    }
}

fn document(path: &Path) -> anyhow::Result<Document> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).map_err(|error| {
        let place = error.location().map(|at| (at.line(), at.column()));
        let Some((line, column)) = place else {
            return anyhow::anyhow!("{}: {}", path.display(), yaml::cause(&error));
        };
        let index = usize::try_from(line).unwrap_or(0).saturating_sub(1);
        let source = text.lines().nth(index).unwrap_or_default().trim();
        let source: String = source.chars().take(120).collect();
        anyhow::anyhow!(
            "{}: line {line}, column {column}: {} (in `{source}`)",
            path.display(),
            yaml::cause(&error)
        )
    })
}

/// The rules of a scaling configuration, with what is worth a warning.
fn rules(path: Option<&Path>) -> anyhow::Result<(Rules, Vec<String>)> {
    let mut layers = Layers::default();
    let mut warnings = Vec::new();
    if let Some(path) = path {
        let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
        let document = entries::read(&bytes).with_context(|| path.display().to_string())?;
        warnings.extend(document.rejected.iter().map(ToString::to_string));
        warnings.extend(document.warnings.iter().cloned());
        layers.scaling = layers.scaling.next(&document).0;
    }
    let (table, dropped) = layers.table();
    warnings.extend(dropped.iter().map(ToString::to_string));
    let table = Arc::new(table);
    let line = table.global.default.thresholds;
    let policy = Policy::new(line, [Source::BuiltIn; 8], Profile::default());
    let policy = policy.with_line(line, [Source::BuiltIn; 8], Arc::clone(&table));
    let rules =
        Rules { generation: policy.generation, digest: policy.digest, table, ..Rules::default() };
    Ok((rules, warnings))
}

/// The newest time that is in `learned`: the plan is made right after it.
fn newest(learned: &Learned) -> u64 {
    let published =
        learned.published.values().flat_map(|p| [p.since_millis, p.pending_since_millis]);
    let settle = learned.settle.values().flat_map(|s| [s.moved_millis, s.settled_millis]).flatten();
    let capacities = learned.capacities.values().map(|c| c.touched_millis);
    let history = learned.k2_history.values().map(|h| h.touched_millis);
    published.chain(settle).chain(capacities).chain(history).max().unwrap_or(0)
}
