//! The rules of the endpoint file, one by one.

use super::*;

fn good(text: &str) -> Parsed {
    parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The error with its cause, as a log line shows it.
fn refused(text: &str) -> String {
    let error = parse(text.as_bytes()).expect_err(text);
    match std::error::Error::source(&error) {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}

fn texts(parsed: &Parsed) -> Vec<String> {
    parsed.endpoints.iter().map(|e| format!("{}={}", e.id, e.address)).collect()
}

/// An entry with `field` replaced, beside a good one.
fn with(field: &str, value: &str) -> String {
    let mut fields = vec![("name", "a"), ("address", "10.0.0.1"), ("port", "\"8000\"")];
    fields.retain(|(name, _)| *name != field);
    if !value.is_empty() {
        fields.push((field, value));
    }
    let entry: Vec<_> = fields.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    format!(
        "endpoints:\n- {{{}}}\n- {{name: good, address: 10.0.0.2, port: \"1\"}}\n",
        entry.join(", ")
    )
}

/// Mutants: default namespace left out, labels dropped, JSON with tabs refused, `null` not absent.
#[test]
fn good_files_in_yaml_and_json() {
    let parsed = good(
        "# pool\nendpoints:\n- {name: ep1, namespace: ns1, address: 10.0.0.1, port: \"8000\", \
         labels: {llm-d.ai/role: decode, empty: null}}\n- {NAME: ep2, Address: 10.0.0.2, port: 8001, \
         namespace: null, labels: null}\n",
    );
    assert_eq!(texts(&parsed), ["default/ep2=10.0.0.2:8001", "ns1/ep1=10.0.0.1:8000"]);
    let labels: Vec<_> =
        parsed.endpoints[1].labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(labels, ["empty=", "llm-d.ai/role=decode"]);
    assert_eq!((parsed.rejected.len(), parsed.warnings.len()), (0, 0));

    let json = "{\n\t\"endpoints\": [\n\t\t{\"name\": \"a\", \"address\": \"::1\", \"port\": \"80\"}\n\t]\n}\n";
    assert_eq!(texts(&good(json)), ["default/a=[::1]:80"]);
    assert_eq!(texts(&good("\u{feff}endpoints: []\n")), [""; 0]);
}

/// Mutant: letting any of these through as an empty pool.
#[test]
fn structural_faults_refuse_the_file() {
    let entry = "{name: a, address: 10.0.0.1, port: \"1\"}";
    for (text, expected) in [
        (String::new(), "the file is empty"),
        ("# nothing\n---\n".to_owned(), "the file is empty"),
        ("- 1\n".to_owned(), "with the key \"endpoints\", it is a list"),
        ("{}".to_owned(), "the key \"endpoints\" is missing"),
        ("endpoints:\n".to_owned(), "line 1: endpoints must be a list, it is null"),
        ("endpoints: {a: 1}".to_owned(), "endpoints must be a list, it is a mapping"),
        (
            format!("\nendpoint: [{entry}]\n"),
            "line 2: top level: key \"endpoint\" is unknown, did you mean \"endpoints\"? \
             (known: endpoints)",
        ),
        (
            format!("endpoints: [{entry}]\nother: 1\n"),
            "key \"other\" is unknown (known: endpoints)",
        ),
        (
            "endpoints:\n- name: a\n  adress: 10.0.0.1\n  port: \"1\"\n".to_owned(),
            "line 3: endpoints[0]: key \"adress\" is unknown, did you mean \"address\"? \
             (known: name, namespace, address, port, labels)",
        ),
        (format!("endpoints: [{entry}]\nEndpoints: []\n"), "key \"Endpoints\" is given twice"),
        ("endpoints: [{labl: {}}]".to_owned(), "\"labl\" is unknown, did you mean \"labels\"?"),
        ("endpoints: [{name: a, name: b}]".to_owned(), "duplicate mapping key"),
    ] {
        let error = refused(&text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
    let all = refused("endpoints: [{nam: a}, {prt: 1}]\nx: 1\n");
    for key in ["\"nam\"", "\"prt\"", "\"x\""] {
        assert!(all.contains(key), "{all}");
    }
}

/// Mutant: a position that is dropped from the message.
#[test]
fn syntax_errors_have_a_position() {
    for (text, position) in [
        ("endpoints: [", "line 1"),
        ("endpoints:\n- {name: a\n", "line 2, column 3"),
        ("endpoints: []\n}\n", "line 2"),
        ("endpoints: []\n---\na: [\n", "line 3, column 4"),
    ] {
        let error = refused(text);
        assert!(error.contains(position), "{text}: {error}");
    }
}

/// Mutants: `>` for `>=`-style slips at the limit, a lossy decode.
#[test]
fn size_and_encoding_are_bounded() {
    let mut text = b"endpoints: []\n#".to_vec();
    text.resize(MAX_BYTES, b'x');
    assert_eq!(parse(&text).unwrap(), Parsed::default());
    text.push(b'x');
    assert!(matches!(parse(&text), Err(DocumentError::TooLarge(size)) if size == MAX_BYTES + 1));
    let error = parse(b"endpoints: [] # \xff\n").unwrap_err();
    assert!(matches!(error, DocumentError::NotUtf8(16)), "{error}");
}

/// The largest file in full use stays within the parser's own limits. Mutant: a budget of 10,000 nodes.
#[test]
fn a_megabyte_of_entries_is_read() {
    let mut text = "endpoints:\n".to_owned();
    let mut count = 0_usize;
    while text.len() + 60 < MAX_BYTES / 4 {
        let (b, c) = (count / 256, count % 256);
        text.push_str(&format!("- {{name: e{count}, address: 10.0.{b}.{c}, port: 80}}\n"));
        count += 1;
    }
    assert_eq!(good(&text).endpoints.len(), count);
}

/// Mutant: each rule removed lets its line through; the good neighbour must stay in any case.
#[test]
fn a_bad_entry_costs_itself() {
    for (field, value, fault) in [
        ("address", "yy", "address \"yy\" is not an IP address (host names are not resolved)"),
        ("address", "10.0.0.01", "address \"10.0.0.01\" is not an IP address"),
        ("address", "", "address is missing or empty"),
        ("address", "1", "address must be text, it is a number (quote it)"),
        ("port", "\"+8000\"", "port \"+8000\" is not a number from 1 to 65535 without sign"),
        ("port", "\"08000\"", "port \"08000\" is not a number"),
        ("port", "08000", "port \"08000\" is not a number"),
        ("port", "8_000", "port \"8_000\" is not a number"),
        ("port", "\"99999\"", "port \"99999\" is not a number"),
        ("port", "\"0\"", "port \"0\" is not a number"),
        ("port", "0", "port 0 is not a number"),
        ("port", "65536", "port 65536 is not a number"),
        ("port", "-1", "port -1 is not a number"),
        ("port", "80.5", "port must be text or a whole number, it is a number"),
        ("port", "", "port is missing"),
        ("name", "", "name is missing or empty"),
        ("name", "\"\"", "name is missing or empty"),
        ("name", "7", "name must be text, it is a number (quote it)"),
        ("labels", "[x]", "labels must be a mapping, it is a list"),
        ("labels", "{v: 1}", "labels[\"v\"] must be text, it is a number (quote it)"),
    ] {
        let parsed = good(&with(field, value));
        assert_eq!(texts(&parsed), ["default/good=10.0.0.2:1"], "{field}: {value}");
        assert_eq!(parsed.rejected[0].faults.len(), 1, "{:?}", parsed.rejected);
        let error = parsed.rejected[0].to_string();
        assert!(error.starts_with("line 2: endpoints[0] "), "{error}");
        assert!(error.contains(fault), "{error}");
    }
    let parsed = good("endpoints: [null, {name: a, address: 10.0.0.1, port: 65535}]");
    assert!(parsed.rejected[0].to_string().contains("must be a mapping, it is null"));
    assert_eq!(texts(&parsed), ["default/a=10.0.0.1:65535"]);

    let error = refused("endpoints: [{name: a, address: x, port: y}, {name: b}]");
    for part in ["no entry is valid", "\"a\": address \"x\"", "; port \"y\"", "endpoints[1] \"b\""]
    {
        assert!(error.contains(part), "{error}");
    }
}

/// Mutants: first wins, a silent duplicate, a shared address dropped.
#[test]
fn doubtful_files_are_used_with_a_warning() {
    let warnings = |text| {
        let parsed = good(text);
        let warnings: Vec<_> = parsed.warnings.iter().map(Warning::to_string).collect();
        (texts(&parsed), warnings)
    };
    assert_eq!(
        warnings(
            "endpoints: [{name: a, address: 10.0.0.1, port: 1}, {name: a, address: 10.0.0.2, port: 1}]"
        ),
        (
            vec!["default/a=10.0.0.2:1".to_owned()],
            vec!["endpoint default/a is given more than once, endpoints[1] counts".to_owned()]
        )
    );
    assert_eq!(
        warnings(
            "endpoints: [{name: a, address: 10.0.0.1, port: 1}, {name: b, address: '::ffff:10.0.0.1', port: 1}]"
        ),
        (
            vec!["default/a=10.0.0.1:1".to_owned(), "default/b=10.0.0.1:1".to_owned()],
            vec![
                "default/a and default/b share the address 10.0.0.1:1: it counts twice".to_owned()
            ]
        )
    );
    assert_eq!(
        warnings("endpoints: []\n---\nendpoints: [{name: b}]\n"),
        (vec![], vec!["only the first YAML document is used".to_owned()])
    );
}
