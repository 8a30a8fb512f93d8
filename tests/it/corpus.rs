//! The stored fuzz corpus, replayed: whatever once broke a reader stays fixed.

mod replay;

/// Replays every file of one target's folder.
fn each(target: &str, replay: impl Fn(&[u8])) {
    let folder = format!("{}/tests/data/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder}: {e}"));
    let mut count = 0;
    for file in files {
        replay(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "{folder} is empty");
}

/// Mutant: an index past the end of a line in `exposition`.
#[test]
fn exposition() {
    each("exposition", replay::exposition);
}

/// Mutant: an `unwrap` on an entry's port.
#[test]
fn endpoints_document() {
    each("endpoints_document", replay::endpoints_document);
}

/// Mutant: an `unwrap` on the place of a key.
#[test]
fn scaling_config() {
    each("scaling_config", replay::scaling_config);
}

/// Mutant: an `unwrap` on a mapping's entry.
#[test]
fn engines_document() {
    each("engines_document", replay::engines_document);
}

/// Mutant: an `unwrap` on the number of a field.
#[test]
fn detector_params() {
    each("detector_params", replay::detector_params);
}

/// Mutant: forgetting at a cut where a name began.
#[test]
fn response_body() {
    each("response_body", replay::response_body);
}

/// Mutant: answering request headers twice.
#[test]
fn session() {
    each("session", replay::session);
}

/// Mutant: the pending half of a surrogate pair dropped at the end of a piece.
#[test]
fn request_body() {
    each("request_body", replay::request_body);
}
