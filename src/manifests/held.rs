//! The documents in force, and what the next version of the path makes of them.
//!
//! Decides when a document stays although its newest version is bad, and which documents count for a
//! pool. Pure: a listing goes in, documents and texts come out.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Content;
use super::document::{self, Document, Id, Kind, Outcome, Spec};
use crate::routing::{Objectives, Rewrites};
use crate::watched_file::Listing;

/// Documents in force, each with the file that it stands in.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Held(BTreeMap<Id, (PathBuf, Document)>);

/// What there is to say about one version of the path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings {
    /// Bad documents: file, document, rule, and whether an older version stays.
    pub errors: Vec<String>,
    /// What is used as it stands but is hardly meant.
    pub warnings: Vec<String>,
    /// Documents of other kinds, by kind.
    pub ignored: BTreeMap<String, usize>,
    /// Documents that count.
    pub taken: usize,
}

/// What a version says besides its valid documents.
#[derive(Default)]
struct Faults {
    /// Bad documents that could still be identified, and where they stand.
    known: Vec<(Id, PathBuf)>,
    /// Files with a document that could not be identified: it may be any that the file held.
    unsure: BTreeSet<PathBuf>,
    /// Error texts with the id that each is about.
    errors: Vec<(String, Option<Id>)>,
}

impl Held {
    /// The documents after `listing`, and what there is to say about it.
    pub(super) fn next(&self, listing: &Listing, pool: Option<&str>) -> (Self, Findings) {
        let mut next = Self::default();
        let (mut faults, mut findings) = (Faults::default(), Findings::default());
        for (path, content) in &listing.0 {
            match content {
                Err(error) => {
                    faults.errors.push((format!("{}: {error}", path.display()), None));
                    faults.unsure.insert(path.clone());
                }
                Ok(content) => next.take(path, content, &mut faults, &mut findings),
            }
        }
        for (id, path) in faults.known {
            if let (false, Some((_, old))) = (next.0.contains_key(&id), self.0.get(&id)) {
                next.0.insert(id, (path, old.clone()));
            }
        }
        for (id, (path, old)) in &self.0 {
            if faults.unsure.contains(path) && !next.0.contains_key(id) {
                next.0.insert(id.clone(), (path.clone(), old.clone()));
            }
        }
        findings.errors = faults
            .errors
            .into_iter()
            .map(|(error, id)| match id.is_some_and(|id| next.0.contains_key(&id)) {
                true => format!("{error} (its last valid version stays)"),
                false => error,
            })
            .collect();
        next.doubts(pool, &mut findings);
        (next, findings)
    }

    /// Takes over the valid documents of one file.
    fn take(&mut self, path: &Path, content: &[u8], faults: &mut Faults, findings: &mut Findings) {
        let named = |text: &str| format!("{}: {text}", path.display());
        for outcome in document::read(content) {
            match outcome {
                Outcome::Ignored(kind) => *findings.ignored.entry(kind).or_default() += 1,
                Outcome::Bad { id, error } => {
                    match &id {
                        Some(id) => faults.known.push((id.clone(), path.to_owned())),
                        None => _ = faults.unsure.insert(path.to_owned()),
                    }
                    faults.errors.push((named(&error), id));
                }
                Outcome::Valid(document) => {
                    findings.warnings.extend(document.warnings.iter().map(|w| named(w)));
                    let id = document.id.clone();
                    let at = (path.to_owned(), document);
                    if let Some((other, _)) = self.0.insert(id.clone(), at) {
                        let other = other.display();
                        let text = format!("{id} stands in {other} too, the one here counts");
                        findings.warnings.push(named(&text));
                    }
                }
            }
        }
    }

    fn of_pool(&self, pool: Option<&str>) -> impl Iterator<Item = &Document> {
        let documents = self.0.values().map(|(_, document)| document);
        let pool = pool.map(str::to_owned);
        documents.filter(move |document| pool.as_ref().is_none_or(|pool| *pool == document.pool))
    }

    /// What is doubtful about the documents as a whole.
    fn doubts(&self, pool: Option<&str>, findings: &mut Findings) {
        findings.taken = self.of_pool(pool).count();
        let pools: BTreeSet<&str> = self.of_pool(None).map(|d| d.pool.as_str()).collect();
        let list = || pools.iter().copied().collect::<Vec<_>>().join(", ");
        match pool {
            None if pools.len() > 1 => findings.warnings.push(format!(
                "the documents name several pools ({}) and all count; --pool-name chooses one",
                list()
            )),
            Some(pool) if findings.taken == 0 && !pools.is_empty() => {
                let text = format!("no document names the pool {pool:?}; they name {}", list());
                findings.warnings.push(text);
            }
            _ => {}
        }
        let mut names: BTreeMap<(Kind, &str), &Id> = BTreeMap::new();
        for Document { id, .. } in self.of_pool(pool) {
            if let Some(other) = names.insert((id.kind, &id.name), id) {
                let text = format!("{other} has the name of {id}, which counts in its place");
                findings.warnings.push(text);
            }
        }
    }

    /// What the documents of `pool`, or all, say to routing.
    pub(super) fn content(&self, pool: Option<&str>) -> Content {
        let (mut rewrites, mut objectives) = (Vec::new(), Vec::new());
        for Document { id, spec, .. } in self.of_pool(pool) {
            match spec {
                Spec::Rewrite(rewrite) => rewrites.push(rewrite.clone()),
                Spec::Objective(priority) => objectives.push((id.name.clone(), *priority)),
            }
        }
        Content {
            rewrites: Rewrites::new(rewrites).into(),
            objectives: Objectives::new(objectives).into(),
        }
    }
}
