//! What is read from any response, however it is cut, and what the client gets of it.

use proptest::prelude::*;
use serde_json::Value;

use super::{ResponseHead, ResponseReader, Restore, Usage};

const SSE: &str = "text/event-stream";
const JSON: &str = "application/json";

fn head(content_type: &str) -> ResponseHead<'_> {
    ResponseHead { content_type: Some(content_type), content_encoding: None, status: 200 }
}

fn names(target: &str, incoming: &str) -> Option<Restore> {
    Some(Restore { target: target.into(), incoming: incoming.into() })
}

/// Feeds `body` in pieces that end at `cuts`, the last one as the end.
fn pass(reader: &mut ResponseReader, body: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (body.len() + 1)).collect();
    cuts.sort_unstable();
    let (mut out, mut from) = (Vec::new(), 0);
    for cut in cuts {
        out.extend(reader.feed(body[from..cut].to_vec(), false));
        from = cut;
    }
    out.extend(reader.feed(body[from..].to_vec(), true));
    out
}

/// Everything that was read of `body`.
fn read(content_type: &str, body: &[u8], cuts: &[usize]) -> (Option<Usage>, u64, bool, bool) {
    let mut reader = ResponseReader::new(head(content_type), None);
    assert_eq!(pass(&mut reader, body, cuts), body);
    (reader.usage(), reader.events(), reader.done_seen(), reader.first_token_seen())
}

/// The usage of `body`, after checking that no single cut and no cut into bytes changes anything.
fn usage(content_type: &str, body: &str) -> Option<Usage> {
    let whole = read(content_type, body.as_bytes(), &[]);
    for cut in 0..=body.len() {
        assert_eq!(read(content_type, body.as_bytes(), &[cut]), whole, "cut at {cut} of {body}");
    }
    let bytes: Vec<usize> = (0..body.len()).collect();
    assert_eq!(read(content_type, body.as_bytes(), &bytes), whole, "{body}");
    whole.0
}

fn counted(prompt: u64, completion: u64, total: u64, cached: Option<u64>) -> Option<Usage> {
    Some(Usage { prompt, completion, total, cached })
}

/// `body` as the client gets it, after checking that cuts change nothing.
fn restored(content_type: &str, body: &str, target: &str, incoming: &str) -> String {
    let restore = || names(target, incoming);
    let whole = pass(&mut ResponseReader::new(head(content_type), restore()), body.as_bytes(), &[]);
    for cut in 0..=body.len() {
        let mut reader = ResponseReader::new(head(content_type), restore());
        assert_eq!(pass(&mut reader, body.as_bytes(), &[cut]), whole, "cut at {cut} of {body}");
    }
    let bytes: Vec<usize> = (0..body.len()).collect();
    let mut reader = ResponseReader::new(head(content_type), restore());
    assert_eq!(pass(&mut reader, body.as_bytes(), &bytes), whole, "{body}");
    String::from_utf8(whole).unwrap()
}

/// Mutants: `usage` at the wrong depth; a token that forgets its first piece; the prefilter
/// taken for a line whose event goes on.
#[test]
fn every_api_is_read_at_any_cut() {
    let openai = r#"{"choices":[{"text":"a, \"usage\": {"}],"usage":{"prompt_tokens":7,
        "completion_tokens":10,"total_tokens":17,"prompt_tokens_details":{"cached_tokens":3}}}"#;
    assert_eq!(usage(JSON, openai), counted(7, 10, 17, Some(3)));
    assert_eq!(usage("application/json; charset=utf-8", openai), counted(7, 10, 17, Some(3)));
    assert_eq!(usage("", openai), counted(7, 10, 17, Some(3)));
    let mixed = r#"{"usage":{"input_tokens":5,"completion_tokens":5}}"#;
    assert_eq!(usage(JSON, mixed), counted(5, 5, 10, None));
    let anthropic = r#"{"usage":{"input_tokens":3,"output_tokens":4,"cache_read_input_tokens":1}}"#;
    assert_eq!(usage(JSON, anthropic), counted(3, 4, 7, Some(1)));
    let sglang = r#"{"text":"b","meta_info":{"prompt_tokens":3,"completion_tokens":2,
        "cached_tokens":0,"finish_reason":{"type":"stop"}}}"#;
    assert_eq!(usage(JSON, sglang), counted(3, 2, 5, Some(0)));
    let chat = "data: {\"choices\":[],\"usage\":null}\n\n: ping\n\nevent: x\nid: 1\n\
        data:{\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":10,\
        \"total_tokens\":17}}\n\ndata: [DONE]\n\n";
    assert_eq!(usage(SSE, chat), counted(7, 10, 17, None));
    assert_eq!(usage(SSE, &chat.replace('\n', "\r\n")), counted(7, 10, 17, None));
    assert_eq!(usage("TEXT/Event-Stream;x=y", chat), counted(7, 10, 17, None));
    let responses = "event: response.completed\ndata: {\"type\":\"response.completed\",\
        \"response\":{\"usage\":{\"input_tokens\":31,\"output_tokens\":4,\"total_tokens\":35,\
        \"input_tokens_details\":{\"cached_tokens\":8}}}}\n\n";
    assert_eq!(usage(SSE, responses), counted(31, 4, 35, Some(8)));
    let messages = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":25,\
        \"cache_read_input_tokens\":5,\"output_tokens\":1}}}\n\n\
        data: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15,\"input_tokens\":0}}\n\n";
    assert_eq!(usage(SSE, messages), counted(25, 15, 40, Some(5)));
}

/// Mutants: usage that adds up instead of replacing; the first instead of the last of a stream; data
/// of several lines read as several texts; no end of the last line at the end of the body.
#[test]
fn streams_in_odd_shapes() {
    let told = |n: u64| {
        format!("data: {{\"usage\":{{\"prompt_tokens\":7,\"completion_tokens\":{n}}}}}\n\n")
    };
    assert_eq!(usage(SSE, &(told(1) + &told(2) + &told(9))), counted(7, 9, 16, None));
    assert_eq!(usage(SSE, told(3).trim_end()), counted(7, 3, 10, None));
    let lines = "data: {\"choices\":[],\ndata: \"usage\":{\"prompt_tokens\":7,\n\
        data:\"completion_tokens\":\ndata: 4}}\n\n";
    assert_eq!(usage(SSE, lines), counted(7, 4, 11, None));
    // Events that only one newline separates, as some servers write them.
    let tight =
        "data: {\"a\":1}\ndata: oops\ndata: {\"usage\":{\"prompt_tokens\":2}}\ndata: [DONE]\n";
    assert_eq!(usage(SSE, tight), counted(2, 0, 2, None));
    assert!(read(SSE, tight.as_bytes(), &[]).2);
    let cut = "data: {\"usage\":{\"prompt_tokens\":9\n\n";
    let next = "data: {\"usage\":{\"completion_tokens\":2}}\n\n";
    assert_eq!(usage(SSE, &(cut.to_owned() + next)), counted(0, 2, 2, None));
    let number = "data: {\"usage\":{\"prompt_tokens\":7\ndata: 8}}\n\n";
    assert_eq!(usage(SSE, number), counted(7, 0, 7, None));
    assert_eq!(usage(SSE, "datum: {\"usage\":{\"prompt_tokens\":9}}\n\n"), None);
    assert_eq!(usage(SSE, " data: {\"usage\":{\"prompt_tokens\":9}}\n\n"), None);
    let rows = "{\"usage\":{\"prompt_tokens\":1}}\n{\"usage\":{\"prompt_tokens\":2}}\n";
    assert_eq!(usage("application/x-ndjson", rows), counted(2, 0, 2, None));
}

/// Mutants: a cast of a negative number; `inf` taken for a count; an unfinished text that counts; a
/// usage at another depth that counts.
#[test]
fn what_is_no_count_is_ignored() {
    let prompt = |value: &str| {
        usage(JSON, &format!(r#"{{"usage":{{"prompt_tokens":{value},"completion_tokens":1}}}}"#))
            .map(|usage| usage.prompt)
    };
    for (value, count) in [("1024", 1024), ("\"1024\"", 1024), ("2.9", 2), ("1e3", 1000), ("0", 0)]
    {
        assert_eq!(prompt(value), Some(count), "{value}");
    }
    for value in [
        "-1",
        "null",
        "true",
        "\"\"",
        "\"x\"",
        "\"inf\"",
        "inf",
        "NaN",
        "{}",
        "[7]",
        "1e300",
        "1.",
        "9007199254740993000",
        "\"\\u0031\"",
        "{\"prompt_tokens\":5}",
        "+7",
        "00000000000000000000000000000000000000000000007",
    ] {
        let want = if value == "1." { Some(1) } else { Some(0) };
        assert_eq!(prompt(value), want, "{value}");
    }
    for body in [
        r#"{"usage":"oops"}"#,
        r#"{"usage":{}}"#,
        r#"{"usage":[{"prompt_tokens":5}]}"#,
        r#"{"usage":{"prompt_tokens":5}"#,
        r#"{"a":{"usage":{"prompt_tokens":5}}}"#,
        r#"["usage",{"prompt_tokens":5}]"#,
        r#"{"a":"\"usage\":{\"prompt_tokens\":5}"}"#,
        r#"{"a":"usage","b":{"prompt_tokens":5}}"#,
        r#"{"usage"::{"prompt_tokens":5}}"#,
        r#"oops {"usage":{"prompt_tokens":5}}"#,
        "}",
        "]",
        "",
        "\"",
        "{\"",
        "{\"\\",
        "[DONE]",
        "\0",
    ] {
        assert_eq!(usage(JSON, body), None, "{body}");
    }
    let negative = r#"{"usage":{"prompt_tokens":5,"prompt_tokens_details":{"cached_tokens":-1}}}"#;
    assert_eq!(usage(JSON, negative), counted(5, 0, 5, None));
    let twice = r#"{"usage":{"prompt_tokens":5,"prompt_tokens":6,"prompt_tokens":null}}"#;
    assert_eq!(usage(JSON, twice), counted(6, 0, 6, None));
}

/// Mutants: the terminator counted as an event; events counted by line; comments taken for tokens.
#[test]
fn events_and_first_token() {
    let mut reader = ResponseReader::new(head(SSE), None);
    let mut feed = |text: &str, end| {
        reader.feed(text.into(), end);
        (reader.events(), reader.first_token_seen(), reader.done_seen())
    };
    assert_eq!(feed(": keep-alive\n\n", false), (0, false, false));
    assert_eq!(feed("event: x\n\ndata: ", false), (0, false, false));
    assert_eq!(feed("{", false), (0, true, false));
    assert_eq!(feed("}\n", false), (0, true, false));
    assert_eq!(feed("\n", false), (1, true, false));
    assert_eq!(feed("data: [DON\n\ndata: a\ndata: b\n\n", false), (3, true, false));
    assert_eq!(feed("", false), (3, true, false));
    assert_eq!(feed("data: [DONE]", false), (3, true, false));
    assert_eq!(feed("\r\n\r\ndata: last", true), (4, true, true));
    assert_eq!(reader.chunks(), 8);
    // Blank lines with CRLF end events, and a CR before something else does not make a line blank.
    for (body, events) in [("data: a\r\n\r\ndata: b\r\n\r\n", 2), ("data: a\n\rb\ndata: c\n\n", 1)]
    {
        for cut in 0..body.len() {
            let mut reader = ResponseReader::new(head(SSE), None);
            reader.feed(body[..cut].into(), false);
            reader.feed(body[cut..].into(), false);
            assert_eq!(reader.events(), events, "{body:?} {cut}");
        }
    }
    let mut done = ResponseReader::new(head(SSE), None);
    done.feed("data: [DONE]\n\n".into(), true);
    assert!(done.done_seen() && !done.first_token_seen() && done.events() == 0);
    let mut json = ResponseReader::new(head(JSON), None);
    json.feed(Vec::new(), false);
    assert!(!json.first_token_seen());
    json.feed("{".into(), false);
    assert_eq!((json.first_token_seen(), json.events(), json.bytes()), (true, 0, 1));
}

/// Mutants: `> 400`; `done_seen` for a JSON body.
#[test]
fn heads() {
    for (status, error) in [(0, false), (200, false), (399, false), (400, true), (503, true)] {
        let head = ResponseHead { content_type: None, content_encoding: None, status };
        assert_eq!(ResponseReader::new(head, None).is_error(), error, "{status}");
    }
    let body = r#"{"model":"t","usage":{"prompt_tokens":5}}"#;
    for (content_type, encoding, read) in [
        (Some(JSON), None, true),
        (Some(JSON), Some(" Identity "), true),
        (Some(JSON), Some(""), true),
        (Some("application/problem+json"), None, true),
        (None, None, true),
        (Some(JSON), Some("gzip"), false),
        (Some("audio/mpeg"), None, false),
        (Some("text/plain; a=json"), None, false),
    ] {
        let head = ResponseHead { content_type, content_encoding: encoding, status: 200 };
        let mut reader = ResponseReader::new(head, names("t", "m"));
        let out = reader.feed(body.into(), true);
        assert_eq!(reader.usage().is_some(), read, "{content_type:?} {encoding:?}");
        assert_eq!(out != body.as_bytes(), read, "{content_type:?} {encoding:?}");
        assert!(!reader.done_seen() && reader.first_token_seen());
    }
}

/// Without a rewrite the allocation itself comes back. Mutant: a copy.
#[test]
fn a_chunk_is_moved_not_copied() {
    for content_type in [SSE, JSON, "audio/mpeg"] {
        let mut reader = ResponseReader::new(head(content_type), None);
        let chunk = b"data: {\"usage\":{\"prompt_tokens\":1}}\n\n".to_vec();
        let at = chunk.as_ptr();
        let out = reader.feed(chunk, false);
        assert_eq!(out.as_ptr(), at);
    }
    // Nor with one, where the chunk has nothing to change.
    let mut reader = ResponseReader::new(head(SSE), names("t", "m"));
    let chunk = b"data: {\"model\":\"other\"}\n\n".to_vec();
    let at = chunk.as_ptr();
    let out = reader.feed(chunk, false);
    assert_eq!(out.as_ptr(), at);
}

/// Mutants: no escapes decoded; a prefix taken for the name; keys not compared in full; a replacement
/// without escapes; the held bytes lost at a mismatch or at the end.
#[test]
fn names_are_restored_in_values_of_model_only() {
    for (body, want) in [
        (r#"{"model":"t-x"}"#, r#"{"model":"m"}"#),
        (r#"{"model" : "t-x" , "a":1}"#, r#"{"model" : "m" , "a":1}"#),
        ("{\"model\"\n\t:\r\n\"t-x\"}", "{\"model\"\n\t:\r\n\"m\"}"),
        (
            r#"{"a":[{"model":"t-x"},{"b":{"model":"t-x"}}]}"#,
            r#"{"a":[{"model":"m"},{"b":{"model":"m"}}]}"#,
        ),
        (r#"{"model":"t\",","model":"t-x"}"#, r#"{"model":"t\",","model":"m"}"#),
        (r#"{"model":"\uD83Dq","model":"t-x"}"#, r#"{"model":"\uD83Dq","model":"m"}"#),
        (r#"{"model":"t\u002dx","model":"\u0074-x"}"#, r#"{"model":"m","model":"m"}"#),
    ] {
        assert_eq!(restored(JSON, body, "t-x", "m"), want);
        let (event, wanted) = (body.replace(['\n', '\r'], " "), want.replace(['\n', '\r'], " "));
        let stream = format!("event: model\ndata: {event}\n\ndata: [DONE]\n\n");
        let want = format!("event: model\ndata: {wanted}\n\ndata: [DONE]\n\n");
        assert_eq!(restored(SSE, &stream, "t-x", "m"), want);
    }
    for body in [
        r#"{"text":"say \"model\":\"t-x\" and {\"model\": \"t-x\"}"}"#,
        r#"{"model":"t-xy","a":"t-x","model":"t-","model":"T-x","model":"at-x","model":""}"#,
        r#"{"models":"t-x","mode":"t-x","my model":"t-x","":"t-x"}"#,
        r#"["model","t-x"]"#,
        r#"{"model":["t-x"],"a":{"b":"t-x"}}"#,
        r#"{"model":{"name":"t-x"}}"#,
        r#"{"model":"t-\"x","model":"t\\-x","model":"t-x\\","model":"t-x\"","a":"t-x"}"#,
        r#"{"model":"t\u00","a":"\uD800t-x","model":"\uD83Dt-x","model":"t\q-x"}"#,
        r#"{"model":"t-"#,
        r#"{"model":"t-x"#,
        r#"{"model":"t-x\"#,
        r#"oops "model":"t-x""#,
    ] {
        assert_eq!(restored(JSON, body, "t-x", "m"), body);
        assert_eq!(
            restored(SSE, &format!("data: {body}\n\n"), "t-x", "m"),
            format!("data: {body}\n\n")
        );
        assert_eq!(
            restored(SSE, &format!("data: {body}\n"), "t-x", "m"),
            format!("data: {body}\n")
        );
    }
    // Only data is JSON, and a string does not go over a line of an event stream.
    let other =
        "model: {\"model\":\"t-x\"}\n: {\"model\":\"t-x\"}\ndata: {\"model\":\"t-\ndata: x\"}\n\n";
    assert_eq!(restored(SSE, other, "t-x", "m"), other);
    let odd = r#"{"model":"é/\ud83d\ude00\"b"}"#;
    assert_eq!(restored(JSON, odd, "é/😀\"b", "a\"\\\n"), r#"{"model":"a\"\\\u000a"}"#);
    assert_eq!(restored(JSON, r#"{"model":"\u00E9\/"}"#, "é/", "ü"), r#"{"model":"ü"}"#);
    // Halves of a surrogate pair that do not follow each other are no character.
    for (body, target) in [
        (r#"{"model":"t-x\uD83D"}"#, "t-x"),
        (r#"{"model":"\ud83dt-\ude00x"}"#, "t-😀x"),
        (r#"{"model":"\ud83d\/\ude00"}"#, "/😀"),
    ] {
        assert_eq!(restored(JSON, body, target, "m"), body);
    }
    for (target, incoming) in [("", "m"), ("t", ""), ("t", "t")] {
        let body = r#"{"model":"t","model":""}"#;
        assert_eq!(restored(JSON, body, target, incoming), body);
    }
}

/// Pieces of which a stream is put together, right and wrong.
#[rustfmt::skip]
const PIECES: [&str; 48] = [
    "data: ", "data:", "dat", "a: ", "\n", "\n\n", "\r\n", "\r", "event: e\n", ": c\n", "{", "}",
    "[", "]", ":", ",", " : ", "\"", "\\", "\\\"", "\"model\"", "\"model\":", "\"model\": \"",
    "t-x", "\"t-x\"", "t-", "x\"", "\\u002d", "\\u00", "\"usage\":", "\"usage\":null",
    "\"usage\":{", "\"prompt_tokens\":", "\"completion_tokens\":", "\"total_tokens\":", "12",
    "\"7\"", "1.5e1", "\"meta_info\":{", "\"response\":{", "\"input_tokens_details\":{",
    "\"cached_tokens\":", "}}\n\n", "[DONE]", "data: [DONE]\n\n",
    "data: {\"usage\":{\"prompt_tokens\":3}}\n\n", "data: {\"model\":\"t-x\"}\n\n", "\u{e9}",
];

fn bodies() -> impl Strategy<Value = Vec<u8>> {
    let pieces = prop::collection::vec(0..PIECES.len(), 0..40).prop_map(|picks| {
        picks.into_iter().map(|pick| PIECES[pick]).collect::<String>().into_bytes()
    });
    prop_oneof![4 => pieces, 1 => prop::collection::vec(any::<u8>(), 0..200)]
}

fn cuts() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0..2000usize, 0..12)
}

/// Any JSON, with model names and usage in it.
fn texts() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        (0u32..100).prop_map(Value::from),
        prop::sample::select(vec![
            "t-x",
            "t-",
            "é/t",
            "model",
            "usage",
            "a\"b\\",
            "\"model\":\"t-x\""
        ])
        .prop_map(Value::from),
    ];
    let key = prop::sample::select(vec![
        "model",
        "usage",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "response",
        "a",
        "a key that is longer than thirty-two bytes",
    ]);
    let any = leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((key.clone(), inner), 0..6).prop_map(|entries| {
                Value::Object(entries.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
            }),
        ]
    });
    prop_oneof![
        any.clone(),
        any.clone().prop_map(|inner| serde_json::json!({ "usage": inner })),
        (any.clone(), any).prop_map(|(a, b)| {
            serde_json::json!({ "a": a, "response": { "model": "t-x", "usage": b }, "model": "t-x" })
        }),
    ]
}

fn rename(value: &mut Value, target: &str, incoming: &str) {
    match value {
        Value::Object(entries) => entries.iter_mut().for_each(|(key, value)| match value {
            Value::String(name) if key == "model" && name == target => *name = incoming.to_owned(),
            value => rename(value, target, incoming),
        }),
        Value::Array(values) => values.iter_mut().for_each(|v| rename(v, target, incoming)),
        _ => {}
    }
}

/// The usage of a text without fractions and without numbers in strings.
fn expected(text: &Value) -> Option<Usage> {
    let mut counts = [None; 3];
    let mut collect = |usage: &Value| {
        for (slot, key) in ["prompt_tokens", "completion_tokens", "total_tokens"].iter().enumerate()
        {
            let count = usage.as_object().and_then(|usage| usage.get(*key)).and_then(Value::as_u64);
            counts[slot] = count.or(counts[slot]);
        }
    };
    for (key, value) in text.as_object()? {
        match key.as_str() {
            "usage" => collect(value),
            "response" => {
                value.as_object().and_then(|inner| inner.get("usage")).map(&mut collect);
            }
            _ => {}
        }
    }
    let [prompt, completion, total] = counts.map(Option::unwrap_or_default);
    let sum = prompt + completion;
    let total = if prompt > 0 && completion > 0 && total > 0 { total } else { sum };
    (counts != [None; 3]).then_some(Usage { prompt, completion, total, cached: None })
}

proptest! {
    #![proptest_config(crate::fixed_seed())]

    /// Mutants: `self.done` or `self.from` kept from the chunk before; a space after the colon that
    /// counts only in the same chunk; `\r` before a cut that makes a line blank.
    #[test]
    fn cuts_change_nothing(body in bodies(), a in cuts(), b in cuts(), sse in any::<bool>()) {
        let content_type = if sse { SSE } else { JSON };
        prop_assert_eq!(read(content_type, &body, &a), read(content_type, &body, &b));
        let reader = || ResponseReader::new(head(content_type), names("t-x", "\"m"));
        let (mut one, mut other) = (reader(), reader());
        let out = pass(&mut one, &body, &a);
        prop_assert_eq!(&out, &pass(&mut other, &body, &b));
        prop_assert_eq!(one.usage(), read(content_type, &body, &b).0);
        // Read again, there is nothing left to restore.
        prop_assert_eq!(&pass(&mut reader(), &out, &b), &out);
    }

    /// Mutants: holding more than a possible match; bytes left over at the end.
    #[test]
    fn little_is_held(body in bodies(), sse in any::<bool>()) {
        let content_type = if sse { SSE } else { JSON };
        let mut reader = ResponseReader::new(head(content_type), names("t-x", "t-x-but-longer"));
        let mut out = 0;
        for (at, byte) in body.iter().enumerate() {
            out += reader.feed(vec![*byte], false).len();
            prop_assert!(reader.scanner.held() <= 6 * "t-x".len() + 11);
            prop_assert!(out + reader.scanner.held() > at);
        }
        out += reader.feed(Vec::new(), true).len();
        prop_assert!(out >= body.len() && reader.scanner.held() == 0);
    }

    /// Against a JSON library. Mutants: keys of arrays; the depth of a key off by one.
    #[test]
    fn well_formed_texts_read_as_a_library_reads_them(text in texts(), spaced in any::<bool>(), at in cuts()) {
        let body = if spaced { serde_json::to_string_pretty(&text) } else { serde_json::to_string(&text) };
        let body = body.unwrap();
        let mut reader = ResponseReader::new(head(JSON), names("t-x", "new \"name\""));
        let out = pass(&mut reader, body.as_bytes(), &at);
        let mut renamed = text.clone();
        rename(&mut renamed, "t-x", "new \"name\"");
        prop_assert_eq!(serde_json::from_slice::<Value>(&out).unwrap(), renamed);
        prop_assert_eq!(reader.usage(), expected(&text));
    }
}
