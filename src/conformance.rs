//! A scripted gateway: plays ext_proc dialogs against any endpoint picker and judges the answers.
//!
//! Decides how a dialog is written and played (`dialog`, `play`), how answers are told (`answer`), and
//! which of them the protocol allows (`expect`, `cases`, `judge`). Knows nothing of Plumbline, so that
//! it can judge any picker. Durations are real time: a picker that stays silent is one that is waited
//! for in vain.

pub mod answer;
pub mod cases;
pub mod connection;
pub mod dialog;
pub mod expect;
pub mod judge;
pub mod play;
mod proto_json;
