//! What is asked of the gateway: an open-loop mix of requests that a seed decides in full.
//!
//! Decides kinds, their shares, gaps and bodies; sends nothing and reads no clock. Lengths are bytes
//! and tokens, times count from the start of the traffic.

use std::time::Duration;

use bytes::Bytes;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::json;

/// What kind of request, and so which row of the summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Chat,
    ChatStream,
    Completion,
    CompletionStream,
    Models,
    /// A chat with an image of 1 MB: long to carry, short to compute.
    Large,
}

impl Kind {
    /// All of them, in the order of the summary.
    pub(super) const ALL: [Self; 6] = [
        Self::Chat,
        Self::ChatStream,
        Self::Completion,
        Self::CompletionStream,
        Self::Models,
        Self::Large,
    ];

    /// Its row in the summary.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::ChatStream => "chat, streamed",
            Self::Completion => "completion",
            Self::CompletionStream => "completion, streamed",
            Self::Models => "list of models",
            Self::Large => "chat with 1 MB image",
        }
    }

    /// Whether the answer is a stream of server-sent events.
    pub(super) fn streams(self) -> bool {
        matches!(self, Self::ChatStream | Self::CompletionStream)
    }

    /// Where it goes.
    pub(super) fn path(self) -> &'static str {
        match self {
            Self::Chat | Self::ChatStream | Self::Large => "/v1/chat/completions",
            Self::Completion | Self::CompletionStream => "/v1/completions",
            Self::Models => "/v1/models",
        }
    }

    /// Share in the mix, per cent.
    fn share(self) -> u32 {
        match self {
            Self::Chat => 26,
            Self::ChatStream => 36,
            Self::Completion => 14,
            Self::CompletionStream => 16,
            Self::Models => 6,
            Self::Large => 2,
        }
    }

    fn draw(rng: &mut StdRng) -> Self {
        let mut left = rng.random_range(0..100);
        for kind in Self::ALL {
            if left < kind.share() {
                return kind;
            }
            left -= kind.share();
        }
        Self::Chat
    }
}

/// One request of the plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Planned {
    /// Counts from 0; names the request in the gateway's access log.
    pub(super) number: u64,
    /// When to send it.
    pub(super) at: Duration,
    pub(super) kind: Kind,
    /// Empty means GET.
    pub(super) body: Bytes,
}

/// The requests in the order of their times, without end.
#[derive(Debug)]
pub(super) struct Plan {
    rng: StdRng,
    rate: f64,
    at: Duration,
    number: u64,
}

impl Plan {
    /// `rate` is requests per second, above 0.
    pub(super) fn new(seed: u64, rate: f64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed), rate, at: Duration::ZERO, number: 0 }
    }
}

impl Iterator for Plan {
    type Item = Planned;

    fn next(&mut self) -> Option<Planned> {
        // Gaps of a Poisson process: as bursty as independent users are.
        let uniform: f64 = self.rng.random();
        self.at += Duration::from_secs_f64(-(1.0 - uniform).ln() / self.rate);
        let kind = Kind::draw(&mut self.rng);
        let body = body(kind, &mut self.rng);
        let number = self.number;
        self.number += 1;
        Some(Planned { number, at: self.at, kind, body })
    }
}

const SYSTEM: &str = "You are a careful mason. Answer in few words, and say what you measured.";
const WORDS: [&str; 12] = [
    "wall", "corner", "stone", "plumb", "mortar", "level", "course", "arch", "beam", "joint",
    "lime", "gable",
];
/// Characters of the large image.
const IMAGE: usize = 1_000_000;

fn body(kind: Kind, rng: &mut StdRng) -> Bytes {
    let max_tokens = rng.random_range(8..=56);
    // One prompt in five is long, as with retrieved documents.
    let length = if rng.random_range(0..5) == 0 {
        rng.random_range(2_000..=8_000)
    } else {
        rng.random_range(40..=400)
    };
    let stream = kind.streams();
    let document = match kind {
        Kind::Models => return Bytes::new(),
        Kind::Completion | Kind::CompletionStream => json!({
            "model": "sim-model", "prompt": prompt(length, rng),
            "max_tokens": max_tokens, "stream": stream,
        }),
        Kind::Chat | Kind::ChatStream | Kind::Large => {
            let text = prompt(length, rng);
            let content = if kind == Kind::Large {
                let url = format!("data:image/png;base64,{}", "A".repeat(IMAGE));
                json!([{ "type": "text", "text": text },
                       { "type": "image_url", "image_url": { "url": url } }])
            } else {
                json!(text)
            };
            json!({
                "model": "sim-model",
                "messages": [{ "role": "system", "content": SYSTEM },
                             { "role": "user", "content": content }],
                "max_tokens": max_tokens, "stream": stream,
            })
        }
    };
    document.to_string().into()
}

fn prompt(length: usize, rng: &mut StdRng) -> String {
    let mut text = String::with_capacity(length + 8);
    while text.len() < length {
        text.push_str(WORDS[rng.random_range(0..WORDS.len())]);
        text.push(' ');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mutants: a share that makes the sum miss 100, a rate that is not the reciprocal of the mean
    /// gap, or a generator that is not seeded.
    #[test]
    fn a_seed_decides_the_mix_and_the_rate_its_density() {
        assert_eq!(Kind::ALL.iter().map(|kind| kind.share()).sum::<u32>(), 100);
        let plan: Vec<_> = Plan::new(3, 50.0).take(1000).collect();
        let again: Vec<_> = Plan::new(3, 50.0).take(1000).collect();
        assert_eq!(plan, again);
        assert_ne!(plan[0], Plan::new(4, 50.0).next().unwrap());
        let seconds = plan.last().unwrap().at.as_secs_f64();
        assert!((17.0..23.0).contains(&seconds), "1000 requests at 50/s took {seconds}");
        for kind in Kind::ALL {
            let count = plan.iter().filter(|planned| planned.kind == kind).count();
            assert!(count >= 5, "{kind:?}: {count}");
        }
    }

    /// Mutant: a body that is no JSON, or an image below the promised size.
    #[test]
    fn bodies_are_what_their_kind_says() {
        for planned in Plan::new(1, 1.0).take(100) {
            if planned.kind == Kind::Models {
                assert!(planned.body.is_empty());
                continue;
            }
            let body: serde_json::Value = serde_json::from_slice(&planned.body).unwrap();
            assert_eq!(body["stream"], planned.kind.streams());
            assert_eq!(planned.body.len() > IMAGE, planned.kind == Kind::Large);
        }
    }
}
