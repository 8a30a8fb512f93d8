//! Which API a request speaks: from its path, and from what its headers say the body is.
//!
//! Decides by path suffix, the longest claim first, on segment borders, as the parser list of an
//! `EndpointPickerConfig` has it. Reads no body.

/// What a request body is read as. `Opaque` bodies are routed by load alone and never looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI completions, and their rendering.
    Completions,
    /// OpenAI chat completions, and their rendering.
    Chat,
    /// OpenAI embeddings.
    Embeddings,
    /// OpenAI responses.
    Responses,
    /// OpenAI conversations.
    Conversations,
    /// OpenAI image generations.
    Images,
    /// Anthropic messages.
    Messages,
    /// Anthropic token counts: passed on unread, needs no model.
    CountTokens,
    /// vLLM's own `inference/v1/generate`.
    Generate,
    /// SGLang's `/generate`, where that parser is configured.
    SglangGenerate,
    /// Anything else.
    Opaque,
}

/// The parsers that are switched on; by default those of upstream's default list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parsers {
    /// `openai-parser`.
    pub openai: bool,
    /// `anthropic-parser`.
    pub anthropic: bool,
    /// `vllmhttp-parser`.
    pub vllm_http: bool,
    /// `sglanghttp-parser`.
    pub sglang_http: bool,
}

impl Default for Parsers {
    fn default() -> Self {
        Self { openai: true, anthropic: true, vllm_http: true, sglang_http: false }
    }
}

/// The headers that tell the path, in the order in which they count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Paths<'a> {
    /// `:path`.
    pub path: Option<&'a str>,
    /// `x-original-path`.
    pub original: Option<&'a str>,
    /// `x-forwarded-path`.
    pub forwarded: Option<&'a str>,
}

impl Paths<'_> {
    /// The first that is there and not empty.
    fn effective(&self) -> Option<&str> {
        [self.path, self.original, self.forwarded]
            .into_iter()
            .flatten()
            .find(|path| !path.is_empty())
    }
}

/// What must stand before a claimed suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    /// Any whole segments.
    Anything,
    /// Nothing, or a version segment: `messages` is a common last word of other APIs, such as
    /// `/v1/threads/{id}/messages`.
    Version,
    /// Nothing.
    Nothing,
}

/// Claims, longest first; the first that fits decides.
const CLAIMS: [(&str, Before, Api); 12] = [
    ("chat/completions/render", Before::Anything, Api::Chat),
    ("inference/v1/generate", Before::Anything, Api::Generate),
    ("messages/count_tokens", Before::Version, Api::CountTokens),
    ("completions/render", Before::Anything, Api::Completions),
    ("images/generations", Before::Anything, Api::Images),
    ("chat/completions", Before::Anything, Api::Chat),
    ("conversations", Before::Anything, Api::Conversations),
    ("completions", Before::Anything, Api::Completions),
    ("embeddings", Before::Anything, Api::Embeddings),
    ("responses", Before::Anything, Api::Responses),
    ("messages", Before::Version, Api::Messages),
    ("generate", Before::Nothing, Api::SglangGenerate),
];

impl Parsers {
    fn on(self, api: Api) -> bool {
        match api {
            Api::Messages | Api::CountTokens => self.anthropic,
            Api::Generate => self.vllm_http,
            Api::SglangGenerate => self.sglang_http,
            Api::Opaque => false,
            _ => self.openai,
        }
    }
}

impl Api {
    /// The API of a request. Without any path header it is completions, as upstream has it; a path
    /// that no parser claims, and one that is empty, is [`Api::Opaque`].
    pub fn of(paths: Paths<'_>, parsers: Parsers) -> Self {
        if paths == Paths::default() {
            return if parsers.openai { Self::Completions } else { Self::Opaque };
        }
        let whole = paths.effective().unwrap_or_default();
        let path = whole.split(['?', '#']).next().unwrap_or_default();
        let path = path.trim_matches(' ').trim_end_matches(['/', ' ']);
        CLAIMS
            .iter()
            .find(|(suffix, before, api)| parsers.on(*api) && fits(path, suffix, *before))
            .map_or(Self::Opaque, |(.., api)| *api)
    }

    /// Whether the body is read at all.
    pub fn is_read(self) -> bool {
        !matches!(self, Self::Opaque | Self::CountTokens)
    }

    /// Whether a rewrite may change the model: of every body that is read but SGLang's, which names
    /// none.
    pub fn is_rewritten(self) -> bool {
        self.needs_model()
    }

    /// Whether a request without a model is refused, unless a rewrite gives it one.
    pub fn needs_model(self) -> bool {
        self.is_read() && self != Self::SglangGenerate
    }
}

fn fits(path: &str, suffix: &str, before: Before) -> bool {
    let Some(rest) = path.strip_suffix(suffix) else { return false };
    if rest.is_empty() || rest == "/" {
        return true;
    }
    let Some(prefix) = rest.strip_suffix('/') else { return false };
    match before {
        Before::Anything => true,
        Before::Version => {
            let segment = prefix.rsplit('/').next().unwrap_or_default();
            let version = segment.strip_prefix('v').unwrap_or_default();
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
        }
        Before::Nothing => false,
    }
}

/// Whether a content type says that the body is no JSON: multipart and gRPC.
pub(super) fn is_foreign(content_type: &str) -> bool {
    let starts = |prefix: &str| {
        content_type
            .trim_start()
            .get(..prefix.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(prefix))
    };
    starts("multipart/") || starts("application/grpc")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Api {
        Api::of(Paths { path: Some(path), ..Paths::default() }, Parsers::default())
    }

    /// Mutants: a suffix taken without a segment border, the query kept, the slash kept, the claims
    /// tried shortest first, `messages` claimed after any segment.
    #[test]
    fn the_longest_claim_on_a_segment_border_decides() {
        for (path, api) in [
            ("/v1/completions", Api::Completions),
            ("completions", Api::Completions),
            ("/v1/completions/", Api::Completions),
            ("/v1/completions?x=1&y=/v1/messages", Api::Completions),
            ("/v1/completions/render", Api::Completions),
            ("/v1/chat/completions/render", Api::Chat),
            ("/llm/team-a/v1/chat/completions", Api::Chat),
            ("/v1/embeddings", Api::Embeddings),
            ("/v1/responses", Api::Responses),
            ("/v1/responses/resp_1/cancel", Api::Opaque),
            ("/v1/conversations/c1/items", Api::Opaque),
            ("/v1/images/generations", Api::Images),
            ("/v1/messages/", Api::Messages),
            ("/anthropic/v1/messages?beta=true", Api::Messages),
            ("/messages", Api::Messages),
            ("/v1/messages/count_tokens", Api::CountTokens),
            ("/v1/messages/batches", Api::Opaque),
            ("/v1/threads/t/messages", Api::Opaque),
            ("/xmessages", Api::Opaque),
            ("/xcompletions", Api::Opaque),
            ("/V1/COMPLETIONS", Api::Opaque),
            ("/inference/v1/generate", Api::Generate),
            ("/generate", Api::Opaque),
            ("/tokenize", Api::Opaque),
            ("/", Api::Opaque),
            ("", Api::Opaque),
        ] {
            assert_eq!(of(path), api, "{path}");
        }
        for pair in CLAIMS.windows(2) {
            assert!(pair[0].0.len() >= pair[1].0.len(), "{} stands too late", pair[1].0);
        }
    }

    /// Mutant: `x-original-path` before `:path`.
    #[test]
    fn other_headers_tell_the_path_only_where_it_is_missing() {
        let by = |path, original, forwarded| {
            Api::of(Paths { path, original, forwarded }, Parsers::default())
        };
        assert_eq!(by(None, None, None), Api::Completions);
        assert_eq!(by(Some("/tokenize"), Some("/v1/completions"), None), Api::Opaque);
        assert_eq!(by(None, Some("/v1/chat/completions"), Some("/v1/embeddings")), Api::Chat);
        assert_eq!(by(Some(""), None, Some("/v1/embeddings")), Api::Embeddings);
    }

    /// Mutant: SGLang's claim taken after any segment.
    #[test]
    fn a_parser_list_decides_who_may_claim() {
        let sglang = Parsers { openai: false, sglang_http: true, ..Parsers::default() };
        let of = |path| Api::of(Paths { path: Some(path), ..Paths::default() }, sglang);
        assert_eq!(of("/generate"), Api::SglangGenerate);
        assert_eq!(of("/x/generate"), Api::Opaque);
        assert_eq!(of("/regenerate"), Api::Opaque);
        assert_eq!(of("/inference/v1/generate"), Api::Generate);
        assert_eq!(of("/v1/completions"), Api::Opaque);
    }

    /// Mutant: the type compared with case.
    #[test]
    fn multipart_and_grpc_are_not_json() {
        assert!(
            is_foreign("Multipart/form-data; boundary=b") && is_foreign("application/grpc+proto")
        );
        assert!(!is_foreign("application/json") && !is_foreign("") && !is_foreign("text/plain"));
    }
}
