//! The label block of one exposition line, read in place.
//!
//! Decides where a block ends and what its escapes mean; knows no label's meaning. Nothing is
//! copied before a caller asks for a text.

use std::borrow::Cow;

/// The labels between the braces of one series; the default is a series without any.
///
/// Equality is by bytes: the same pairs in another order count as another series, which no exporter
/// writes within one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Labels<'p>(&'p [u8]);

/// A label's value as it stands on the page, escapes included.
#[derive(Debug, Clone, Copy)]
pub struct LabelValue<'p>(&'p [u8]);

/// A label's name and value.
type Pair<'p> = (&'p [u8], LabelValue<'p>);

// === impl Labels ===

impl<'p> Labels<'p> {
    /// Splits `text`, which begins behind an opening brace, into the block and what follows its
    /// closing brace. `None` when the block is malformed.
    pub(crate) fn split(text: &'p [u8]) -> Option<(Self, &'p [u8])> {
        let mut rest = text;
        loop {
            rest = skip_blanks(rest);
            if let [b'}', after @ ..] = rest {
                return Some((Self(&text[..text.len() - rest.len()]), after));
            }
            (_, rest) = pair(rest)?;
            rest = skip_blanks(rest);
            match rest {
                [b',', after @ ..] => rest = after,
                [b'}', ..] => {}
                _ => return None,
            }
        }
    }

    /// Every pair, in page order.
    pub fn pairs(self) -> impl Iterator<Item = (&'p [u8], LabelValue<'p>)> + use<'p> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (found, after) = pair(skip_blanks(rest))?;
            let after = skip_blanks(after);
            rest = after.strip_prefix(b",").unwrap_or(after);
            Some(found)
        })
    }

    /// The value of the label `name`; `None` when the series does not carry it.
    pub fn get(self, name: &str) -> Option<LabelValue<'p>> {
        self.pairs().find(|(label, _)| *label == name.as_bytes()).map(|(_, value)| value)
    }
}

// === impl LabelValue ===

impl<'p> LabelValue<'p> {
    /// Whether the value, with its escapes undone, is `text`.
    pub fn is(self, text: &str) -> bool {
        self.bytes().eq(text.bytes())
    }

    /// The value with its escapes undone; bytes that are no UTF-8 become U+FFFD.
    pub fn text(self) -> Cow<'p, str> {
        if !self.0.contains(&b'\\') {
            return String::from_utf8_lossy(self.0);
        }
        let bytes: Vec<u8> = self.bytes().collect();
        Cow::Owned(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The value as the page spells it.
    pub fn raw(self) -> &'p [u8] {
        self.0
    }

    fn bytes(self) -> impl Iterator<Item = u8> + 'p {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (byte, after) = match rest {
                [] => return None,
                [b'\\', b'n', after @ ..] => (b'\n', after),
                [b'\\', escaped @ (b'\\' | b'"'), after @ ..] => (*escaped, after),
                // An escape that the format does not know stands for itself, backslash included.
                [byte, after @ ..] => (*byte, after),
            };
            rest = after;
            Some(byte)
        })
    }
}

/// `text` without its leading blanks and tabs.
pub(crate) fn skip_blanks(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

/// The bytes that end a bare label name.
const ENDS_NAME: [bool; 256] = {
    let mut ends = [false; 256];
    let stops = b"={}\",\t ";
    let mut at = 0;
    while at < stops.len() {
        ends[stops[at] as usize] = true;
        at += 1;
    }
    ends
};

/// One `name="value"` and what follows it. A quoted name (UTF-8 label names) is fine as well.
fn pair(text: &[u8]) -> Option<(Pair<'_>, &[u8])> {
    let (name, rest) = match text {
        [b'"', quoted @ ..] => until_quote(quoted)?,
        _ => {
            let end = text.iter().position(|byte| ENDS_NAME[usize::from(*byte)])?;
            if end == 0 {
                return None;
            }
            text.split_at(end)
        }
    };
    let rest = skip_blanks(skip_blanks(rest).strip_prefix(b"=")?).strip_prefix(b"\"")?;
    let (value, rest) = until_quote(rest)?;
    Some(((name, LabelValue(value)), rest))
}

/// `text` up to its first unescaped quote, and what follows that quote.
fn until_quote(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut at = 0;
    loop {
        at += memchr::memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some((&text[..at], &text[at + 1..]));
        }
        at += 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Option<Vec<(String, String)>> {
        let (labels, rest) = Labels::split(text.as_bytes())?;
        assert_eq!(rest, b" 1", "{text}");
        let read = |(name, value): (&[u8], LabelValue<'_>)| {
            (String::from_utf8_lossy(name).into_owned(), value.text().into_owned())
        };
        Some(labels.pairs().map(read).collect())
    }

    /// Mutant: `at += 1` after a backslash ends a value at its escaped quote.
    #[test]
    fn blocks_end_at_their_own_brace() {
        let cases: [(&str, &[(&str, &str)]); 8] = [
            ("} 1", &[]),
            (r#"a="b"} 1"#, &[("a", "b")]),
            (r#" a = "b" , c="" , } 1"#, &[("a", "b"), ("c", "")]),
            (r#"a="}{,=#"} 1"#, &[("a", "}{,=#")]),
            (r#"a="q\"q",b="x\\"} 1"#, &[("a", "q\"q"), ("b", "x\\")]),
            (r#"a="l\nl",b="odd\t"} 1"#, &[("a", "l\nl"), ("b", "odd\\t")]),
            (r#""my.label"="v"} 1"#, &[("my.label", "v")]),
            (r#"größe="7"} 1"#, &[("größe", "7")]),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> =
                expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(pairs(text), Some(expected), "{text}");
        }
        for text in ["", "a", "a=", "a=b} 1", r#"a="b"#, r#"a="b\"} 1"#, ",} 1", r#"a="b",,} 1"#] {
            assert_eq!(pairs(text), None, "{text}");
        }
    }

    /// Mutant: comparing raw bytes makes the escaped value unequal.
    #[test]
    fn a_value_compares_with_its_escapes_undone() {
        let (labels, _) = Labels::split(br#"a="x\"y",b="plain"}"#).unwrap();
        assert!(labels.get("a").unwrap().is("x\"y"));
        assert!(!labels.get("a").unwrap().is("x\\\"y"));
        assert!(labels.get("b").unwrap().is("plain"));
        assert!(labels.get("c").is_none());
    }
}
