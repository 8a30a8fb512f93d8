//! Standard output: a table that is redrawn in place on a terminal, plain lines elsewhere.
//!
//! Decides when something is written and how; what is written comes in.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use super::table::{self, View};

/// Where the demo writes.
pub(super) struct Screen {
    terminal: bool,
    bold: bool,
    /// Lines of the frame that stands at the bottom of the terminal.
    drawn: usize,
}

impl Screen {
    pub(super) fn new() -> Self {
        let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let terminal = io::stdout().is_terminal() && !dumb;
        let bold = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, bold, drawn: 0 }
    }

    /// Time between two frames or lines.
    pub(super) fn interval(&self) -> Duration {
        Duration::from_secs(if self.terminal { 1 } else { 5 })
    }

    /// Shows the present.
    pub(super) fn show(&mut self, view: &View) -> io::Result<()> {
        if !self.terminal {
            return self.print(&table::line(view));
        }
        let lines = table::frame(view);
        self.clear()?;
        self.drawn = lines.len();
        self.write(&(lines.join("\n") + "\n"))
    }

    /// Writes lines that stay, above the frame.
    pub(super) fn print(&mut self, text: &str) -> io::Result<()> {
        self.clear()?;
        self.write(&format!("{text}\n"))
    }

    /// A heading.
    pub(super) fn heading(&self, text: &str) -> String {
        if self.bold { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Takes the frame away.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        match std::mem::take(&mut self.drawn) {
            0 => Ok(()),
            // Up to its first line, and erase from there to the end of the screen.
            lines => self.write(&format!("\x1b[{lines}A\r\x1b[J")),
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}
