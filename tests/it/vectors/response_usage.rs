//! Token usage of responses against the recorded answers.
//!
//! The order of messages and the cause of an end are the session's, and are compared there.

use plumbline::response::{ResponseHead, ResponseReader};
use serde_json::{Value, json};

use super::{Difference, close, replay};

const CUT: &str = "lines are read over chunk borders";

/// Mutants: the first usage of a stream wins; an event counted at its first byte.
#[test]
fn response_usage() {
    let differences = [
        Difference {
            case: "response-usage/sse-split-event",
            ours: r#"{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17,"events":1}"#,
            why: CUT,
        },
        Difference {
            case: "response-usage/sse-no-space",
            ours: r#"{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17,"events":1}"#,
            why: "data without a space is legal and is read",
        },
        Difference {
            case: "response-usage/sse-two-events-one-chunk-first-wins",
            ours: r#"{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9,"events":2}"#,
            why: "of cumulative usage the last value counts, however the events are cut into chunks",
        },
        Difference {
            case: "response-usage/messages-sse",
            ours: r#"{"prompt_tokens":25,"completion_tokens":15,"total_tokens":40,"cached_tokens":5,"events":2}"#,
            why: "events are counted whatever the API; the Go parser for messages counts none",
        },
        Difference {
            case: "response-usage/passthrough",
            ours: r#"{"prompt_tokens":7,"completion_tokens":0,"total_tokens":7,"events":0}"#,
            why: "usage is read wherever a JSON answer tells it, also on paths without a parser",
        },
    ];
    let answer = |input: &Value| {
        let head = ResponseHead {
            content_type: input["content_type"].as_str(),
            content_encoding: None,
            status: 200,
        };
        let mut reader = ResponseReader::new(head, None);
        let chunks = input["chunks"].as_array().unwrap();
        for (index, chunk) in chunks.iter().enumerate() {
            let bytes = chunk.as_str().unwrap().as_bytes().to_vec();
            assert_eq!(reader.feed(bytes.clone(), index + 1 == chunks.len()), bytes);
        }
        let usage = reader.usage().unwrap_or_default();
        let mut answer = json!({
            "prompt_tokens": usage.prompt,
            "completion_tokens": usage.completion,
            "total_tokens": usage.total,
            "events": reader.events(),
        });
        if let Some(cached) = usage.cached {
            answer["cached_tokens"] = cached.into();
        }
        answer
    };
    let agrees = |ours: &Value, recorded: &Value| {
        let mut recorded = recorded["usage"].clone();
        let cause = recorded.as_object_mut().unwrap().remove("cause");
        assert_eq!(cause, Some("natural".into()));
        close(ours, &recorded)
    };
    replay("response-usage", &differences, answer, agrees);
}
