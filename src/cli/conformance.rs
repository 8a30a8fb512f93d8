//! `plumbline conformance`: try any endpoint picker with the protocol cases.
//!
//! Decides flags, the report and the exit code: 0 when every case that could be tried holds, 1 when one
//! does not or none could be tried.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use serde_json::json;

use crate::conformance::cases::{self, Case, Pool};
use crate::conformance::connection::{Target, connect};
use crate::conformance::judge::{Trial, Verdict};

/// Shown under `--help`.
pub const EXAMPLES: &str = "\
Examples:
  plumbline conformance --list
  plumbline conformance --target localhost:9002 --tls
  plumbline conformance --target 10.0.0.7:9002 --tls --health 10.0.0.7:9003
  plumbline conformance --target localhost:9002 --tls --case subset-empty --output json
  plumbline conformance --target localhost:9002 --tls --expect-empty   # a pool without endpoints

The picker needs a pool of at least one endpoint (--expect-empty: none); endpoints need not exist.
Each case plays what an Envoy would send, so do not aim at a picker whose metrics matter.

Exit code: 0 when every case that could be tried holds, 1 otherwise.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Flags of `conformance`.
#[derive(Debug, Clone, Args)]
pub struct ConformanceArgs {
    /// The ext_proc port of the picker.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "list")]
    target: Option<String>,
    /// The port speaks TLS; its certificate is not verified.
    #[arg(long)]
    tls: bool,
    /// A health port of its own, plaintext; without it health is asked on the target.
    #[arg(long, value_name = "HOST:PORT")]
    health: Option<String>,
    /// The pool has no endpoints: try what then holds.
    #[arg(long)]
    expect_empty: bool,
    /// Try this case only; repeatable.
    #[arg(long = "case", value_name = "NAME")]
    cases: Vec<String>,
    /// Print the cases and try none.
    #[arg(long)]
    list: bool,
    /// Format of the report.
    #[arg(long, value_enum, default_value_t = Output::Text)]
    output: Output,
    /// Longest wait for an answer that is due.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = super::duration)]
    patience: Duration,
}

/// How long to listen for an answer too many, after every step.
const QUIET: Duration = Duration::from_millis(20);

/// Prints a verdict per case to standard output as it comes.
pub(super) async fn run(args: &ConformanceArgs) -> anyhow::Result<ExitCode> {
    let cases = chosen(args)?;
    let mut out = std::io::stdout();
    let Some(target) = args.target.as_ref().filter(|_| !args.list) else {
        out.write_all(listing(&cases, args.output).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    };
    let picker = connect(&Target { address: target.clone(), tls: args.tls }).await?;
    let health = match &args.health {
        None => None,
        Some(address) => Some(connect(&Target { address: address.clone(), tls: false }).await?),
    };
    let trial =
        Trial { picker, health, empty: args.expect_empty, patience: args.patience, quiet: QUIET };
    let endpoint = if trial.empty { None } else { trial.learn_endpoint().await };
    let mut verdicts = Vec::new();
    for case in &cases {
        let verdict = trial.case(case, endpoint.as_deref()).await;
        if args.output == Output::Text {
            out.write_all(line(case, &verdict).as_bytes())?;
        }
        verdicts.push(verdict);
    }
    let tally = Tally::of(&verdicts);
    match args.output {
        Output::Text => out.write_all(tally.text().as_bytes())?,
        Output::Json => {
            out.write_all(report(target, &cases, &verdicts, &tally).as_bytes())?;
        }
    }
    Ok(if tally.good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn chosen(args: &ConformanceArgs) -> anyhow::Result<Vec<Case>> {
    let all = cases::all()?;
    if args.cases.is_empty() {
        return Ok(all);
    }
    if let Some(unknown) = args.cases.iter().find(|name| all.iter().all(|case| case.name != **name))
    {
        anyhow::bail!("--case: there is no case {unknown:?}; --list prints them");
    }
    Ok(all.into_iter().filter(|case| args.cases.contains(&case.name)).collect())
}

fn pool_name(pool: Pool) -> &'static str {
    match pool {
        Pool::Filled => "filled",
        Pool::Empty => "empty",
        Pool::Any => "any",
    }
}

fn listing(cases: &[Case], output: Output) -> String {
    match output {
        Output::Text => {
            let lines = cases.iter().map(|case| format!("{:<26} {}\n", case.name, case.about));
            lines.collect()
        }
        Output::Json => {
            let cases: Vec<_> = cases
                .iter()
                .map(|case| {
                    json!({ "case": case.name, "about": case.about, "pool": pool_name(case.pool) })
                })
                .collect();
            format!("{:#}\n", json!({ "cases": cases }))
        }
    }
}

fn line(case: &Case, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Pass => format!("pass  {}\n", case.name),
        Verdict::Skipped(reason) => format!("skip  {}: {reason}\n", case.name),
        Verdict::Fail(fault) => format!(
            "FAIL  {}: {}\n      expected  {}\n      got       {}\n",
            case.name, case.about, fault.expected, fault.got
        ),
    }
}

struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Tally {
    fn of(verdicts: &[Verdict]) -> Self {
        let count = |is: fn(&Verdict) -> bool| verdicts.iter().filter(|v| is(v)).count();
        Self {
            passed: count(|v| matches!(v, Verdict::Pass)),
            failed: count(|v| matches!(v, Verdict::Fail(_))),
            skipped: count(|v| matches!(v, Verdict::Skipped(_))),
        }
    }

    fn good(&self) -> bool {
        self.failed == 0 && self.passed > 0
    }

    fn text(&self) -> String {
        let Self { passed, failed, skipped } = self;
        format!("{passed} passed, {failed} failed, {skipped} skipped\n")
    }
}

fn report(target: &str, cases: &[Case], verdicts: &[Verdict], tally: &Tally) -> String {
    let told = cases.iter().zip(verdicts).map(|(case, verdict)| {
        let mut told = json!({ "case": case.name, "about": case.about });
        match verdict {
            Verdict::Pass => told["verdict"] = "pass".into(),
            Verdict::Skipped(reason) => {
                told["verdict"] = "skipped".into();
                told["reason"] = reason.as_str().into();
            }
            Verdict::Fail(fault) => {
                told["verdict"] = "fail".into();
                told["expected"] = fault.expected.as_str().into();
                told["got"] = fault.got.as_str().into();
            }
        }
        told
    });
    let report = json!({
        "target": target,
        "passed": tally.passed,
        "failed": tally.failed,
        "skipped": tally.skipped,
        "cases": told.collect::<Vec<_>>(),
    });
    format!("{report:#}\n")
}
