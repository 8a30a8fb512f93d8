//! The recorded dialogs of the Go picker, replayed against ours: equal, or different for a reason.
//!
//! `differences.txt` lists what differs, one case a line: `case | reason | what we answer`. A reason is
//! `row: NAME` (a row of the table of deliberate differences, see `rows`), `design: …` (what the design
//! decided beyond that table) or `comes with: …`. The test fails when a listed case agrees, is unknown
//! or answers otherwise, and when a case that is not listed differs. `PLUMBLINE_GOLDEN=update` writes
//! the file anew, keeps the reasons, and puts `?` where one is missing, which the next run refuses.

mod dialogs;
mod envoy;
mod normal;
mod pages;
mod rows;
mod summaries;
mod table;
