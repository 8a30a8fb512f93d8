//! Numbers with a meaning: text forms of durations and sizes as Go programs spell them.
//!
//! Decides how such a text reads and prints; knows no flag or key. Durations are exact to the
//! nanosecond.

use std::fmt::{self, Write as _};
use std::time::Duration;

/// Why a text is no Go duration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationError {
    text: String,
    rule: &'static str,
}

impl fmt::Display for DurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in duration {:?}", self.rule, self.text)
    }
}

impl std::error::Error for DurationError {}

/// Units of Go's `time.ParseDuration`, in nanoseconds.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// A duration as Go prints and parses it: `200ms`, `1m30s`, `1.5h`, `-5s`.
///
/// Signed, because Go's is: a rule such as "must be positive" belongs to the field, not to the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration {
    /// Nanoseconds, as in Go an `int64`.
    pub nanos: i64,
}

impl GoDuration {
    /// The same length of time, or `None` when negative.
    pub fn to_std(self) -> Option<Duration> {
        u64::try_from(self.nanos).ok().map(Duration::from_nanos)
    }

    /// Reads the grammar of Go's `time.ParseDuration`: an optional sign, then numbers with units;
    /// a bare `0` needs no unit.
    ///
    /// # Errors
    /// [`DurationError`] with Go's own wording of the rule.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let fail = |rule| DurationError { text: text.to_owned(), rule };
        let (negative, mut rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if rest == "0" {
            return Ok(Self { nanos: 0 });
        }
        if rest.is_empty() {
            return Err(fail("no number"));
        }
        let mut exact: i128 = 0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
            let number = &rest[..digits];
            if !number.bytes().any(|b| b.is_ascii_digit()) || number.matches('.').count() > 1 {
                return Err(fail("invalid number"));
            }
            rest = &rest[digits..];
            let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
            let unit = &rest[..letters];
            if unit.is_empty() {
                return Err(fail("missing unit"));
            }
            let Some((_, nanos)) = UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(fail("unknown unit"));
            };
            rest = &rest[letters..];
            exact += scaled(number, *nanos).ok_or_else(|| fail("invalid number"))?;
        }
        let signed = if negative { -exact } else { exact };
        i64::try_from(signed).map(|nanos| Self { nanos }).map_err(|_| fail("out of range"))
    }
}

/// `number` (digits with at most one point) times `unit` nanoseconds, cut towards zero as Go does.
fn scaled(number: &str, unit: u64) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen digits are finer than a nanosecond of an hour; more would overflow for nothing.
    let fraction = &fraction[..fraction.len().min(18)];
    let part = if fraction.is_empty() {
        0
    } else {
        let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
        fraction.parse::<i128>().ok()? * i128::from(unit) / scale
    };
    whole.checked_mul(i128::from(unit))?.checked_add(part)
}

impl From<Duration> for GoDuration {
    /// Lengths over 292 years become the longest that Go has.
    fn from(duration: Duration) -> Self {
        Self { nanos: i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX) }
    }
}

impl fmt::Display for GoDuration {
    /// Go's `Duration.String`: `200ms`, `1m30s`, `1.5s`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.nanos.unsigned_abs();
        if self.nanos < 0 {
            f.write_char('-')?;
        }
        let (unit, name) = match nanos {
            0 => return f.write_str("0s"),
            1..1_000 => (1, "ns"),
            1_000..1_000_000 => (1_000, "µs"),
            1_000_000..1_000_000_000 => (1_000_000, "ms"),
            _ => {
                let (seconds, sub) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
                let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
                if hours > 0 {
                    write!(f, "{hours}h{minutes}m")?;
                } else if minutes > 0 {
                    write!(f, "{minutes}m")?;
                }
                return write_decimal(f, seconds % 60, sub, 9, "s");
            }
        };
        let digits = match unit {
            1 => 0,
            1_000 => 3,
            _ => 6,
        };
        write_decimal(f, nanos / unit, nanos % unit, digits, name)
    }
}

/// `whole.fraction unit` with trailing zeros of the fraction cut.
fn write_decimal(
    f: &mut fmt::Formatter<'_>,
    whole: u64,
    fraction: u64,
    digits: usize,
    unit: &str,
) -> fmt::Result {
    write!(f, "{whole}")?;
    if fraction > 0 {
        let text = format!("{fraction:0digits$}");
        write!(f, ".{}", text.trim_end_matches('0'))?;
    }
    f.write_str(unit)
}

/// Reads a size in bytes as upstream's flags do: one trailing `B` or `b` is dropped, then a Kubernetes
/// quantity with an optional suffix `k M G` (decimal) or `Ki Mi Gi` (binary).
///
/// # Errors
/// A text that names the rule.
pub fn parse_bytes(text: &str) -> Result<usize, String> {
    const SUFFIXES: [(&str, usize); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let quantity = text.strip_suffix(['B', 'b']).unwrap_or(text);
    let (digits, unit) = SUFFIXES
        .iter()
        .find_map(|(suffix, unit)| quantity.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((quantity, 1));
    let all_digits = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    let number = if all_digits { digits.parse::<usize>().ok() } else { None };
    number
        .and_then(|number| number.checked_mul(unit))
        .ok_or_else(|| format!("{text:?} is no size in bytes such as 64Mi or 20MB"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutant: dropping a unit's factor, or the sign, turns a line red.
    #[test]
    fn durations_read_and_print_as_in_go() {
        for (text, nanos, printed) in [
            ("200ms", 200_000_000, "200ms"),
            ("0", 0, "0s"),
            ("1m30s", 90_000_000_000, "1m30s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("-5s", -5_000_000_000, "-5s"),
            ("1500us", 1_500_000, "1.5ms"),
            ("+1ns", 1, "1ns"),
            (".5s", 500_000_000, "500ms"),
            ("2.s", 2_000_000_000, "2s"),
            ("1h0m0.000000001s", 3_600_000_000_001, "1h0m0.000000001s"),
        ] {
            let parsed = GoDuration::parse(text).unwrap();
            assert_eq!(parsed.nanos, nanos, "{text}");
            assert_eq!(parsed.to_string(), printed, "{text}");
        }
    }

    #[test]
    fn bad_durations_name_the_rule() {
        for (text, rule) in [
            ("", "no number"),
            ("200", "missing unit"),
            ("5x", "unknown unit"),
            ("ms", "invalid number"),
            ("1..5s", "invalid number"),
            ("300000h1000000000h", "out of range"),
        ] {
            let error = GoDuration::parse(text).unwrap_err().to_string();
            assert!(error.contains(rule), "{text}: {error}");
        }
    }

    /// Mutant: a binary suffix read as decimal, or the trailing B kept.
    #[test]
    fn sizes_read_as_upstream_reads_them() {
        for (text, bytes) in
            [("10Mi", 10 << 20), ("10MiB", 10 << 20), ("20MB", 20_000_000), ("7", 7), ("1k", 1000)]
        {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text}");
        }
        for text in ["10invalid", "abc", "-10Mi", "10Ei", "", "+5", "Mi"] {
            assert!(parse_bytes(text).is_err(), "{text}");
        }
    }
}
