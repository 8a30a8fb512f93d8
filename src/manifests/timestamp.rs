//! Creation times: RFC 3339 text to seconds since 1970.
//!
//! Decides what counts as a time; fractions of a second are cut, as Kubernetes stores none.

/// Seconds since 1970 of `2026-08-22T10:00:00Z` and its like, `None` if it is no time.
pub(super) fn parse(text: &str) -> Option<i64> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, offset) = time.split_at_checked(8)?;
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let zone = match offset.strip_prefix('.') {
        None => offset,
        Some(fraction) => {
            let zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            (zone.len() < fraction.len()).then_some(zone)?
        }
    };
    let east = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        ("+", rest) => minutes(rest)?,
        ("-", rest) => -minutes(rest)?,
        _ => return None,
    };
    let valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    valid.then(|| days(year, month, day) * 86_400 + hour * 3_600 + minute * 60 + second - east * 60)
}

/// Digits of exactly these widths between separators.
fn numbers(text: &str, separator: char, widths: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut found = [0; 3];
    for (number, width) in found.iter_mut().zip(widths) {
        *number = digits(parts.next()?, width)?;
    }
    parts.next().is_none().then_some(found)
}

fn digits(text: &str, width: usize) -> Option<i64> {
    let good = text.len() == width && text.bytes().all(|b| b.is_ascii_digit());
    good.then(|| text.parse().ok()).flatten()
}

/// `hh:mm` as minutes.
fn minutes(text: &str) -> Option<i64> {
    let (hours, minutes) = text.split_once(':')?;
    Some(digits(hours, 2)? * 60 + digits(minutes, 2)?)
}

/// Days from 1970-01-01 in the Gregorian calendar. Years are counted from March, so that the leap day
/// is the last of its year; a month's start is then a linear formula.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: no leap day in 2000, an offset with the wrong sign, a day counted from 0.
    #[test]
    fn times_are_seconds_since_1970() {
        let cases = [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T00:00:00Z", Some(951_782_400)),
            ("2000-03-01T00:00:00Z", Some(951_868_800)),
            ("2100-03-01T00:00:00Z", Some(4_107_542_400)),
            ("2026-08-22T10:00:00.25+02:00", Some(1_787_385_600)),
            ("2026-08-22t08:00:00z", Some(1_787_385_600)),
            ("1969-12-31T23:59:59Z", Some(-1)),
            ("2026-08-22", None),
            ("2026-13-22T10:00:00Z", None),
            ("2026-08-22T10:00:00", None),
            ("2026-08-22T10:00:00.Z", None),
            ("2026-8-22T10:00:00Z", None),
            ("2026-08-22T10:00:0\u{e9}Z", None),
            ("now", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text}");
        }
    }
}
