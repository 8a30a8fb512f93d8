//! `plumbline check`: validate everything, start nothing.
//!
//! Decides the report and the exit code: 0 good, 1 an error, 2 warnings with `--strict`.

mod foreign;
mod line;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use serde_json::json;

use super::serve::ServeArgs;
use crate::admin::debug;
use crate::app::{Security, Settings};
use crate::config::lint;
use crate::discovery::document;
use crate::policy::Policy;
use crate::routing::rewrite::Target;
use crate::tls;

/// Shown under `--help`.
pub const EXAMPLES: &str = "\
Examples:
  plumbline check --endpoints 10.0.0.1:8000 --params '{\"headroom\": 0.2}'
  plumbline check --endpoints-file endpoints.yaml --output json
  plumbline check --scaling-config scaling.yaml --model-id ibm/granite-13b --namespace production
  plumbline check --epp-config epp.yaml --wva-config wva.yaml   # two copies: are they equal?
  plumbline check --endpoints-file endpoints.yaml --strict   # exit 2 on warnings";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// The flags of `serve`, and how to report.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    #[command(flatten)]
    serve: ServeArgs,
    /// Compare instead: the EndpointPickerConfig of a foreign picker, with --wva-config.
    #[arg(long, help_heading = "Compare", value_name = "FILE")]
    epp_config: Option<PathBuf>,
    /// Compare instead: the scaling ConfigMap of a foreign autoscaler, with --epp-config.
    #[arg(long, help_heading = "Compare", value_name = "FILE")]
    wva_config: Option<PathBuf>,
    /// Format of the report.
    #[arg(long, help_heading = "Report", value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Exit with 2 when there are warnings.
    #[arg(long, help_heading = "Report")]
    strict: bool,
}

/// What was found.
#[derive(Default)]
struct Report {
    settings: Option<Settings>,
    errors: Vec<String>,
    warnings: Vec<String>,
    /// Two sources of one threshold.
    conflicts: Vec<String>,
    /// Worth knowing, and nothing to change.
    notes: Vec<String>,
}

/// Prints the report to standard output.
pub(super) fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let report = if args.epp_config.is_some() || args.wva_config.is_some() {
        compare(args)
    } else {
        examine(&args.serve)
    };
    let text = match args.output {
        Output::Json => report.json(),
        Output::Text => report.text(),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if !report.errors.is_empty() {
        ExitCode::from(1)
    } else if args.strict && !(report.warnings.is_empty() && report.conflicts.is_empty()) {
        ExitCode::from(2)
    } else {
        ExitCode::SUCCESS
    })
}

/// Another system's two files; the flags of `serve` say which model, and no more.
fn compare(args: &CheckArgs) -> Report {
    let model = args.serve.model();
    let pair = foreign::compare(args.epp_config.as_deref(), args.wva_config.as_deref(), &model);
    Report {
        errors: pair.errors,
        warnings: pair.warnings,
        notes: pair.notes,
        conflicts: pair.disagreements,
        ..Report::default()
    }
}

fn examine(args: &ServeArgs) -> Report {
    let mut report = Report::default();
    match args.resolve() {
        Ok(resolved) => {
            let found = line::findings(&resolved.settings.line);
            report.settings = Some(resolved.settings);
            report.warnings = resolved.warnings;
            if args.is_line_alone() {
                report.warnings.retain(|warning| warning != lint::NO_ENDPOINTS);
            }
            report.warnings.extend(found.warnings);
            report.errors = resolved.left_out;
            report.errors.extend(found.errors);
            (report.notes, report.conflicts) = (found.notes, found.conflicts);
        }
        Err(errors) => report.errors = errors,
    }
    if let Some(Settings { security: Security::Files { folder, .. }, protocol, .. }) =
        &report.settings
        && let Err(error) = tls::from_folder(folder, protocol, &tls::Face::GRPC)
    {
        report.errors.push(format!("--cert-path: {:#}", anyhow::Error::from(error)));
    }
    if let Some(path) = args.endpoints_file() {
        match std::fs::read(path) {
            Err(error) => report.errors.push(format!("{}: {error}", path.display())),
            Ok(bytes) => report.endpoints_document(&path.display().to_string(), &bytes),
        }
    }
    report
}

impl Report {
    fn endpoints_document(&mut self, path: &str, bytes: &[u8]) {
        let named = |text: &dyn std::fmt::Display| format!("{path}: {text}");
        match document::parse(bytes) {
            Err(error) => self.errors.push(named(&error)),
            Ok(parsed) => {
                self.errors.extend(parsed.rejected.iter().map(|entry| named(entry)));
                self.warnings.extend(parsed.warnings.iter().map(|warning| named(warning)));
                if parsed.endpoints.is_empty() {
                    self.warnings.push(named(&"no endpoints: every request gets 503"));
                }
            }
        }
    }

    fn json(&self) -> String {
        let policy = self.settings.as_ref().map(|s| &s.policy);
        let report = json!({
            "thresholds": policy.map(debug::thresholds),
            "rewrites": policy.map(debug::rewrites),
            "objectives": policy.map(debug::objectives),
            "scaling": self.settings.as_ref().map(|settings| line::json(&settings.line)),
            "conflicts": self.conflicts,
            "notes": self.notes,
            "errors": self.errors,
            "warnings": self.warnings,
        });
        format!("{report:#}\n")
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, number, source) in self.settings.iter().flat_map(|s| s.policy.table()) {
            text += &format!("{name:<26} {:<8} {}\n", number.to_string(), source.name());
        }
        for settings in
            self.settings.iter().filter(|s| s.line.file.is_some() || s.line.model.id.is_some())
        {
            text += &line::text(&settings.line);
        }
        for policy in self.settings.iter().map(|s| &s.policy) {
            text += &documents(policy);
        }
        let kinds = [
            ("error", &self.errors),
            ("conflict", &self.conflicts),
            ("warning", &self.warnings),
            ("note", &self.notes),
        ];
        for (kind, lines) in kinds {
            for line in lines {
                text += &format!("{kind}: {line}\n");
            }
        }
        if self.errors.is_empty() && self.warnings.is_empty() && self.conflicts.is_empty() {
            text += "good\n";
        }
        text
    }
}

/// One line a rewrite rule and an objective.
fn documents(policy: &Policy) -> String {
    let mut text = String::new();
    for (model, rule) in policy.rewrites.rules() {
        let target = |target: &Target| match target.weight {
            Some(weight) => format!("{}:{weight}", target.model),
            None => target.model.clone(),
        };
        let targets: Vec<_> = rule.targets.iter().map(target).collect();
        let (model, targets) = (model.unwrap_or("(any other)"), targets.join(", "));
        text += &format!("rewrite {model} -> {targets}   {}\n", rule.document);
    }
    for (name, priority) in policy.objectives.iter() {
        text += &format!("objective {name} priority {priority}\n");
    }
    text
}
