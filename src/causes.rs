//! An error told with its causes, for logs and pages that have one line for it.
//!
//! Decides the form; types of errors are their adapters' own.

use std::error::Error;

/// `error` and each of its causes, outermost first, separated by `: `.
pub fn in_one_line(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
