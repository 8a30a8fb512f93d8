//! Every dependency's licence is one that a user may ship without asking a lawyer.

use std::process::Command;

use serde_json::Value;

/// Permissive licences. A new one is a decision: read it, then add it.
const ALLOWED: &[&str] = &[
    "MIT",
    "MIT-0",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Unicode-3.0",
    "Zlib",
    "0BSD",
    "CC0-1.0",
    "BSL-1.0",
    "Unlicense",
];

/// Whether an SPDX expression can be satisfied from [`ALLOWED`]. `/` is the old spelling of `OR`.
fn allowed(expression: &str) -> bool {
    let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = spaced.split_whitespace().peekable();
    let verdict = any(&mut words);
    verdict && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>) -> bool {
    let mut verdict = all(words);
    while words.next_if_eq(&"OR").is_some() {
        verdict |= all(words);
    }
    verdict
}

fn all(words: &mut Words<'_>) -> bool {
    let mut verdict = one(words);
    while words.next_if_eq(&"AND").is_some() {
        verdict &= one(words);
    }
    verdict
}

fn one(words: &mut Words<'_>) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let verdict = any(words);
        return words.next() == Some(")") && verdict;
    }
    match words.next_if_eq(&"WITH").and_then(|_| words.next()) {
        Some(exception) => ALLOWED.contains(&format!("{word} WITH {exception}").as_str()),
        None => ALLOWED.contains(&word),
    }
}

/// The target triple of this machine.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap().to_owned()
}

/// Mutant: `MIT` taken out of the list.
#[test]
fn every_licence_is_permissive() {
    let output = Command::new(env!("CARGO"))
        // What is built here; crates of other systems are not even downloaded.
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", &host()])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 100, "the tree was not read");
    let wrong: Vec<_> = packages
        .iter()
        .filter(|package| !allowed(package["license"].as_str().unwrap_or("")))
        .map(|package| {
            format!("{} {}: {}", package["name"], package["version"], package["license"])
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Mutant: `|=` for `&=`, or parentheses ignored.
#[test]
fn copyleft_is_refused() {
    for (expression, verdict) in [
        ("MIT OR Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("MIT/Apache-2.0", true),
        ("LGPL-3.0", false),
        ("MIT AND GPL-2.0", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND GPL-2.0", false),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", true),
        ("MIT Apache-2.0", false),
        ("", false),
    ] {
        assert_eq!(allowed(expression), verdict, "{expression}");
    }
}
