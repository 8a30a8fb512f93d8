//! Each rule of the verdict on a run made by hand: a good one passes, one fact changed breaks exactly
//! the rule that speaks of it.

use super::super::access_log::Line;
use super::super::observed::{Reading, Sample};
use super::super::traffic::Kind;
use super::*;

const REFUSED: &str = "upstream_reset_before_response_started{remote_connection_failure}";

fn endpoint(number: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8000 + number))
}

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A request sent at `sent` that took 100 ms.
fn request(sent: u64, to: u16, answer: Answer, details: &str) -> Outcome {
    let at = Some(endpoint(to));
    Outcome {
        number: sent,
        kind: Kind::Chat,
        sent: ms(sent),
        ended: ms(sent + 100),
        first: None,
        answer,
        served_by: None,
        gateway: Some(Line { details: details.to_owned(), upstream: at, ..Line::default() }),
    }
}

/// A run of 30 s with a request every 50 ms and a look every 100 ms: broken at 10 s, mended at 20 s.
/// `serving` says which of the four servers may be picked at a time, `reading` how the third looks.
fn run(serving: impl Fn(u64) -> Vec<u16>, reading: impl Fn(u64) -> (f64, bool)) -> Observed {
    let outcomes = (0..600u64).map(|i| {
        let open = serving(i * 50);
        request(i * 50, open[i as usize % open.len()], Answer::Whole(200), "via_upstream")
    });
    let samples = (0..300u64).map(|i| {
        let of = |number: u16| {
            let (score, stale) =
                if usize::from(number) == TARGET { reading(i * 100) } else { (0.3, false) };
            Reading {
                address: endpoint(number),
                waiting: None,
                running: None,
                kv: None,
                score,
                in_flight: 0,
                stale,
            }
        };
        Sample { at: ms(i * 100), saturation: 0.3, readings: (0..4).map(of).collect() }
    });
    Observed {
        endpoints: (0..4).map(endpoint).collect(),
        outcomes: outcomes.collect(),
        samples: samples.collect(),
        broken: Some(ms(10_000)),
        mended: Some(ms(20_000)),
        staleness: ms(200),
        ended: ms(30_000),
    }
}

fn rules(observed: &Observed, broken: Option<Break>) -> Vec<&'static str> {
    let mut rules: Vec<_> = verdict(observed, broken).iter().map(|broke| broke.rule).collect();
    rules.dedup();
    rules
}

const ALL: [u16; 4] = [0, 1, 2, 3];

fn calm() -> Observed {
    run(|_| ALL.to_vec(), |_| (0.3, false))
}

/// Mutants: no rule for an empty run, a 404 or a cut answer counted as good, a spread rule that looks
/// at the first endpoint only.
#[test]
fn without_a_break_every_request_is_answered() {
    assert_eq!(verdict(&calm(), None), []);
    assert_eq!(rules(&Observed::default(), None), [rule::TRAFFIC]);
    for answer in [
        Answer::Whole(404),
        Answer::Whole(503),
        Answer::Cut(200),
        Answer::Nothing("closed".to_owned()),
    ] {
        let mut one = calm();
        one.outcomes.push(request(1, 0, answer, ""));
        assert_eq!(rules(&one, None), [rule::ANSWERED]);
    }
    let uneven = run(|_| vec![0, 1, 2], |_| (0.3, false));
    assert_eq!(rules(&uneven, None), [rule::SPREAD]);
}

/// Dead from 10 s to 20 s, stale 200 ms later, fresh again at 20.1 s.
fn killed() -> Observed {
    let serving = |at| match at {
        10_000..20_100 => vec![0, 1, 3],
        _ => ALL.to_vec(),
    };
    run(serving, |at| if (10_200..20_100).contains(&at) { (1.0, true) } else { (0.3, false) })
}

/// Mutants, one a line: the allowance without its end, without its beginning, at any endpoint, for
/// any status, for any detail, for a cut answer not at all.
#[test]
fn a_killed_endpoint_may_cost_what_was_there() {
    let with = |outcome| {
        let mut observed = killed();
        observed.outcomes.push(outcome);
        rules(&observed, Some(Break::KillEndpoint))
    };
    let failed = || Answer::Whole(503);
    assert_eq!(rules(&killed(), Some(Break::KillEndpoint)), [""; 0]);
    assert_eq!(with(request(10_449, 2, failed(), REFUSED)), [""; 0]);
    assert_eq!(with(request(10_451, 2, failed(), REFUSED)), [rule::ANSWERED, rule::AVOIDED]);
    assert_eq!(with(request(9_899, 2, failed(), REFUSED)), [rule::ANSWERED]);
    assert_eq!(with(request(10_100, 1, failed(), REFUSED)), [rule::ANSWERED]);
    assert_eq!(with(request(10_100, 2, Answer::Whole(500), REFUSED)), [rule::ANSWERED]);
    assert_eq!(with(request(10_100, 2, failed(), "rejected-no-endpoints")), [rule::ANSWERED]);
    assert_eq!(with(request(9_950, 2, Answer::Cut(200), "upstream_reset_after")), [""; 0]);
}

/// Mutants: the staleness limit taken as it is, however long; no rule that the endpoint turns stale,
/// stays so, or returns.
#[test]
fn a_killed_endpoint_is_noticed_and_returns() {
    let broken = Some(Break::KillEndpoint);
    let mut patient = killed();
    patient.staleness = Duration::from_secs(3600);
    assert_eq!(notice(&patient), ms(1250));
    patient.outcomes.push(request(11_300, 2, Answer::Whole(503), REFUSED));
    assert_eq!(rules(&patient, broken), [rule::ANSWERED, rule::AVOIDED]);

    let serving = |at| if (10_000..20_100).contains(&at) { vec![0, 1, 3] } else { ALL.to_vec() };
    let unnoticed = run(serving, |_| (0.3, false));
    assert_eq!(rules(&unnoticed, broken), [rule::NOTICED]);
    let flickering = run(serving, |at| (1.0, at % 1000 != 0));
    assert_eq!(rules(&flickering, broken), [rule::NOTICED]);
    let gone =
        run(|at| if at < 10_000 { ALL.to_vec() } else { vec![0, 1, 3] }, |at| (1.0, at >= 10_200));
    assert_eq!(rules(&gone, broken), [rule::RETURNED]);
}

/// Mutant: the excuse for a picker that fails open left out, or given without need.
#[test]
fn failing_open_excuses_a_pick() {
    let mut observed = killed();
    observed.outcomes.push(request(15_000, 2, Answer::Whole(200), ""));
    assert_eq!(rules(&observed, Some(Break::KillEndpoint)), [rule::AVOIDED]);
    for sample in &mut observed.samples {
        if sample.at.abs_diff(ms(15_000)) < ms(200) {
            sample.readings.iter_mut().for_each(|reading| reading.score = 1.0);
        }
    }
    assert_eq!(rules(&observed, Some(Break::KillEndpoint)), [""; 0]);
}

/// Mutants, one a line: the allowance without its end, without its beginning, for a status of a model
/// server, for a cut of a later request, for a cut by a model server; no rule that it recovers.
#[test]
fn a_killed_plumbline_may_cost_its_absence() {
    let broken = Some(Break::KillPlumbline);
    let mut away = calm();
    away.mended = Some(ms(12_300));
    let with = |outcome| {
        let mut observed = away.clone();
        observed.outcomes.push(outcome);
        rules(&observed, broken)
    };
    let refused = || Answer::Whole(500);
    assert_eq!(rules(&away, broken), [""; 0]);
    assert_eq!(with(request(13_799, 0, refused(), "ext_proc_error")), [""; 0]);
    assert_eq!(with(request(13_801, 0, refused(), "ext_proc_error")), [rule::ANSWERED]);
    assert_eq!(with(request(9_899, 0, refused(), "ext_proc_error")), [rule::ANSWERED]);
    assert_eq!(with(request(11_000, 0, Answer::Whole(404), "via_upstream")), [rule::ANSWERED]);
    assert_eq!(with(request(10_100, 0, Answer::Cut(200), "")), [rule::ANSWERED]);
    assert_eq!(with(request(9_990, 0, Answer::Cut(200), "")), [""; 0]);
    assert_eq!(with(request(9_990, 0, Answer::Cut(200), "upstream_reset")), [rule::ANSWERED]);

    let mut lost = away.clone();
    lost.outcomes.retain(|outcome| outcome.sent < ms(13_800));
    assert_eq!(rules(&lost, broken), [rule::RECOVERED]);
    lost.mended = None;
    assert_eq!(rules(&lost, broken), [rule::RECOVERED]);
}

/// The third server pinned from 10 s, all from 20 s.
fn pinned() -> Observed {
    let serving = |at| if (10_000..20_000).contains(&at) { vec![0, 1, 3] } else { ALL.to_vec() };
    let mut observed = run(serving, |at| if at >= 10_100 { (10.0, false) } else { (0.3, false) });
    for sample in observed.samples.iter_mut().filter(|sample| sample.at >= ms(20_100)) {
        sample.saturation = 10.0;
        sample.readings.iter_mut().for_each(|reading| reading.score = 10.0);
    }
    observed
}

/// Mutants, one a block: any failure allowed, a pick of the pinned server allowed, its score not
/// looked at, the others not looked at, the end not looked at.
#[test]
fn saturation_costs_nothing() {
    let broken = Some(Break::Saturate);
    assert_eq!(rules(&pinned(), broken), [""; 0]);
    let mut failed = pinned();
    failed.outcomes.push(request(21_000, 0, Answer::Whole(503), ""));
    assert_eq!(rules(&failed, broken), [rule::ANSWERED]);

    let mut picked = pinned();
    picked.outcomes.push(request(10_451, 2, Answer::Whole(200), ""));
    assert_eq!(rules(&picked, broken), [rule::AVOIDED]);

    let mut unseen = pinned();
    unseen.samples.retain(|sample| sample.at < ms(10_400) || sample.at > ms(20_400));
    assert_eq!(rules(&unseen, broken), [""; 0]);
    for sample in &mut unseen.samples {
        sample.readings[TARGET].score = 0.3;
    }
    assert_eq!(rules(&unseen, broken), [rule::NOTICED]);

    let mut lonely = pinned();
    let during = ms(10_000)..ms(20_000);
    lonely.outcomes.retain(|o| !during.contains(&o.sent) || o.endpoint() != Some(endpoint(1)));
    assert_eq!(rules(&lonely, broken), [rule::OTHERS]);

    let mut refused = pinned();
    refused.outcomes.retain(|outcome| outcome.sent < ms(20_450));
    assert_eq!(rules(&refused, broken), [rule::FAIL_OPEN]);
    let mut open = pinned();
    open.samples.iter_mut().for_each(|sample| sample.saturation = 0.9);
    assert_eq!(rules(&open, broken), [rule::FAIL_OPEN]);
}
