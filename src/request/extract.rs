//! What routing wants to know of a body, taken from the events of the scanner as they pass.
//!
//! Decides which values count and whether a request has what its API requires; of a key that comes
//! twice the last counts. Prompt text is counted in bytes, decoded; token ids in ids.

use std::ops::Range;

use super::api::Api;
use super::fields::{self, Field, Shape, Verdict, field, shape};
use super::json::{Events, Kind, Number, Spot};
use super::{BodyError, Facts, Model};

/// Slots of [`Extract::bytes`].
const PROMPT: usize = 0;
const SYSTEM: usize = 1;
const DOCUMENTS: usize = 2;
const TOOLS: usize = 3;

/// How media are written into a JSON string.
const DATA_URI: &[u8] = b"data:";

/// What the string that is being read is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Nothing,
    Model,
    /// Text of the prompt: its slot, and whether it may be a data URI instead.
    Prompt {
        slot: usize,
        media: bool,
    },
}

/// A message's member whose kind is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Role,
    Content,
    Other,
}

/// The first element of a list of prompts: all others must be alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Text,
    Id,
    Ids,
}

/// What was found so far.
#[derive(Debug)]
pub(super) struct Extract {
    api: Api,
    shape: Shape,
    root: Option<Kind>,
    /// The member of the root object that is being read.
    field: Field,
    /// The last key within `messages` and the like: whether it is one of prompt text, and whether its
    /// string may be a data URI.
    text: bool,
    media: bool,
    member: Member,
    /// The last key of `stream_options` or `sampling_params` was the one wanted.
    wanted: bool,
    string: Use,
    length: u64,
    /// Bytes of the string that agree with [`DATA_URI`]; a wrong one puts it past the end.
    prefix: usize,
    verdict: Verdict,
    element: Option<Element>,
    elements: u64,
    embeds: bool,
    wrong: u16,
    name: Vec<u8>,
    name_start: u64,
    model: Option<Range<u64>>,
    stream: bool,
    include_usage: bool,
    limits: [Option<u64>; 2],
    bytes: [u64; 4],
    ids: u64,
    started: u64,
}

impl Extract {
    pub(super) fn new(api: Api) -> Self {
        Self {
            api,
            shape: shape(api),
            root: None,
            field: Field::Other,
            text: false,
            media: false,
            member: Member::Other,
            wanted: false,
            string: Use::Nothing,
            length: 0,
            prefix: 0,
            verdict: Verdict::Absent,
            element: None,
            elements: 0,
            embeds: false,
            wrong: 0,
            name: Vec::new(),
            name_start: 0,
            model: None,
            stream: false,
            include_usage: false,
            limits: [None; 2],
            bytes: [0; 4],
            ids: 0,
            started: 0,
        }
    }

    /// The facts of a body that ended well, or why it is refused.
    pub(super) fn facts(self) -> Result<Facts, BodyError> {
        let kind = match self.root {
            Some(Kind::Array) => "array",
            Some(Kind::String) => "string",
            Some(Kind::Number) => "number",
            Some(Kind::Bool(_)) => "bool",
            _ => "",
        };
        if !kind.is_empty() {
            return Err(BodyError::NoObject { api: self.api, kind });
        }
        let verdict = match self.verdict {
            Verdict::Absent | Verdict::Empty if self.embeds => Verdict::Good,
            verdict => verdict,
        };
        if verdict != Verdict::Good {
            return Err(BodyError::Invalid(fields::refusal(self.api, verdict)));
        }
        let wrong = self.wrong & fields::checked(self.api);
        if wrong != 0 {
            return Err(BodyError::Invalid(fields::refusal_of_kind(self.api, wrong)));
        }
        let name = String::from_utf8_lossy(&self.name).into_owned();
        let model =
            self.model.filter(|_| !name.is_empty()).map(|span| Model { name, span: Some(span) });
        Ok(Facts {
            api: self.api,
            model,
            stream: self.stream,
            include_usage: self.include_usage,
            prompt_bytes: self.bytes.iter().sum(),
            token_ids: self.ids,
            max_output_tokens: self.limits[0].or(self.limits[1]),
        })
    }

    /// A member of the root object begins: whatever an earlier one of its name said is forgotten.
    fn begin(&mut self, kind: Kind, at: u64) {
        self.wanted = false;
        let bit = self.field.bit();
        self.wrong = self.wrong & !bit | if self.field.allows(kind) { 0 } else { bit };
        match self.field {
            Field::Model => {
                // Without a name there is no model, wherever an earlier one stood.
                self.name.clear();
                self.name_start = at;
                if kind == Kind::String {
                    self.string = Use::Model;
                }
            }
            Field::Stream => self.stream = kind == Kind::Bool(true),
            Field::StreamOptions => self.include_usage = false,
            Field::Limit(rank) => self.limits[rank] = None,
            Field::Sampling(_) => self.limits[0] = None,
            Field::Prompt => self.begin_prompt(kind),
            Field::System => self.begin_text(kind, SYSTEM),
            Field::Documents => self.begin_text(kind, DOCUMENTS),
            Field::Tools => {
                self.bytes[TOOLS] = 0;
                self.started = at;
            }
            Field::Embeds => self.embeds = matches!(kind, Kind::String | Kind::Array),
            Field::Other | Field::Bool(_) | Field::Object(_) | Field::Text(_) => {}
        }
    }

    fn begin_text(&mut self, kind: Kind, slot: usize) {
        self.bytes[slot] = 0;
        if kind == Kind::String {
            self.string = Use::Prompt { slot, media: false };
        }
    }

    fn begin_prompt(&mut self, kind: Kind) {
        (self.ids, self.element, self.elements) = (0, None, 0);
        self.begin_text(kind, PROMPT);
        self.verdict = match (self.shape, kind) {
            (_, Kind::Null) => Verdict::Absent,
            (Shape::Any, _) => Verdict::Good,
            (Shape::Prompts | Shape::Text, Kind::String) => Verdict::Empty,
            (Shape::Prompts | Shape::Turns | Shape::Items | Shape::Ids, Kind::Array) => {
                Verdict::Empty
            }
            _ => Verdict::Wrong,
        };
    }

    /// An element of the required field's list begins.
    fn element(&mut self, kind: Kind) {
        self.elements += 1;
        if self.verdict == Verdict::Empty {
            self.verdict = Verdict::Good;
        }
        match self.shape {
            Shape::Prompts => {
                let element = match kind {
                    Kind::String => Some(Element::Text),
                    Kind::Number => Some(Element::Id),
                    Kind::Array => Some(Element::Ids),
                    Kind::Null | Kind::Bool(_) | Kind::Object => None,
                };
                // The first of them says what all must be.
                self.element = self.element.or(element);
                if element.is_none() || element != self.element {
                    self.verdict = Verdict::Wrong;
                }
            }
            Shape::Turns if !matches!(kind, Kind::Object | Kind::Null) => {
                self.verdict = Verdict::Wrong
            }
            Shape::Ids if kind != Kind::Number => self.bad_id(),
            _ => {}
        }
    }

    fn bad_id(&mut self) {
        if self.verdict == Verdict::Good {
            self.verdict = match self.shape {
                Shape::Ids => Verdict::BadId(self.elements.saturating_sub(1)),
                _ => Verdict::Wrong,
            };
        }
    }

    /// A value within a message: role and content have kinds of their own.
    fn within_turn(&mut self, kind: Kind, spot: Spot) {
        let fits = match (spot.depth, self.member) {
            (3, Member::Role) => matches!(kind, Kind::String | Kind::Null),
            (3, Member::Content) => matches!(kind, Kind::String | Kind::Array | Kind::Null),
            (4, Member::Content) => matches!(kind, Kind::Object | Kind::String | Kind::Null),
            _ => true,
        };
        if !fits {
            self.verdict = Verdict::Wrong;
        }
    }

    /// A string within a structured prompt begins.
    fn begin_nested_text(&mut self, spot: Spot, slot: usize) {
        if spot.in_array || self.text {
            self.string = Use::Prompt { slot, media: !spot.in_array && self.media };
        }
    }

    /// The slot of the field that is being read, if its text is nested.
    fn slot(&self) -> Option<usize> {
        match self.field {
            Field::Prompt => Some(PROMPT),
            Field::System => Some(SYSTEM),
            Field::Documents => Some(DOCUMENTS),
            _ => None,
        }
    }
}

impl Events for Extract {
    fn key(&mut self, key: &[u8], depth: usize) {
        if depth == 1 {
            self.field = field(self.api, key);
            return;
        }
        match self.field {
            Field::StreamOptions => self.wanted = depth == 2 && key == b"include_usage",
            Field::Sampling(limit) => self.wanted = depth == 2 && key.eq_ignore_ascii_case(limit),
            Field::Prompt | Field::System | Field::Documents => {
                self.text = fields::is_text(key);
                self.media = !matches!(key, b"text" | b"content");
                if depth == 3 {
                    self.member = if key.eq_ignore_ascii_case(b"role") {
                        Member::Role
                    } else if key.eq_ignore_ascii_case(b"content") {
                        Member::Content
                    } else {
                        Member::Other
                    };
                }
            }
            _ => {}
        }
    }

    fn value(&mut self, kind: Kind, spot: Spot) {
        if kind == Kind::String {
            (self.string, self.length, self.prefix) = (Use::Nothing, 0, 0);
        }
        match spot.depth {
            0 => self.root = Some(kind),
            1 if spot.in_array => self.field = Field::Other,
            1 => self.begin(kind, spot.at),
            depth => {
                let Some(slot) = self.slot() else {
                    if self.wanted && depth == 2 && self.field == Field::StreamOptions {
                        self.include_usage = kind == Kind::Bool(true);
                    }
                    return;
                };
                if slot == PROMPT && depth == 2 && spot.in_array {
                    self.element(kind);
                } else if slot == PROMPT && self.shape == Shape::Turns {
                    self.within_turn(kind, spot);
                } else if slot == PROMPT
                    && self.element == Some(Element::Ids)
                    && kind != Kind::Number
                {
                    self.bad_id();
                }
                if kind == Kind::String {
                    self.begin_nested_text(spot, slot);
                }
            }
        }
    }

    fn number(&mut self, number: Number, depth: usize) {
        let count = (!number.negative && !number.fraction).then_some(number.digits);
        match self.field {
            Field::Limit(rank) if depth == 1 => self.limits[rank] = count,
            Field::Sampling(_) if depth == 2 && self.wanted => self.limits[0] = count,
            Field::Prompt if matches!(self.shape, Shape::Prompts | Shape::Ids) => {
                if count.is_none_or(|id| id > u64::from(u32::MAX)) {
                    self.bad_id();
                } else if depth > 1 {
                    self.ids += 1;
                }
            }
            _ => {}
        }
    }

    #[inline]
    fn text(&mut self, piece: &[u8]) {
        match self.string {
            Use::Nothing => {}
            Use::Model => self.name.extend_from_slice(piece),
            Use::Prompt { slot, media } => {
                self.bytes[slot] += piece.len() as u64;
                self.length += piece.len() as u64;
                if media && self.prefix < DATA_URI.len() {
                    for byte in piece {
                        match DATA_URI.get(self.prefix) {
                            Some(due) if due == byte => self.prefix += 1,
                            Some(_) => self.prefix = DATA_URI.len() + 1,
                            None => break,
                        }
                    }
                }
            }
        }
    }

    fn string_end(&mut self, depth: usize, end: u64) {
        match self.string {
            Use::Nothing => {}
            Use::Model => self.model = Some(self.name_start..end),
            Use::Prompt { slot, media } => {
                if media && self.prefix == DATA_URI.len() {
                    self.bytes[slot] -= self.length;
                }
                if depth == 1 && slot == PROMPT && self.verdict == Verdict::Empty && self.length > 0
                {
                    self.verdict = Verdict::Good;
                }
            }
        }
    }

    fn close(&mut self, depth: usize, end: u64) {
        if depth == 1 && self.field == Field::Tools {
            self.bytes[TOOLS] = end - self.started;
        }
    }
}
