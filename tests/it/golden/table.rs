//! The file of differences, and the judgement over all cases.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use super::rows::refuse;

/// Whether the file is to be written anew.
pub fn updating() -> bool {
    std::env::var("PLUMBLINE_GOLDEN").as_deref() == Ok("update")
}

/// A line of the file.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub reason: String,
    /// What we answer.
    pub answer: String,
}

/// A file of differences.
pub struct Table {
    path: PathBuf,
    pub lines: BTreeMap<String, Listed>,
}

/// What a case came to.
pub struct Outcome {
    pub case: String,
    /// What was recorded, normalised.
    pub recorded: String,
    /// What we answered, normalised.
    pub ours: String,
}

impl Table {
    pub fn read(name: &str) -> Self {
        let path = format!("{}/tests/it/golden/{name}", env!("CARGO_MANIFEST_DIR")).into();
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let mut lines = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.splitn(3, " | ");
            let [case, reason, answer] = [(); 3].map(|()| parts.next().expect(line).to_owned());
            let known = lines.insert(case, Listed { reason, answer });
            assert!(known.is_none(), "listed twice: {line}");
        }
        Self { path, lines }
    }

    /// Judges every case that was replayed.
    pub fn judge(&self, outcomes: &[Outcome], what: &str) {
        if updating() {
            self.write(outcomes);
        }
        let mut wrong = Vec::new();
        let (mut equal, mut kinds) = (0, BTreeMap::<&str, usize>::new());
        for outcome in outcomes {
            let Outcome { case, recorded, ours } = outcome;
            match self.lines.get(case) {
                None if recorded == ours => equal += 1,
                None => wrong
                    .push(format!("{case} differs\n    recorded {recorded}\n    ours     {ours}")),
                Some(_) if recorded == ours => wrong.push(format!("{case} is listed and agrees")),
                Some(listed) if listed.answer != *ours => {
                    wrong.push(format!(
                        "{case} is listed\n    as   {}\n    ours {ours}",
                        listed.answer
                    ));
                }
                Some(listed) => match refuse(case, &listed.reason) {
                    Err(refused) => wrong.push(refused),
                    Ok(()) => {
                        *kinds.entry(listed.reason.split(':').next().unwrap()).or_default() += 1
                    }
                },
            }
        }
        for case in self.lines.keys().filter(|name| outcomes.iter().all(|o| o.case != **name)) {
            wrong.push(format!("{case} is listed and unknown"));
        }
        println!("{what}: {} cases, {equal} equal, listed: {kinds:?}", outcomes.len());
        assert!(
            wrong.is_empty(),
            "{} wrong (PLUMBLINE_GOLDEN=update rewrites {})\n{}",
            wrong.len(),
            self.path.display(),
            wrong.join("\n")
        );
    }

    fn write(&self, outcomes: &[Outcome]) {
        let mut sorted: Vec<_> = outcomes.iter().filter(|o| o.recorded != o.ours).collect();
        sorted.sort_by_key(|outcome| &outcome.case);
        let mut text = String::from("# case | reason | what we answer; see golden.rs\n");
        for Outcome { case, ours, .. } in sorted {
            let reason = self.lines.get(case).map_or("?", |listed| listed.reason.as_str());
            writeln!(text, "{case} | {reason} | {ours}").unwrap();
        }
        std::fs::write(&self.path, text).unwrap();
    }
}
