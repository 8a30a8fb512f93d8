//! See `replay`: the same function that `make test` runs over the stored corpus.
#![no_main]

#[path = "../../tests/it/corpus/replay.rs"]
mod replay;

libfuzzer_sys::fuzz_target!(|data: &[u8]| replay::engines_document(data));
