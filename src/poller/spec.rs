//! Metric specs: the text that names one family and the labels a series must carry.
//!
//! Decides which texts are specs, by upstream's rules: `name` or `name{label=value,label="value"}`,
//! equality only. Decides not what the family is read for.

use std::fmt;

use super::labels::Labels;

/// A family and the label values that select among its series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    family: String,
    labels: Vec<(String, String)>,
}

/// Why a text is no metric spec.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("metric spec {spec:?}: {rule}")]
pub struct SpecError {
    spec: String,
    rule: Rule,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum Rule {
    #[error("{0:?} is no metric name (letters, digits, `_`, `:`, no leading digit)")]
    Name(String),
    #[error("the label block must close with the text's last character")]
    Braces,
    #[error("label pair {0:?} has no `=`")]
    NoEquals(String),
    #[error("label pair {0:?}: no label name (letters, digits, `_`, no leading digit)")]
    LabelName(String),
    #[error("label pair {0:?}: the value is empty; write \"\" for an empty one")]
    EmptyValue(String),
    #[error("label pair {0:?}: a value cannot hold blanks, quotes, commas or `=`")]
    Value(String),
}

// === impl Spec ===

impl Spec {
    /// The spec of `family` with every pair in `labels`. For names known to be good.
    pub(crate) fn known(family: &str, labels: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self { family: family.to_owned(), labels: labels.iter().map(owned).collect() }
    }

    /// Reads a spec; `None` for the empty text, which disables a signal.
    ///
    /// Blanks around names, pairs and bare values do not count. Double quotes around a value are
    /// optional, single quotes belong to it. Of a label given twice the last value counts.
    ///
    /// # Errors
    /// [`SpecError`], with the text and the rule it breaks.
    pub fn parse(text: &str) -> Result<Option<Self>, SpecError> {
        if text.is_empty() {
            return Ok(None);
        }
        Self::read(text).map(Some).map_err(|rule| SpecError { spec: text.to_owned(), rule })
    }

    fn read(text: &str) -> Result<Self, Rule> {
        let text = text.trim();
        let (family, block) = match text.split_once('{') {
            Some((family, block)) => {
                (family.trim_end(), block.strip_suffix('}').ok_or(Rule::Braces)?)
            }
            None => (text, ""),
        };
        if !is_name(family, ":") {
            return Err(Rule::Name(family.to_owned()));
        }
        if block.contains(['{', '}']) {
            return Err(Rule::Braces);
        }
        let mut labels: Vec<(String, String)> = Vec::new();
        if !block.trim().is_empty() {
            for pair in block.split(',') {
                let (name, value) = read_pair(pair)?;
                labels.retain(|(known, _)| *known != name);
                labels.push((name, value));
            }
        }
        Ok(Self { family: family.to_owned(), labels })
    }

    /// The family's name.
    pub fn family(&self) -> &str {
        &self.family
    }

    /// Whether a series with `labels` is meant: it carries every pair, and may carry more.
    pub fn selects(&self, labels: Labels<'_>) -> bool {
        self.labels
            .iter()
            .all(|(name, value)| labels.get(name).is_some_and(|found| found.is(value)))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.family)?;
        for (at, (name, value)) in self.labels.iter().enumerate() {
            write!(f, "{}{name}={value:?}", if at == 0 { "{" } else { "," })?;
        }
        if self.labels.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

fn read_pair(pair: &str) -> Result<(String, String), Rule> {
    let (name, value) = pair.split_once('=').ok_or_else(|| Rule::NoEquals(pair.to_owned()))?;
    let (name, value) = (name.trim(), value.trim());
    if !is_name(name, "") {
        return Err(Rule::LabelName(pair.to_owned()));
    }
    if value.is_empty() {
        return Err(Rule::EmptyValue(pair.to_owned()));
    }
    let quoted = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let bare = quoted.unwrap_or(value);
    let blank = quoted.is_none() && bare.contains(char::is_whitespace);
    if blank || bare.contains(['"', '=']) {
        return Err(Rule::Value(pair.to_owned()));
    }
    Ok((name.to_owned(), bare.to_owned()))
}

/// Whether `text` is a name in the classic alphabet plus `more`.
fn is_name(text: &str, more: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || more.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: trimming single quotes, or not trimming blanks, turns a line red.
    #[test]
    fn specs_read_as_upstream_reads_them() {
        for (text, canonical) in [
            ("m", "m"),
            ("m{}", "m"),
            ("a:b_1{ }", "a:b_1"),
            ("m{a=\"\"}", "m{a=\"\"}"),
            (" m { a = b , c=\"d\" } ", "m{a=\"b\",c=\"d\"}"),
            ("m{a='b'}", "m{a=\"'b'\"}"),
            ("m{a=\"x y\"}", "m{a=\"x y\"}"),
            ("m{a=b,a=c}", "m{a=\"c\"}"),
        ] {
            assert_eq!(Spec::parse(text).unwrap().unwrap().to_string(), canonical, "{text}");
        }
        assert_eq!(Spec::parse(""), Ok(None));
    }

    /// Mutant: dropping any one rule of `read` or `read_pair` accepts one of these.
    #[test]
    fn bad_specs_name_the_rule() {
        for (text, rule) in [
            (" ", "no metric name"),
            ("1m", "no metric name"),
            ("a b", "no metric name"),
            ("my.metric", "no metric name"),
            ("{a=b}", "no metric name"),
            ("rate(m)", "no metric name"),
            ("m{a=b", "label block"),
            ("m{a=b}x", "label block"),
            ("m{a=b}}", "label block"),
            ("m}", "no metric name"),
            ("m{a}", "has no `=`"),
            ("m{a=b,}", "has no `=`"),
            ("m{=v}", "no label name"),
            ("m{1a=b}", "no label name"),
            ("m{a!=b}", "no label name"),
            ("m{a=}", "value is empty"),
            ("m{a=\"x=y\"}", "cannot hold"),
            ("m{a=\"x,y\"}", "cannot hold"),
            ("m{a=~\"b\"}", "cannot hold"),
            ("m{a=b c}", "cannot hold"),
            ("m{a=\"}", "cannot hold"),
        ] {
            let error = Spec::parse(text).unwrap_err().to_string();
            assert!(error.contains(rule) && error.contains("metric spec"), "{text}: {error}");
        }
    }
}
