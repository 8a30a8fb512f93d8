//! The rules that are compared.
//!
//! Decides one pick. Rules that are profiles run through `routing::schedule`; the others are what
//! gateways and load balancers usually do, on the same readings and the same ledger.

use plumbline::endpoint::{Ahead, Load, Since};
use plumbline::pool::PoolView;
use plumbline::routing::picker::{Choice, Picker};
use plumbline::routing::scorer::Scorer;
use plumbline::routing::{self, Ask, Profile, Scratch};
use plumbline::saturation;
use plumbline::thresholds::Thresholds;
use rand::Rng;
use rand::rngs::SmallRng;

/// A rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rule {
    /// A profile on the present: readings and what is of ours since.
    Present(Profile),
    /// A profile on readings as they were scraped; in-flight counts are still known.
    Scraped(Profile),
    /// A profile that knows nothing of its own requests but what servers tell: a broken ledger.
    Blind(Profile),
    /// One after the other.
    RoundRobin,
    /// The shortest queue as scraped.
    LeastWaiting,
    /// The better of two drawn, by the detector's score as scraped.
    TwoByScore,
    /// The one of two drawn that has fewer of our requests.
    TwoByOwn,
    /// Blocks to be read plus blocks in use, of our requests.
    Blocks,
}

impl Rule {
    /// The default under test.
    pub(crate) fn ours() -> Self {
        Self::Present(Profile::default())
    }

    /// The default without its ledger, which shows what that is worth; no rival.
    pub(crate) fn broken() -> Self {
        Self::Blind(Profile::default())
    }

    /// Every rival and its name in the table.
    pub(crate) fn rivals() -> Vec<(&'static str, Self)> {
        let upstream = Profile::upstream();
        let of = |scorers: &[(Scorer, f64)]| Profile {
            filters: Vec::new(),
            scorers: scorers.to_vec(),
            picker: Picker::one(Choice::MaxScore),
        };
        let active = (Scorer::IN_FLIGHT, 2.0);
        let filtered = Profile { filters: Profile::default().filters, ..upstream.clone() };
        let with_active = of(&[(Scorer::Queue, 2.0), (Scorer::KvCache, 2.0), active]);
        let random = Profile { picker: Picker::one(Choice::Random), ..of(&[]) };
        vec![
            ("random", Self::Scraped(random)),
            ("round robin", Self::RoundRobin),
            ("least waiting", Self::LeastWaiting),
            ("upstream default", Self::Scraped(upstream)),
            ("upstream + filter", Self::Scraped(filtered)),
            ("upstream + active", Self::Scraped(with_active)),
            ("fewest of our own", Self::Scraped(of(&[active]))),
            ("fewest own tokens", Self::Scraped(of(&[(Scorer::TOKEN_LOAD, 1.0)]))),
            ("two, by score", Self::TwoByScore),
            ("two, by own", Self::TwoByOwn),
            ("blocks (Dynamo)", Self::Blocks),
        ]
    }

    /// Whether the rule reads the present and not the bare scrapes.
    pub(crate) fn reads_present(&self) -> bool {
        matches!(self, Self::Present(_) | Self::Blind(_))
    }
}

/// What a rule may look at beside the pool.
pub(crate) struct Request<'a> {
    /// Estimated prompt tokens.
    pub(crate) tokens: u64,
    /// Number of this request at its picker.
    pub(crate) number: usize,
    /// Prompt tokens of our requests at each server, answered or not.
    pub(crate) held: &'a [u64],
}

/// Chooses an index into `members`; `None` for an empty pool.
pub(crate) fn choose(
    rule: &Rule,
    members: &[plumbline::pool::Member],
    loads: &mut [Load],
    request: &Request<'_>,
    rng: &mut SmallRng,
    scratch: &mut Scratch,
) -> Option<usize> {
    let thresholds = Thresholds::default();
    let count = members.len();
    match rule {
        Rule::Present(profile) | Rule::Scraped(profile) | Rule::Blind(profile) => {
            if matches!(rule, Rule::Blind(_)) {
                loads.iter_mut().for_each(forget_ours);
            }
            let view = PoolView { members, loads };
            let ask = Ask { prompt_tokens: request.tokens, ..Ask::default() };
            routing::schedule(&view, &ask, profile, &thresholds, rng, scratch).ok()?.next()
        }
        _ if count == 0 => None,
        Rule::RoundRobin => Some(request.number % count),
        Rule::LeastWaiting => least(loads, rng, |_, load| load.waiting.value().unwrap_or(0.0)),
        Rule::TwoByScore => two(loads, rng, |load| saturation::endpoint_score(load, &thresholds)),
        Rule::TwoByOwn => two(loads, rng, |load| f64::from(load.in_flight)),
        Rule::Blocks => {
            least(loads, rng, |at, load| (load.in_flight_tokens + request.held[at]) as f64)
        }
    }
}

/// Everything that the ledger knows is taken away; all that servers tell counts as others'.
fn forget_ours(load: &mut Load) {
    let (waiting, running) = (load.waiting.value(), load.running.value());
    // A usual prompt of the workloads stands for the mean that the ledger would know.
    const USUAL_PROMPT: f64 = 1000.0;
    (load.in_flight, load.in_flight_tokens) = (0, 0);
    (load.since, load.ahead) = (Since::default(), Ahead::default());
    load.others = waiting.unwrap_or(0.0) + running.unwrap_or(0.0);
    load.others_tokens = waiting.unwrap_or(0.0) * USUAL_PROMPT;
}

/// The least by `key`, each of equals with the same chance.
fn least(loads: &[Load], rng: &mut SmallRng, key: impl Fn(usize, &Load) -> f64) -> Option<usize> {
    let (mut best, mut least, mut equals) = (None, f64::INFINITY, 0_u32);
    for (at, load) in loads.iter().enumerate() {
        let value = key(at, load);
        if value < least {
            (best, least, equals) = (Some(at), value, 1);
        } else if value == least {
            equals += 1;
            if rng.random_range(0..equals) == 0 {
                best = Some(at);
            }
        }
    }
    best
}

/// The better of two drawn.
fn two(loads: &[Load], rng: &mut SmallRng, key: impl Fn(&Load) -> f64) -> Option<usize> {
    let (a, b) = (rng.random_range(0..loads.len()), rng.random_range(0..loads.len()));
    Some(if key(&loads[b]) < key(&loads[a]) { b } else { a })
}
