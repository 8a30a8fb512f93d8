//! What operators see: logs here, metrics in the submodule.
//!
//! Decides levels and format; never logs a prompt, a credential or a body.

pub mod metrics;
pub mod scaling;

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

/// The wall clock as log records show it, RFC 3339 in UTC.
pub fn timestamp() -> String {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// Text for people, JSON for machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum LogFormat {
    /// One line a record.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Level of our own records for `-v N`, on upstream's scale: 0 to 3 info, 4 debug, 5 and more trace.
pub fn level(verbosity: u8) -> &'static str {
    match verbosity {
        0..=3 => "info",
        4 => "debug",
        _ => "trace",
    }
}

/// Starts logging to standard error, our own records from `level` up. A second call in one process changes nothing.
pub fn init(level: &str, format: LogFormat) {
    let filter = EnvFilter::new(format!("warn,plumbline={level}"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    // An error means that a subscriber is set already, as in tests that start several.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
}
