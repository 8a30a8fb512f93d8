//! Recorded answers and ours in one normal form, told in a line.
//!
//! Taken away is what the table of differences names for every answer: mirrored headers and
//! `Content-Length` and `x-went-into-resp-headers` of theirs; which endpoint was picked; random ids.
//! Beyond it, what the design names for every answer, each checked of ours before it is taken away: an
//! explicit overwrite with every header, `details` with every immediate response, and where a body is
//! cut (at most 62,000 bytes a piece). Of an end only the code is compared: the text is the library's.

use std::collections::BTreeSet;

use envoy_types::pb::envoy::service::ext_proc::v3::body_mutation::Mutation;
use envoy_types::pb::envoy::service::ext_proc::v3::processing_response::Response;
use envoy_types::pb::envoy::service::ext_proc::v3::{ProcessingResponse, StreamedBodyResponse};
use plumbline::conformance::answer::{describe, digest};
use plumbline::conformance::play::{Answer, Said};
use serde_json::{Value, json};

/// The pool of every recorded setup.
pub const POOL: [&str; 2] = ["127.0.7.1:8000", "127.0.7.2:8000"];
/// Stands for it where it is saturated.
pub const SATURATED_POOL: [&str; 2] = ["127.0.7.3:8000", "127.0.7.4:8000"];

/// Recorded answers in a line.
pub fn recorded(request: &[Value], response: &[Value]) -> String {
    let each = response.iter().flat_map(|answer| {
        let times = answer["times"].as_u64().unwrap_or(1);
        (0..times).map(move |_| answer.clone())
    });
    line(each.map(|answer| normal(request, answer, false)))
}

/// The same, for pacing; what is no list of answers paces nothing.
pub fn recorded_or_summary(request: &[Value], response: &[Value]) -> String {
    let plain = response.iter().all(|answer| answer.get("after").is_some());
    if plain { recorded(request, response) } else { String::new() }
}

/// Ours in a line, cut like the recorded ones.
pub fn ours(request: &[Value], response: &[Value], answers: &[Answer], open: bool) -> String {
    let mut told: Vec<_> = recut(answers, response)
        .iter()
        .map(|answer| normal(request, describe(answer), true))
        .collect();
    if open {
        told.push(json!({ "end": "open" }));
    }
    line(told.into_iter())
}

/// The endpoints that answers name.
pub fn picks(answers: &[Answer]) -> BTreeSet<String> {
    let destination = |answer: &Answer| match &answer.said {
        Said::Message(message) => plumbline::conformance::expect::destination(message),
        Said::End { .. } => None,
    };
    answers.iter().filter_map(destination).collect()
}

fn normal(request: &[Value], mut answer: Value, ours: bool) -> Value {
    for (kind, field) in [
        ("request_headers", "set"),
        ("response_headers", "set"),
        ("request_body", "set"),
        ("response_body", "set"),
        ("immediate_response", "headers"),
    ] {
        let set = answer.get_mut(kind).and_then(|said| said.get_mut(field));
        if let Some(set) = set.and_then(Value::as_array_mut) {
            set.retain(|header| ours || !is_mirror(request, kind, header));
            set.iter_mut().for_each(|header| normal_header(header, ours));
        }
    }
    if let Some(immediate) = answer.get_mut("immediate_response") {
        if ours {
            assert_ne!(immediate["details"], "", "{immediate}");
        }
        immediate.as_object_mut().unwrap().remove("details");
    }
    if let Some(to) =
        answer.pointer_mut("/dynamic_metadata/envoy.lb/x-gateway-destination-endpoint")
    {
        normal_endpoint(to);
    }
    if let Some(code) = answer.pointer("/end/code").cloned() {
        answer["end"] = code;
    }
    answer
}

/// What the Go picker sets on every answer, and we never do.
fn is_mirror(request: &[Value], step: &str, header: &Value) -> bool {
    let key = header[0].as_str().unwrap();
    if key == "Content-Length" || key == "x-went-into-resp-headers" {
        return true;
    }
    let came = request.iter().filter_map(|said| said[step].as_array()).flatten();
    let value = |given: &Value| match given {
        Value::Object(fields) if fields.contains_key("raw") => fields["raw"].clone(),
        Value::Object(fields) if fields.contains_key("value") => fields["value"].clone(),
        other => other.clone(),
    };
    key != "x-gateway-destination-endpoint"
        && came
            .filter(|pair| pair[0].as_str().is_some_and(|name| name.eq_ignore_ascii_case(key)))
            .any(|pair| value(&pair[1]) == header[1])
}

fn normal_header(header: &mut Value, ours: bool) {
    if ours {
        let explicit = json!({ "append_action": "OVERWRITE_IF_EXISTS_OR_ADD" });
        assert_eq!(header.get(2), Some(&explicit), "{header}");
        header.as_array_mut().unwrap().truncate(2);
    }
    if header[0] == "x-gateway-destination-endpoint" {
        normal_endpoint(&mut header[1]);
    }
    if header[0] == "x-request-id" && header[1].as_str().is_some_and(is_uuid) {
        header[1] = "<uuid>".into();
    }
}

fn normal_endpoint(to: &mut Value) {
    if to.as_str().is_some_and(|to| [POOL, SATURATED_POOL].concat().contains(&to)) {
        *to = "<endpoint>".into();
    }
}

fn is_uuid(text: &str) -> bool {
    let lengths: Vec<_> = text.split('-').map(str::len).collect();
    lengths == [8, 4, 4, 4, 12] && text.chars().all(|c| c == '-' || c.is_ascii_hexdigit())
}

/// One answer a token, tokens apart by `; `, as many equal ones in a row as `×n` says.
fn line(answers: impl Iterator<Item = Value>) -> String {
    let mut tokens: Vec<(String, usize)> = Vec::new();
    for token in answers.map(|answer| token(&answer)) {
        match tokens.last_mut() {
            Some((last, times)) if *last == token => *times += 1,
            _ => tokens.push((token, 1)),
        }
    }
    let told = tokens.into_iter().map(|(token, times)| match times {
        1 => token,
        times => format!("{token} ×{times}"),
    });
    told.collect::<Vec<_>>().join("; ")
}

fn token(answer: &Value) -> String {
    let after = answer["after"].as_u64().map_or("-".to_owned(), |after| after.to_string());
    let mut rest = answer.as_object().unwrap().clone();
    rest.remove("after");
    rest.remove("times");
    let steered = json!({ "envoy.lb": { "x-gateway-destination-endpoint": "<endpoint>" } });
    let metadata = rest.remove("dynamic_metadata");
    let metadata = match metadata {
        None => String::new(),
        Some(metadata) if metadata == steered => " meta".to_owned(),
        Some(metadata) => format!(" meta {metadata}"),
    };
    let (kind, value) = rest.iter().next().expect("an answer says something");
    assert_eq!(rest.len(), 1, "{rest:?}");
    let told = match kind.as_str() {
        "request_headers" => format!("RH{}", headers(value, true)),
        "response_headers" => format!("SH{}", headers(value, false)),
        "request_body" => format!("RB{}", body(value)),
        "response_body" => format!("SB{}", body(value)),
        "request_trailers" if value == &json!({}) => "RT".to_owned(),
        "response_trailers" if value == &json!({}) => "ST".to_owned(),
        "immediate_response" => {
            let mut value = value.as_object().unwrap().clone();
            let (status, body) = (value.remove("status").unwrap(), value.remove("body").unwrap());
            let headers = value.remove("headers").unwrap();
            let headers: String = headers.as_array().unwrap().iter().map(pair).collect();
            let rest = if value.is_empty() { String::new() } else { format!(" {value:?}") };
            format!("IMMEDIATE {status}{headers} {body}{rest}")
        }
        "end" => value.as_str().unwrap().to_owned(),
        other => format!("{other} {value}"),
    };
    format!("{after}:{told}{metadata}")
}

fn pair(header: &Value) -> String {
    format!(" {}={}", header[0].as_str().unwrap(), header[1])
}

fn headers(value: &Value, clears: bool) -> String {
    let mut value = value.as_object().unwrap().clone();
    let set = value.remove("set").unwrap();
    let mut set: Vec<_> = set.as_array().unwrap().iter().map(pair).collect();
    set.sort();
    let mut told = set.concat();
    if let Some(removed) = value.remove("remove") {
        let mut names: Vec<_> =
            removed.as_array().unwrap().iter().map(ToString::to_string).collect();
        names.sort();
        told += &format!(" remove {}", names.join(" "));
    }
    if value.remove("clear_route_cache") != Some(clears.into()) {
        told += if clears { " keeps route" } else { " clears route" };
    }
    if value.remove("status") != Some("CONTINUE".into()) || !value.is_empty() {
        told += &format!(" {value:?}");
    }
    told
}

/// Length, `$` where the body ends, and the text if it is short, else its digest.
fn body(value: &Value) -> String {
    let mut value = value.as_object().unwrap().clone();
    let end = match value.remove("end_of_stream") {
        Some(Value::Bool(true)) => "$",
        _ => "",
    };
    let streamed = value.remove("streamed");
    let extra = if value.is_empty() { String::new() } else { format!(" {value:?}") };
    match streamed {
        None => format!("-{extra}"),
        Some(form) if form.get("len").is_some() => {
            format!("{}{end} #{}{extra}", form["len"], form["sha256"].as_str().unwrap())
        }
        Some(form) => {
            let bytes = plumbline::conformance::dialog::body(&form).unwrap();
            let text = match form["text"].as_str() {
                Some(text) if text.len() <= 40 => format!("{text:?}"),
                _ => format!("#{}", digest(&bytes)),
            };
            format!("{}{end} {text}{extra}", bytes.len())
        }
    }
}

/// A piece of a body: its direction, the bytes, whether it ends it.
fn piece(message: &ProcessingResponse) -> Option<(bool, &StreamedBodyResponse)> {
    let (request, part) = match message.response.as_ref()? {
        Response::RequestBody(part) => (true, part),
        Response::ResponseBody(part) => (false, part),
        _ => return None,
    };
    match part.response.as_ref()?.body_mutation.as_ref()?.mutation.as_ref()? {
        Mutation::StreamedResponse(piece) => Some((request, piece)),
        _ => None,
    }
}

fn key(answer: &Answer) -> Option<(usize, bool)> {
    match &answer.said {
        Said::Message(message) => piece(message).map(|(request, _)| (answer.after, request)),
        Said::End { .. } => None,
    }
}

/// Cuts each run of our pieces where the recorded run of the same step was cut, if it is as long.
fn recut(answers: &[Answer], response: &[Value]) -> Vec<Answer> {
    let mut cut = Vec::new();
    for run in answers.chunk_by(|a, b| key(a).is_some() && key(a) == key(b)) {
        let lengths = key(&run[0]).map(|(after, request)| recorded_run(response, after, request));
        let pieces = || {
            run.iter().filter_map(|answer| match &answer.said {
                Said::Message(message) => piece(message).map(|(_, piece)| piece),
                Said::End { .. } => None,
            })
        };
        for piece in pieces() {
            assert!(piece.body.len() <= 62_000, "a piece of {} bytes", piece.body.len());
        }
        // An end before the last piece is a fault that a new cut would hide.
        let ends_early = pieces().rev().skip(1).any(|piece| piece.end_of_stream);
        let total: usize = pieces().map(|piece| piece.body.len()).sum();
        let Some(lengths) = lengths.filter(|lengths| {
            !ends_early && !lengths.is_empty() && lengths.iter().sum::<usize>() == total
        }) else {
            cut.extend(run.iter().cloned());
            continue;
        };
        let bytes: Vec<u8> = pieces().flat_map(|piece| piece.body.iter().copied()).collect();
        let end = pieces().next_back().is_some_and(|piece| piece.end_of_stream);
        let mut rest = &bytes[..];
        for (index, length) in lengths.iter().enumerate() {
            let (body, after) = rest.split_at(*length);
            rest = after;
            let mut answer = run[0].clone();
            if let Said::Message(message) = &mut answer.said {
                set_piece(message, body, end && index + 1 == lengths.len());
            }
            cut.push(answer);
        }
    }
    cut
}

fn set_piece(message: &mut ProcessingResponse, body: &[u8], end: bool) {
    let part = match message.response.as_mut() {
        Some(Response::RequestBody(part) | Response::ResponseBody(part)) => part,
        _ => return,
    };
    let mutation = part.response.as_mut().and_then(|common| common.body_mutation.as_mut());
    if let Some(Mutation::StreamedResponse(piece)) = mutation.and_then(|m| m.mutation.as_mut()) {
        piece.body = body.to_vec();
        piece.end_of_stream = end;
    }
}

/// Lengths of the recorded pieces of one direction after one step.
fn recorded_run(response: &[Value], after: usize, request: bool) -> Vec<usize> {
    let kind = if request { "request_body" } else { "response_body" };
    let pieces = response.iter().filter(|answer| answer["after"] == after);
    let pieces = pieces.filter_map(|answer| {
        let form = answer.get(kind)?.get("streamed")?;
        let length = match form["len"].as_u64() {
            Some(length) => usize::try_from(length).unwrap(),
            None => plumbline::conformance::dialog::body(form).unwrap().len(),
        };
        Some((length, answer["times"].as_u64().unwrap_or(1)))
    });
    pieces.flat_map(|(length, times)| (0..times).map(move |_| length)).collect()
}

/// How much has been said: answers that are no pieces, bytes in pieces, ends of bodies.
pub type Extent = (usize, usize, usize);

/// The extent of ours so far.
pub fn extent(answers: &[Answer]) -> Extent {
    answers.iter().fold((0, 0, 0), |(others, bytes, ends), answer| match &answer.said {
        Said::Message(message) => match piece(message) {
            Some((_, piece)) => {
                (others, bytes + piece.body.len(), ends + usize::from(piece.end_of_stream))
            }
            None => (others + 1, bytes, ends),
        },
        Said::End { .. } => (others + 1, bytes, ends),
    })
}

/// The extent of a line up to a step.
pub fn extent_of(line: &str, upto: usize) -> Extent {
    let mut extent = (0, 0, 0);
    for token in line.split("; ") {
        let Some((after, told)) = token.split_once(':') else { continue };
        if after.parse::<usize>().ok().is_none_or(|after| after > upto) {
            continue;
        }
        let times = told.rsplit_once(" ×").and_then(|(_, n)| n.parse().ok()).unwrap_or(1_usize);
        let piece = told.strip_prefix("RB").or_else(|| told.strip_prefix("SB"));
        let length = piece.and_then(|piece| {
            let (length, _) = piece.split_once([' ', '$'])?;
            Some((length.parse::<usize>().ok()?, piece[length.len()..].starts_with('$')))
        });
        match length {
            None => extent.0 += times,
            Some((length, end)) => {
                extent.1 += length * times;
                extent.2 += usize::from(end) * times;
            }
        }
    }
    extent
}

/// Mutants: a mirrored header kept; ours taken for a mirror; a wrong length or end in the extent.
#[test]
fn normal_forms() {
    let request = [json!({ "request_headers": [["hi", "mom"]] })];
    let answer = |set: Value| {
        json!({ "after": 1, "request_headers":
                { "set": set, "clear_route_cache": true, "status": "CONTINUE" } })
    };
    let theirs = answer(json!([["hi", "mom"], ["hi", "dad"], ["Content-Length", "7"]]));
    assert_eq!(recorded(&request, &[theirs]), "1:RH hi=\"dad\"");
    let pieces = [
        json!({ "after": 1, "request_body": { "streamed": { "len": 700, "sha256": "ab" },
                "end_of_stream": false }, "times": 2 }),
        json!({ "after": 2, "request_body": { "streamed": { "text": "x; y" },
                "end_of_stream": true } }),
        json!({ "after": 3, "end": { "code": "OK", "message": "" } }),
    ];
    let line = recorded(&[], &pieces);
    assert_eq!(line, "1:RB700 #ab ×2; 2:RB4$ \"x; y\"; 3:OK");
    assert_eq!(extent_of(&line, 1), (0, 1400, 0));
    assert_eq!(extent_of(&line, 2), (0, 1404, 1));
    assert_eq!(extent_of(&line, 3), (1, 1404, 1));
    assert_eq!(recorded_run(&pieces, 1, true), [700, 700]);
}
