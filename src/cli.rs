//! The command line: one file a sub-command, `serve` without one.
//!
//! Decides flags and exit codes; what a command does is decided by what it calls. Flags read as the Go
//! picker's do: `--v=3`, `-v 2`, `--secure-serving=false`, durations such as `30s`; the last of a flag
//! that is given twice counts.

pub mod check;
pub mod conformance;
pub mod demo;
pub mod plan;
pub mod serve;
pub mod sim;

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::units::GoDuration;

/// Endpoint picker and scaling loop for LLM inference pools behind an Envoy-class gateway.
///
/// Without a sub-command it serves.
#[derive(Debug, Parser)]
#[command(
    name = "plumbline",
    version,
    args_conflicts_with_subcommands = true,
    args_override_self = true,
    after_help = serve::EXAMPLES
)]
pub struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve (the default).
    #[command(after_help = serve::EXAMPLES, args_override_self = true)]
    Serve(serve::ServeArgs),
    /// Validate a configuration without starting.
    #[command(after_help = check::EXAMPLES, args_override_self = true)]
    Check(check::CheckArgs),
    /// Try an endpoint picker: the protocol cases, a verdict for each.
    #[command(after_help = conformance::EXAMPLES)]
    Conformance(conformance::ConformanceArgs),
    /// Show it all on this machine: simulated model servers, Envoy, traffic, a verdict.
    #[command(after_help = demo::EXAMPLES)]
    Demo(demo::DemoArgs),
    /// Plan the scaling of models from a document, without a server.
    #[command(after_help = plan::EXAMPLES, args_override_self = true)]
    Plan(plan::PlanArgs),
    /// Run simulated model servers that speak the OpenAI API and report as vLLM does.
    Sim(sim::Args),
}

impl Cli {
    /// Runs the command; the exit code is its answer.
    ///
    /// # Errors
    /// Whatever stopped it, with the chain of causes.
    pub async fn run(self) -> anyhow::Result<ExitCode> {
        match self.command {
            None => serve::run(self.serve).await,
            Some(Command::Serve(args)) => serve::run(args).await,
            Some(Command::Check(args)) => check::run(&args),
            Some(Command::Conformance(args)) => conformance::run(&args).await,
            Some(Command::Demo(args)) => demo::run(args).await,
            Some(Command::Plan(args)) => plan::run(&args),
            Some(Command::Sim(args)) => sim::run(&args).await.map(|()| ExitCode::SUCCESS),
        }
    }
}

/// Prints an error with its causes to standard error; exit code 1.
pub fn failed(error: &anyhow::Error) -> ExitCode {
    // Nowhere left to report a closed standard error.
    let _ = writeln!(std::io::stderr(), "plumbline: {error:#}");
    ExitCode::FAILURE
}

/// A clap parser of durations such as `30s`; negative ones are refused.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let parsed = GoDuration::parse(text).map_err(|error| error.to_string())?;
    parsed.to_std().ok_or_else(|| format!("{text} is negative"))
}

/// A clap parser of booleans in all of Go's spellings.
pub(crate) fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}
