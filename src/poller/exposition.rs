//! One forward pass over a Prometheus text page that decodes the wanted families and nothing else.
//!
//! Decides what a line says, for classic text 0.0.4 and OpenMetrics alike: both put one sample on one
//! line, so no dialect needs to be known beforehand. Decides not what a family means, nor which of
//! several series counts. `# TYPE` and every other comment is skipped: a value counts whatever its
//! declared type. The pass allocates nothing, and a malformed line costs that line.

use memchr::{Memchr, memchr_iter, memchr3};

use super::labels::{Labels, skip_blanks};

/// Names longer than this are looked for one by one; exporters have none.
const LONGEST: usize = 128;

/// The family names to look for, prepared once so that almost every other line falls at its first
/// byte or at the length of its name.
#[derive(Debug, Clone)]
pub struct Wanted {
    names: Vec<Box<[u8]>>,
    /// The bytes that a wanted line can begin with.
    first: [bool; 256],
    /// Indices of the names by their length, the longer ones all at the end.
    by_length: Vec<Vec<usize>>,
}

/// What a line of a wanted family says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample<'p> {
    /// The label block as it stands on the page.
    pub labels: Labels<'p>,
    /// The value in the family's own unit; `None` for NaN, an infinity or a negative number, none of
    /// which is a reading.
    pub value: Option<f64>,
    /// When the exporter took the value: milliseconds in classic text, seconds in OpenMetrics. Good
    /// for comparing samples of one page only.
    pub timestamp: Option<f64>,
}

/// A line whose name is a wanted one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line<'p> {
    /// Index of the name among those given to [`Wanted::new`].
    pub family: usize,
    /// `None` when the rest of the line is malformed.
    pub sample: Option<Sample<'p>>,
}

/// The lines of a page that belong to wanted families, in page order.
#[derive(Debug, Clone)]
pub struct Lines<'p, 'w> {
    page: &'p [u8],
    /// Where the next line begins.
    start: usize,
    newlines: Memchr<'p>,
    /// The last name that was not wanted, with the byte behind it. The lines of a histogram, most of
    /// any page, have one name after another.
    unwanted: &'p [u8],
    wanted: &'w Wanted,
}

/// Reads `page`, any bytes at all, for the families in `wanted`.
pub fn lines<'p, 'w>(page: &'p [u8], wanted: &'w Wanted) -> Lines<'p, 'w> {
    Lines { page, start: 0, newlines: memchr_iter(b'\n', page), unwanted: &[], wanted }
}

// === impl Wanted ===

impl Wanted {
    /// Prepares `names`, sample names as a page spells them. An empty name matches nothing; of a name
    /// given twice the first index is reported.
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let names: Vec<Box<[u8]>> = names.into_iter().map(|name| name.as_bytes().into()).collect();
        let mut first = [false; 256];
        let mut by_length = vec![Vec::new(); LONGEST + 1];
        for (at, name) in names.iter().enumerate() {
            let Some(byte) = name.first() else { continue };
            first[usize::from(*byte)] = true;
            by_length[name.len().min(LONGEST)].push(at);
        }
        Self { names, first, by_length }
    }

    /// The wanted family that `line` names, and what follows the name. `unwanted` is kept by this
    /// function between the lines of a page.
    fn find<'p>(&self, line: &'p [u8], unwanted: &mut &'p [u8]) -> Option<(usize, &'p [u8])> {
        if !self.first[usize::from(*line.first()?)] {
            return None;
        }
        if !unwanted.is_empty() && line.starts_with(unwanted) {
            return None;
        }
        let end = memchr3(b'{', b' ', b'\t', line).unwrap_or(line.len());
        let (name, after) = line.split_at(end);
        let alike = &self.by_length[end.min(LONGEST)];
        let found = alike.iter().find(|at| *self.names[**at] == *name);
        if found.is_none() {
            *unwanted = line.get(..=end).unwrap_or_default();
        }
        found.map(|at| (*at, after))
    }
}

// === impl Lines ===

impl<'p> Iterator for Lines<'p, '_> {
    type Item = Line<'p>;

    fn next(&mut self) -> Option<Line<'p>> {
        while self.start < self.page.len() {
            let end = self.newlines.next().unwrap_or(self.page.len());
            let line = &self.page[self.start..end];
            self.start = end + 1;
            let line = skip_blanks(line.strip_suffix(b"\r").unwrap_or(line));
            if let Some((family, after)) = self.wanted.find(line, &mut self.unwanted) {
                return Some(Line { family, sample: sample(after) });
            }
        }
        None
    }
}

/// Decodes what follows a name: labels, value, timestamp. An exemplar ends the line unread.
fn sample(text: &[u8]) -> Option<Sample<'_>> {
    let (labels, rest) = match skip_blanks(text) {
        [b'{', block @ ..] => Labels::split(block)?,
        rest => (Labels::default(), rest),
    };
    let (value, rest) = number(rest)?;
    let value = (value.is_finite() && value >= 0.0).then_some(value.abs());
    let rest = skip_blanks(rest);
    if matches!(rest, [] | [b'#', ..]) {
        return Some(Sample { labels, value, timestamp: None });
    }
    let (timestamp, rest) = number(rest)?;
    let ended = matches!(skip_blanks(rest), [] | [b'#', ..]);
    (ended && timestamp.is_finite()).then_some(Sample { labels, value, timestamp: Some(timestamp) })
}

/// The number at the head of `text` and what follows it.
fn number(text: &[u8]) -> Option<(f64, &[u8])> {
    let text = skip_blanks(text);
    let end = memchr::memchr2(b' ', b'\t', text).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(line: &str) -> Option<Line<'_>> {
        let wanted = Wanted::new(["m"]);
        let mut lines = lines(line.as_bytes(), &wanted);
        let first = lines.next();
        assert_eq!(lines.next(), None, "{line}");
        first
    }

    fn value(line: &str) -> Option<f64> {
        only(line)?.sample?.value
    }

    /// Mutant: dropping the `strip_suffix`, the exemplar arm or the blank handling turns a line red.
    #[test]
    fn values_read_in_both_dialects() {
        for (line, expected) in [
            ("m 7", 7.0),
            ("m 7\n", 7.0),
            ("m 7\r\n", 7.0),
            ("  m\t7", 7.0),
            ("m{} 7", 7.0),
            ("m {a=\"b\"} 7", 7.0),
            ("m{a=\"b\"}7", 7.0),
            ("m 7 1700000000000", 7.0),
            ("m 7 1700000000.123 # {trace_id=\"x\"} 0.6 1.5", 7.0),
            ("m 7 # {trace_id=\"x\"} 0.6", 7.0),
            ("m 1.7e+1", 17.0),
            ("m +.5", 0.5),
            ("m -0", 0.0),
        ] {
            assert_eq!(value(line), Some(expected), "{line}");
        }
        assert!(value("m -0").unwrap().is_sign_positive());
    }

    /// Mutant: letting `value` through unchecked makes the first five read.
    #[test]
    fn no_number_and_no_reading_differ() {
        for line in ["m NaN", "m +Inf", "m -inf", "m -3", "m 1e999"] {
            assert_eq!(only(line).unwrap().sample.map(|s| s.value), Some(None), "{line}");
        }
        for line in
            ["m", "m ", "m seven", "m 7 x", "m 7 NaN", "m 7 1 2", "m{ 7", "m{a=b} 7", "m 7#"]
        {
            assert_eq!(only(line).unwrap().sample, None, "{line}");
        }
        for line in ["", "# m 7", "#m 7", "mm 7", "m_total 7", "n 7", "{\"m\"} 7", "\r", "7 m"] {
            assert_eq!(only(line), None, "{line}");
        }
    }

    /// Mutants: a length counted one too long loses every family; an unwanted name kept without the byte
    /// behind it hides those that it begins.
    #[test]
    fn names_that_share_a_prefix_keep_their_index() {
        let wanted = Wanted::new(["v:a", "v:a_total", "v:b", ""]);
        let page = b"v: 0\nv:b 1\nv:a_ 9\nv:a_total 2\nv:a 3\nv:a_other 4\nv: 5\n{x=\"y\"} 6\n 7\n";
        let found: Vec<_> =
            lines(page, &wanted).map(|l| (l.family, l.sample.unwrap().value.unwrap())).collect();
        assert_eq!(found, [(2, 1.0), (1, 2.0), (0, 3.0)]);
        assert_eq!(lines(page, &Wanted::new([])).count(), 0);
    }
}
