//! Which numbers of a JSON text are token counts, and what they add up to over a stream.
//!
//! Decides by the path of a key alone, so every API of a model server is read alike and none needs to
//! be announced. Counts of an unfinished text do not count. Values are tokens.
//!
//! ```text
//! usage                          OpenAI, vLLM, Anthropic (message_delta, unary)
//! response.usage                 OpenAI responses, streamed
//! message.usage                  Anthropic, message_start
//! meta_info                      SGLang
//! ```

use super::Usage;

/// Counts above this are no counts: it is where floats stop being exact.
const MAX_COUNT: f64 = 9_007_199_254_740_992.0;

/// Depth of the deepest object that is read, plus one: `response.usage.input_tokens_details`.
const DEPTHS: usize = 5;

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Place {
    #[default]
    Elsewhere,
    Root,
    /// An event's inner object, which has a usage of its own.
    Envelope,
    Usage,
    PromptDetails,
    InputDetails,
    MetaInfo,
}

/// What a key's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Field {
    #[default]
    Other,
    Object(Place),
    Prompt,
    Input,
    Completion,
    Output,
    Total,
    PromptCached,
    InputCached,
    CacheRead,
}

impl Field {
    fn of(place: Place, key: &[u8]) -> Self {
        match (place, key) {
            (Place::Root | Place::Envelope, b"usage") => Self::Object(Place::Usage),
            (Place::Root, b"response" | b"message") => Self::Object(Place::Envelope),
            (Place::Root, b"meta_info") => Self::Object(Place::MetaInfo),
            (Place::Usage | Place::MetaInfo, b"prompt_tokens") => Self::Prompt,
            (Place::Usage | Place::MetaInfo, b"completion_tokens") => Self::Completion,
            (Place::Usage, b"input_tokens") => Self::Input,
            (Place::Usage, b"output_tokens") => Self::Output,
            (Place::Usage, b"total_tokens") => Self::Total,
            (Place::Usage, b"cache_read_input_tokens") => Self::CacheRead,
            (Place::Usage, b"prompt_tokens_details") => Self::Object(Place::PromptDetails),
            (Place::Usage, b"input_tokens_details") => Self::Object(Place::InputDetails),
            (Place::PromptDetails | Place::MetaInfo, b"cached_tokens") => Self::PromptCached,
            (Place::InputDetails, b"cached_tokens") => Self::InputCached,
            _ => Self::Other,
        }
    }
}

/// Counts of one text, under the names that the APIs have for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Draft {
    prompt: Option<u64>,
    input: Option<u64>,
    completion: Option<u64>,
    output: Option<u64>,
    total: Option<u64>,
    prompt_cached: Option<u64>,
    input_cached: Option<u64>,
    cache_read: Option<u64>,
}

/// The counts so far.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// What the open container of each depth is; depth 0 is unused.
    places: [Place; DEPTHS],
    /// The last key, while its value is due.
    field: Field,
    draft: Draft,
    usage: Option<Usage>,
}

impl Tally {
    /// The usage as of now.
    pub(super) fn usage(&self) -> Option<Usage> {
        self.usage
    }

    /// A key of the object at `depth` (1 is the root).
    pub(super) fn key(&mut self, depth: u64, name: &[u8]) {
        let place = self.place(depth).copied().unwrap_or_default();
        self.field = match place {
            Place::Elsewhere => Field::Other,
            place => Field::of(place, name),
        };
    }

    /// An object or array, which has no keys of its own, opens at `depth`; `valued` when it is the value of the last key.
    pub(super) fn open(&mut self, depth: u64, valued: bool) {
        let field = self.field;
        if let Some(place) = self.place(depth) {
            *place = match field {
                _ if depth == 1 => Place::Root,
                Field::Object(inner) if valued => inner,
                _ => Place::Elsewhere,
            };
        }
    }

    /// The value of the last key: a number, a word, or a string's contents.
    pub(super) fn scalar(&mut self, text: &[u8]) {
        let draft = &mut self.draft;
        let slot = match self.field {
            Field::Other | Field::Object(_) => return,
            Field::Prompt => &mut draft.prompt,
            Field::Input => &mut draft.input,
            Field::Completion => &mut draft.completion,
            Field::Output => &mut draft.output,
            Field::Total => &mut draft.total,
            Field::PromptCached => &mut draft.prompt_cached,
            Field::InputCached => &mut draft.input_cached,
            Field::CacheRead => &mut draft.cache_read,
        };
        // Of a key that stands twice, the last value counts; one that is no count does not.
        *slot = count(text).or(*slot);
    }

    /// The text ended well: what it told counts.
    pub(super) fn commit(&mut self) {
        let draft = std::mem::take(&mut self.draft);
        if draft == Draft::default() {
            return;
        }
        let told = |value: Option<u64>| value.filter(|count| *count > 0);
        let (prompt, completion) =
            (draft.prompt.or(draft.input), draft.completion.or(draft.output));
        let mut usage = self.usage.unwrap_or_default();
        // Anthropic's parts come in two events, and each leaves the other's at zero or out.
        usage.prompt = told(prompt).unwrap_or(usage.prompt);
        usage.completion = told(completion).unwrap_or(usage.completion);
        usage.total = match (told(prompt), told(completion), told(draft.total)) {
            (Some(_), Some(_), Some(total)) => total,
            _ => usage.prompt + usage.completion,
        };
        let cached = draft.input_cached.or(draft.prompt_cached).or(draft.cache_read);
        usage.cached = cached.or(usage.cached);
        self.usage = Some(usage);
    }

    /// The text did not end well: nothing it told counts.
    pub(super) fn discard(&mut self) {
        self.draft = Draft::default();
    }

    fn place(&mut self, depth: u64) -> Option<&mut Place> {
        usize::try_from(depth).ok().and_then(|depth| self.places.get_mut(depth))
    }
}

/// A count: a number, whole or cut to one, not negative and at most 2^53.
fn count(text: &[u8]) -> Option<u64> {
    // Words that Rust takes for numbers (`inf`, `NaN`) begin with a letter, and `+1` is not JSON.
    let number = text.first().is_some_and(|byte| byte.is_ascii_digit() || *byte == b'-');
    let text = std::str::from_utf8(text).ok().filter(|_| number)?;
    let value: f64 = text.parse().ok()?;
    (0.0..=MAX_COUNT).contains(&value).then_some(value as u64)
}
