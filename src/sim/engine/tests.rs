//! Scenarios of the engine, each with the change to the engine that turns it red.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// One token per block, ten tokens of prefill per 10 ms, 10 ms per token: easy to reckon with.
fn settings() -> EngineSettings {
    EngineSettings {
        max_num_seqs: 2,
        max_num_batched_tokens: 100,
        block_size: 1,
        num_gpu_blocks: 100,
        prefill_tokens_per_second: 1000.0,
        batch_slowdown: 0.0,
        prefix_caching: false,
        ..EngineSettings::default()
    }
}

fn job(prompt_tokens: u64, output_tokens: u64) -> Job {
    Job { prompt_tokens, output_tokens, ..Job::default() }
}

/// Runs until idle; events with the time of their step in milliseconds.
fn drain(engine: &mut Engine, start: Instant) -> Vec<(u128, Event)> {
    let mut seen = Vec::new();
    while let Some(end) = engine.next_step() {
        let at = (end - start).as_millis();
        seen.extend(engine.advance(end).into_iter().map(|event| (at, event)));
        check(engine);
    }
    seen
}

fn ends(events: &[(u128, Event)]) -> Vec<(u128, SequenceId)> {
    events
        .iter()
        .filter_map(|(at, event)| match event {
            Event::Finished { id, .. } => Some((*at, *id)),
            _ => None,
        })
        .collect()
}

/// What holds at all times.
fn check(engine: &Engine) {
    let held: u64 = engine.running.iter().map(|s| s.blocks).sum();
    assert_eq!(held + engine.free_blocks, engine.settings.num_gpu_blocks, "blocks leak");
    assert!(
        engine.waiting.iter().chain(&engine.inbox).all(|s| s.blocks == 0),
        "waiting holds blocks"
    );
    assert!(engine.running.len() <= engine.settings.max_num_seqs, "batch too large");
    for s in &engine.running {
        assert!(s.blocks * engine.settings.block_size >= s.context() - u64::from(s.scheduled == 0));
    }
    let work = engine.live().waiting + engine.live().running > 0;
    assert!(!work || engine.step_ends.is_some(), "work, but no step");
}

/// Mutants: prefill that costs no time, a first token one step late, or a third sequence in the batch
/// moves a line.
#[test]
fn prefill_then_a_token_a_step_and_the_third_waits() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(settings());
    for _ in 0..3 {
        engine.submit(start, job(10, 3)).unwrap();
    }
    let events = drain(&mut engine, start);
    // 0 starts alone at 0 (the others arrive during its step), prefills to 10; 1 joins, and both run a
    // 20 ms step (10 prefill + 10 decode) to 30; 0 ends at 40; 2 joins at 40.
    assert_eq!(ends(&events), [(40, 0), (60, 1), (80, 2)]);
    assert!(events.contains(&(
        10,
        Event::FirstToken {
            id: 0,
            prompt_tokens: 10,
            after: Duration::from_millis(10),
            last: false
        }
    )));
    assert!(
        events
            .contains(&(30, Event::Token { id: 0, after: Duration::from_millis(20), last: false }))
    );
}

/// Mutant: publishing on submit shows the newcomer before any step has ended.
#[test]
fn gauges_change_at_step_ends_only() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(settings());
    for _ in 0..4 {
        engine.submit(start, job(10, 5)).unwrap();
    }
    assert_eq!((engine.published().waiting, engine.published().running), (0, 0));
    assert_eq!((engine.live().waiting, engine.live().running), (3, 1));
    // The first step ran one sequence; the three that arrived meanwhile are still in the inbox.
    engine.advance(start + Duration::from_millis(10));
    assert_eq!((engine.published().waiting, engine.published().running), (0, 1));
    engine.advance(start + Duration::from_millis(30));
    assert_eq!((engine.published().waiting, engine.published().running), (2, 2));
    drain(&mut engine, start);
    assert_eq!(*engine.published(), Load::default());
}

/// Mutant: a prompt larger than the step's budget that is computed in one step ends at 251 ms.
#[test]
fn a_long_prompt_is_computed_in_chunks_beside_the_others() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(EngineSettings { num_gpu_blocks: 1000, ..settings() });
    engine.submit(start, job(1, 20)).unwrap();
    engine.submit(start, job(250, 1)).unwrap();
    let events = drain(&mut engine, start);
    // Steps: 1 ms; then 99 + 99 + 52 prompt tokens, each beside one decode of 10 ms.
    assert_eq!(ends(&events)[0], (1 + 109 + 109 + 62, 1));
    let tokens_meanwhile = events
        .iter()
        .filter(|(at, event)| *at <= 281 && matches!(event, Event::Token { id: 0, .. }))
        .count();
    assert_eq!(tokens_meanwhile, 3);
}

/// Mutants: preempting the oldest swaps the ends; not counting the output again on return makes the
/// block sum of `check` fail.
#[test]
fn out_of_blocks_the_newest_goes_back_to_the_head_of_the_queue() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine =
        Engine::new(EngineSettings { num_gpu_blocks: 26, max_num_seqs: 3, ..settings() });
    for _ in 0..3 {
        engine.submit(start, job(8, 10)).unwrap();
    }
    let events = drain(&mut engine, start);
    let preempted: Vec<_> =
        events.iter().filter(|(_, event)| matches!(event, Event::Preempted { .. })).collect();
    assert!(matches!(preempted[0].1, Event::Preempted { id: 2 }), "{preempted:?}");
    assert_eq!(ends(&events).iter().map(|(_, id)| *id).collect::<Vec<_>>(), [0, 1, 2]);
    for (_, event) in &events {
        if let Event::Finished { output_tokens, .. } = event {
            assert_eq!(*output_tokens, 10);
        }
    }
}

/// Mutant: leaving the aborted sequence's blocks or slot behind keeps 1 waiting past 15 ms.
#[test]
fn an_abort_frees_slot_and_blocks_for_the_next_step() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(EngineSettings { max_num_seqs: 1, ..settings() });
    let first = engine.submit(start, job(90, 10)).unwrap();
    let second = engine.submit(start, job(90, 1)).unwrap();
    let third = engine.submit(start, job(1, 1)).unwrap();
    let gone = engine.abort(first);
    assert!(matches!(
        gone,
        Some(Event::Finished { reason: FinishReason::Abort, output_tokens: 0, .. })
    ));
    assert_eq!(engine.live().used_blocks, 0);
    check(&engine);
    assert!(engine.abort(third).is_some());
    assert_eq!(engine.abort(third), None);
    assert_eq!(ends(&drain(&mut engine, start)), [(180, second)]);
    assert_eq!(engine.next_step(), None);
}

/// Mutant: a limit that forgets the output lets the engine spin on a sequence that never fits.
#[test]
fn a_request_larger_than_the_cache_is_refused_with_both_numbers() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(settings());
    let error = engine.submit(start, job(60, 41)).unwrap_err().to_string();
    assert!(error.contains("100 tokens") && error.contains("101"), "{error}");
    engine.submit(start, job(60, 40)).unwrap();
    assert!(engine.submit(start, job(1, u64::MAX)).is_err());
    assert_eq!(ends(&drain(&mut engine, start)).len(), 1);
}

/// Mutant: ignoring the hit makes the second first token as slow as the first.
#[test]
fn a_known_prefix_is_not_computed_again() {
    let start = tokio::time::Instant::now().into_std();
    let mut engine = Engine::new(EngineSettings { prefix_caching: true, ..settings() });
    let prompt = Job { prefix: (0..50).collect(), ..job(50, 1) };
    engine.submit(start, prompt.clone()).unwrap();
    assert_eq!(ends(&drain(&mut engine, start)), [(50, 0)]);
    let later = start + Duration::from_millis(100);
    engine.submit(later, prompt).unwrap();
    let events = drain(&mut engine, later);
    assert_eq!(ends(&events), [(1, 1)]);
    assert!(events.iter().any(|(_, e)| matches!(e, Event::Admitted { queried: 50, hit: 49, .. })));
}

#[test]
fn bad_settings_name_the_setting() {
    let bad = [
        (EngineSettings { max_num_seqs: 0, ..settings() }, "max_num_seqs"),
        (EngineSettings { max_num_batched_tokens: 1, ..settings() }, "max_num_batched_tokens"),
        (EngineSettings { prefill_tokens_per_second: f64::NAN, ..settings() }, "prefill_tokens"),
        (EngineSettings { batch_slowdown: -1.0, ..settings() }, "batch_slowdown"),
        (EngineSettings { block_size: 0, ..settings() }, "block_size"),
    ];
    for (settings, name) in bad {
        assert!(settings.check().unwrap_err().contains(name), "{name}");
    }
    assert_eq!(EngineSettings::default().check(), Ok(()));
}

#[derive(Debug, Clone)]
enum Op {
    Submit(u64, u64),
    Abort(u64),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1_u64..60, 1_u64..40).prop_map(|(p, o)| Op::Submit(p, o)),
        1 => (0_u64..40).prop_map(Op::Abort),
        3 => (0_u64..80).prop_map(Op::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64,
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(7),
        ..ProptestConfig::default()
    })]

    /// Mutants: `push_back` in `make_room`, `free_blocks` left alone in `abort`, or `>` for `>=` at the
    /// slots each turn it red.
    #[test]
    fn blocks_are_conserved_slots_kept_and_first_come_is_first_served(
        ops in prop::collection::vec(op(), 1..80),
        block_size in 1_u64..8,
        max_num_seqs in 1_usize..6,
        blocks in 100_u64..160,
    ) {
        let start = tokio::time::Instant::now().into_std();
        let mut now = start;
        let mut engine = Engine::new(EngineSettings {
            block_size, max_num_seqs, num_gpu_blocks: blocks.div_ceil(block_size), ..settings()
        });
        let (mut events, mut submitted) = (Vec::new(), 0);
        for op in ops {
            match op {
                Op::Submit(prompt, output) => {
                    events.extend(engine.advance(now));
                    engine.submit(now, job(prompt, output)).unwrap();
                    submitted += 1;
                }
                Op::Abort(id) => {
                    events.extend(engine.advance(now));
                    events.extend(engine.abort(id));
                }
                Op::Wait(ms) => {
                    now += Duration::from_millis(ms);
                    events.extend(engine.advance(now));
                }
            }
            check(&engine);
        }
        events.extend(drain(&mut engine, start).into_iter().map(|(_, event)| event));
        let finished = events.iter().filter(|e| matches!(e, Event::Finished { .. })).count();
        prop_assert_eq!(finished, submitted, "each request ends once");
        prop_assert_eq!(engine.live(), Load::default());
        // Those in the batch, in order of admission.
        let mut batch: Vec<SequenceId> = Vec::new();
        for event in &events {
            match event {
                Event::Admitted { id, .. } => batch.push(*id),
                Event::Preempted { id } => {
                    // It is the newest of those still running, and comes back before any other.
                    batch.retain(|other| other != id);
                    prop_assert!(batch.iter().all(|other| other < id));
                }
                Event::Finished { id, .. } => batch.retain(|other| other != id),
                _ => {}
            }
            prop_assert!(batch.is_sorted(), "overtaken: {:?}", batch);
        }
    }
}
