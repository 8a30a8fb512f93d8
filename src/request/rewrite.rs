//! A model's name replaced in a body, and nothing else.
//!
//! Decides how the new name is written; where the old one stands was found by the reader.

use super::Model;

/// Puts `new` in the place of the JSON string that named `model` in the body that `chunks` are: exactly
/// the bytes of that string change, all others stay as they came, across any cut. Chunks may become
/// empty, none is removed.
///
/// False, and nothing changed, when the name has no place in the bytes (a compressed body) or the
/// chunks are not the body that was read.
#[must_use]
pub fn rewrite_model(chunks: &mut [Vec<u8>], model: &Model, new: &str) -> bool {
    let Some(span) = &model.span else { return false };
    let length: u64 = chunks.iter().map(|chunk| chunk.len() as u64).sum();
    if span.start >= span.end || span.end > length {
        return false;
    }
    let (mut base, mut name) = (0, Some(quoted(new)));
    for chunk in chunks {
        let length = chunk.len() as u64;
        // The part of the old name in this chunk.
        let within =
            |at: u64| usize::try_from(at.clamp(base, base + length) - base).unwrap_or(chunk.len());
        let (start, end) = (within(span.start), within(span.end));
        if start < end {
            chunk.splice(start..end, name.take().unwrap_or_default());
        }
        base += length;
    }
    true
}

/// Gives a body, a JSON object with at least one member, the model `new`. It goes behind the last member:
/// a server takes the last of several, so one that was no string does not win.
///
/// False, and nothing changed, when the chunks do not end as an object does.
#[must_use]
pub fn insert_model(chunks: &mut [Vec<u8>], new: &str) -> bool {
    for chunk in chunks.iter_mut().rev() {
        let Some(end) = chunk.iter().rposition(|b| !b.is_ascii_whitespace()) else { continue };
        if chunk[end] != b'}' {
            return false;
        }
        let member = [b",\"model\":".as_slice(), &quoted(new)].concat();
        chunk.splice(end..end, member);
        return true;
    }
    false
}

/// `text` as a JSON string.
fn quoted(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() + 2);
    bytes.push(b'"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => bytes.extend([b'\\', byte]),
            0..=0x1f => bytes.extend(format!("\\u{byte:04x}").bytes()),
            _ => bytes.push(byte),
        }
    }
    bytes.push(b'"');
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: in front of the first member; at the end of the last chunk instead of the object.
    #[test]
    fn a_model_is_inserted_behind_the_last_member() {
        let mut chunks = vec![b"{\"prompt\":\"}\"".to_vec(), b"}".to_vec(), b" \n".to_vec()];
        assert!(insert_model(&mut chunks, "a\"b"));
        let text = String::from_utf8(chunks.concat()).unwrap();
        assert_eq!(text, "{\"prompt\":\"}\",\"model\":\"a\\\"b\"} \n");
        assert!(!insert_model(&mut [b"[]".to_vec()], "m"));
        assert!(!insert_model(&mut [], "m"));
    }
}
