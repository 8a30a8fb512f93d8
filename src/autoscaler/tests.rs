//! The loop under paused time: when it plans, what it takes for known, and what a plan reads.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, advance, sleep};

use super::observer::Observer;
use super::*;
use crate::config::variants::{self, Variants};
use crate::config::variants_file::VariantsState;
use crate::endpoint::Endpoint;
use crate::lifecycle::Lifecycle;
use crate::policy::{Policy, PolicyWriter, Source};
use crate::routing::Profile;
use crate::scaling::registry::Registry;
use crate::store::{LoadWriter, MembershipWriter, Page, Scraped, Store, Told, Vital, VitalsWriter};
use crate::telemetry::metrics::Metrics;
use crate::thresholds::{Draft, Thresholds};

/// A pool of one endpoint, its poller played by the test.
struct World {
    store: Store,
    members: MembershipWriter,
    load: LoadWriter,
    vitals: VitalsWriter,
    policy: PolicyWriter,
    variants: watch::Sender<VariantsState>,
    membership: watch::Sender<()>,
    standing: watch::Sender<Standing>,
    history: History,
    published: watch::Receiver<Published>,
    _stop: watch::Sender<bool>,
}

fn policy(queue_depth: f64) -> Policy {
    let line = Thresholds::try_new(Draft { queue_depth, ..Draft::default() }).unwrap();
    Policy::new(line, [Source::BuiltIn; 8], Profile::default())
}

fn endpoint(n: u16) -> Endpoint {
    Endpoint::new("d", &format!("e{n}"), ([127, 0, 0, 1], n).into())
}

impl World {
    /// The loop runs and has made its first plan; `interval` lies between two that nothing hurries.
    async fn start(interval: Duration, standing: Standing, document: &str) -> Self {
        let (store, mut members) = Store::new(Instant::now().into_std());
        let slot = members.apply(vec![endpoint(1)]).started[0].slot;
        let load = store.load_writer(slot);
        let vitals = store.vitals_writer(slot, Vital::ALL.map(|_| true), []);
        let (policy_writer, reader) = PolicyWriter::new(policy(5.0));
        let variants = Arc::new(variants::read(document.as_bytes()).unwrap().unwrap());
        let (variants, variants_in) =
            watch::channel(VariantsState { variants, ..VariantsState::default() });
        let (membership, membership_in) = watch::channel(());
        let (standing, standing_in) = watch::channel(standing);
        let (stop, stopped) = watch::channel(false);
        let sources = Sources {
            store: store.clone(),
            policy: reader,
            flow: None,
            peers: watch::channel(crate::peers::Heard::new()).1,
            variants: variants_in,
            membership: membership_in,
            standing: standing_in,
            lifecycle: Lifecycle::default(),
            metrics: Arc::new(Metrics::new().unwrap()),
        };
        let pace = Pace {
            interval,
            look: Duration::from_millis(50),
            startup_grace: Duration::from_secs(600),
            inert_after: Duration::from_secs(300),
        };
        let subject = Subject { model_id: None, namespace: "ns".to_owned() };
        let history = History::default();
        let (autoscaler, published) =
            Autoscaler::new(sources, subject, pace, Registry::new(), history.clone());
        tokio::spawn(autoscaler.run(stopped));
        let mut world = Self {
            store,
            members,
            load,
            vitals,
            policy: policy_writer,
            variants,
            membership,
            standing,
            history,
            published,
            _stop: stop,
        };
        world.scrape(0.0);
        sleep(Duration::from_millis(10)).await;
        world
    }

    fn scrape(&mut self, waiting: f64) {
        let at = Instant::now().into_std();
        self.load.begin();
        let page = Page {
            waiting: Scraped::Value(waiting),
            running: Scraped::Value(1.0),
            kv: Scraped::Value(0.1),
            ranks: 1,
            capacity_tokens: Some(10_000.0),
        };
        self.load.publish(&page, at);
    }

    fn tell(&self, values: &[(Vital, f64)]) {
        let mut told = Told::default();
        for (vital, value) in values {
            told.vitals[*vital as usize] = Some(*value);
        }
        self.vitals.publish(&told, Instant::now().into_std());
    }

    /// Plans and what made them, since the start.
    fn triggers(&self) -> Vec<&'static str> {
        self.history.plans().iter().map(|made| made.trigger).collect()
    }

    /// Scrapes this queue every 50 ms for a while.
    async fn run(&mut self, waiting: f64, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.scrape(waiting);
            sleep(Duration::from_millis(50)).await;
        }
    }
}

const ONE: &str = "variants: [{name: v, modelID: m}]";
const HOUR: Duration = Duration::from_secs(3_600);

/// Mutants: an event that hurries nothing; a plan for each event; a crossing noticed at the interval only.
#[tokio::test(start_paused = true)]
async fn what_cannot_wait_is_planned_at_once_and_four_times_a_second_at_most() {
    let mut world = World::start(HOUR, Standing::Advisory, ONE).await;
    assert_eq!(world.triggers(), ["start"]);
    world.run(0.0, Duration::from_secs(2)).await;
    let before = Instant::now();
    world.run(5.0, Duration::from_millis(100)).await;
    assert_eq!(world.triggers(), ["start", "saturation"]);
    assert!(before.elapsed() <= Duration::from_millis(150));

    world.policy.publish(policy(6.0)).unwrap();
    world.run(5.0, Duration::from_secs(1)).await;
    assert_eq!(world.triggers()[2..], ["policy"]);
    assert_eq!(world.history.newest().unwrap().plan.generation, 2);

    world.members.apply(vec![endpoint(1), endpoint(2)]);
    world.membership.send_replace(());
    world.run(5.0, Duration::from_secs(1)).await;
    let newest = world.history.newest().unwrap();
    assert_eq!((newest.trigger, newest.plan.models[0].variants[0].current), ("membership", 2));

    let plans = world.triggers().len();
    for n in 0..100 {
        world.policy.publish(policy(7.0 + f64::from(n % 2))).unwrap();
        sleep(Duration::from_millis(10)).await;
    }
    let made = world.triggers().len() - plans;
    assert!((3..=5).contains(&made), "{made} plans in a second");
}

/// Mutants: an interval that events push back; plans that pile up.
#[tokio::test(start_paused = true)]
async fn without_events_a_plan_is_made_every_interval() {
    let mut world = World::start(Duration::from_secs(1), Standing::Advisory, ONE).await;
    world.run(0.0, Duration::from_secs(20)).await;
    let made = world.triggers().len();
    assert!((20..=22).contains(&made), "{made} plans in 20 seconds");
    assert!(world.triggers()[1..].iter().all(|trigger| *trigger == "interval"));
}

/// Mutants: published counts kept in advice; a standing that changes nothing until the next interval.
#[tokio::test(start_paused = true)]
async fn pending_replicas_are_waited_for_while_they_may_start() {
    let mut world = World::start(Duration::from_secs(1), Standing::Holder, ONE).await;
    world.run(50.0, Duration::from_secs(5)).await;
    let variant = world.published.borrow().plan.models[0].variants[0].clone();
    assert!(variant.target > 1 && variant.pending == variant.target - 1, "{variant:?}");
    assert_eq!(variant.current, variant.target);
    // None of them came; they are given up.
    world.run(0.0, Duration::from_secs(601)).await;
    let variant = world.published.borrow().plan.models[0].variants[0].clone();
    assert_eq!((variant.current, variant.pending), (1, 0));
    world.standing.send_replace(Standing::Standby { holder: None });
    world.run(0.0, Duration::from_millis(300)).await;
    assert!(world.published.borrow().acting().is_err());
}

/// Mutants: a request count that is known before a whole retention was seen; a server that was not read
/// taken for idle; finished requests forgotten early.
#[tokio::test(start_paused = true)]
async fn idle_is_known_after_a_whole_retention_of_readings() {
    let mut world = World::start(HOUR, Standing::Advisory, ONE).await;
    let slot = world.store.pool().members[0].slot;
    let id = endpoint(1).id;
    let (mut observer, mut now) = (Observer::default(), 0_u64);
    let retention = 60_000;
    let mut second = async |world: &mut World, succeeded: Option<f64>| {
        if let Some(value) = succeeded {
            world.tell(&[(Vital::Succeeded, value)]);
        }
        let vitals = world.store.vitals(slot, Instant::now().into_std()).unwrap();
        observer.vitals(&id, &vitals, now);
        observer.round(|_| true, retention, now);
        let known = observer.finished(retention, now);
        advance(Duration::from_secs(1)).await;
        now += 1_000;
        known
    };
    // Its past before the first reading is not known.
    for _ in 0..60 {
        assert_eq!(second(&mut world, Some(7.0)).await, None);
    }
    assert_eq!(second(&mut world, Some(7.0)).await, Some(0.0));
    assert_eq!(second(&mut world, Some(9.0)).await, Some(2.0));
    for _ in 0..59 {
        assert_eq!(second(&mut world, Some(9.0)).await, Some(2.0));
    }
    for _ in 0..2 {
        second(&mut world, Some(9.0)).await;
    }
    assert_eq!(second(&mut world, Some(9.0)).await, Some(0.0));
    // A reading of 30 s is still one; then nothing is known, and for a whole retention after it.
    for _ in 0..30 {
        assert_eq!(second(&mut world, None).await, Some(0.0));
    }
    assert_eq!(second(&mut world, None).await, None);
    for _ in 0..59 {
        assert_eq!(second(&mut world, Some(9.0)).await, None);
    }
    assert_eq!(second(&mut world, Some(9.0)).await, Some(0.0));
    // A server that comes with a past may have been busy a moment ago.
    let vitals = world.store.vitals(slot, Instant::now().into_std()).unwrap();
    observer.vitals(&endpoint(2).id, &vitals, now);
    assert_eq!(observer.finished(retention, now), None);
}

/// Mutants: the raw scrape instead of the mean of its second; totals instead of what five minutes added;
/// an endpoint counted for every variant that matches.
#[tokio::test(start_paused = true)]
async fn a_replica_is_told_by_its_highest_second_and_its_last_minutes() {
    let document = "variants:\n- {name: a, endpoints: ['127.0.0.1:1']}\n- {name: b}\n";
    let mut world = World::start(Duration::from_secs(1), Standing::Advisory, document).await;
    let tokens = |count: f64| {
        [
            (Vital::RequestPromptTokensSum, 1_000_000.0 + 100.0 * count),
            (Vital::RequestPromptTokensCount, 10.0 + count),
            (Vital::RequestGenerationTokensSum, 50.0 * count),
            (Vital::RequestGenerationTokensCount, count),
            (Vital::PrefixQueries, 4.0 * count),
            (Vital::PrefixHits, count),
            (Vital::NumBlocks, 100.0),
            (Vital::BlockSize, 16.0),
            (Vital::Succeeded, count),
        ]
    };
    world.tell(&tokens(0.0));
    world.run(0.0, Duration::from_millis(1_990)).await;
    // Half a second of 8 and half of 0, in one second of the loop's clock.
    world.run(8.0, Duration::from_millis(500)).await;
    world.tell(&tokens(30.0));
    world.run(0.0, Duration::from_millis(3_500)).await;
    let snapshot = world.history.snapshot().unwrap();
    let replica = &snapshot.input.models[0].replicas[0];
    assert_eq!(replica.variant, "a");
    let queue = replica.queue.unwrap();
    assert!((3.5..=4.5).contains(&queue), "{queue}");
    assert_eq!((replica.avg_input_tokens, replica.avg_output_tokens), (Some(100.0), Some(50.0)));
    assert_eq!(replica.prefix_hit_rate, Some(0.25));
    assert_eq!((replica.num_gpu_blocks, replica.block_size), (Some(100.0), Some(16.0)));
    let variants = &snapshot.input.models[0].variants;
    assert_eq!(variants.iter().map(|v| v.current).collect::<Vec<_>>(), [1, 0]);
    assert!(snapshot.learned.windows.contains_key("ns/default/d/e1/queue"));
    let next = Variants::one("c");
    world.variants.send_modify(|state| state.variants = Arc::new(next));
    world.run(0.0, Duration::from_millis(300)).await;
    let newest = world.history.newest().unwrap();
    assert_eq!((newest.trigger, &*newest.plan.models[0].variants[0].name), ("variants", "c"));
}
