//! Label selectors, as Kubernetes writes them in a query.
//!
//! Decides which labels a selector matches: requirements are all to hold; `key`, `!key`, `key=value`
//! (also `==`), `key!=value`, `key in (a,b)` and `key notin (a,b)`. As in Kubernetes `!=` and `notin`
//! hold where the label is absent.

/// What a selector demands; all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

/// A selector that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("labelSelector: {part:?} is no requirement; {rule}")]
pub struct BadSelector {
    /// The requirement.
    pub part: String,
    /// What it should be.
    pub rule: &'static str,
}

impl Selector {
    /// Reads a selector; an empty one matches everything.
    ///
    /// # Errors
    /// [`BadSelector`] names the requirement and the rule.
    pub fn parse(text: &str) -> Result<Self, BadSelector> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        requirements(text).map(|part| requirement(part.trim())).collect::<Result<_, _>>().map(Self)
    }

    /// Whether labels, asked for by key, satisfy every requirement.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|Requirement { key, test }| match (test, label(key)) {
            (Test::Exists, found) => found.is_some(),
            (Test::Absent, found) => found.is_none(),
            (Test::In(values), Some(found)) => values.iter().any(|value| value == found),
            (Test::In(_), None) => false,
            (Test::NotIn(values), Some(found)) => values.iter().all(|value| value != found),
            (Test::NotIn(_), None) => true,
        })
    }
}

/// Splits at commas outside parentheses.
fn requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_i32;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        c == ',' && depth == 0
    })
}

fn requirement(part: &str) -> Result<Requirement, BadSelector> {
    let bad = |rule| BadSelector { part: part.to_owned(), rule };
    let (key, test) = if let Some(list) = part.strip_suffix(')') {
        let (head, values) = list.split_once('(').ok_or(bad("( is missing"))?;
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => (key, Test::In(values)),
            (Some(key), Some("notin"), None) => (key, Test::NotIn(values)),
            _ => return Err(bad("a list follows `key in` or `key notin`")),
        }
    } else if let Some((key, value)) = part.split_once("!=") {
        (key, Test::NotIn(vec![value.trim().to_owned()]))
    } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        (key, Test::In(vec![value.trim().to_owned()]))
    } else if let Some(key) = part.strip_prefix('!') {
        (key, Test::Absent)
    } else {
        (part, Test::Exists)
    };
    let key = key.trim();
    let valid = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    if key.is_empty() || !key.chars().all(valid) {
        return Err(bad("a key has letters, digits, and - _ . / only"));
    }
    let values = match &test {
        Test::In(values) | Test::NotIn(values) => values.as_slice(),
        _ => &[],
    };
    // Model names with a slash are common, although no Kubernetes label has one.
    if !values.iter().all(|value| value.chars().all(|c| valid(c) || c == ':')) {
        return Err(bad("a value has letters, digits, and - _ . / : only"));
    }
    Ok(Requirement { key: key.to_owned(), test })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: any two tests swapped; an absent label failing `!=`; a comma within a list splitting.
    #[test]
    fn requirements_hold_as_in_kubernetes() {
        let label = |key: &str| match key {
            "variant_name" => Some("v1"),
            "role" => Some("decode"),
            _ => None,
        };
        for (text, expected) in [
            ("", true),
            ("variant_name=v1", true),
            ("variant_name==v2", false),
            ("variant_name = v1 , role!=prefill", true),
            ("other!=x", true),
            ("other=x", false),
            ("role in (prefill, decode),variant_name", true),
            ("role notin (prefill, decode)", false),
            ("other notin (x)", true),
            ("other in (x)", false),
            ("!other,role", true),
            ("!role", false),
            ("other", false),
        ] {
            assert_eq!(Selector::parse(text).map(|s| s.matches(label)), Ok(expected), "{text}");
        }
    }

    /// Mutant: what cannot be read taken for a key.
    #[test]
    fn what_cannot_be_read_is_named() {
        for (text, rule) in [
            ("a b", "a key has letters, digits, and - _ . / only"),
            ("=x", "a key has letters, digits, and - _ . / only"),
            ("a=b,", "a key has letters, digits, and - _ . / only"),
            ("a of (x)", "a list follows `key in` or `key notin`"),
            ("a)", "( is missing"),
            ("a=b c", "a value has letters, digits, and - _ . / : only"),
        ] {
            assert_eq!(Selector::parse(text).map_err(|bad| bad.rule), Err(rule), "{text}");
        }
    }
}
