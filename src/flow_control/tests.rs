//! The owner under paused time: nothing here takes any.

use tokio::task::JoinHandle;

use super::*;
use crate::endpoint::Endpoint;
use crate::store::MembershipWriter;

const WAIT: Duration = Duration::from_secs(290);

struct World {
    control: FlowControl,
    writer: MembershipWriter,
    pool: watch::Sender<()>,
    lifecycle: Lifecycle,
    stop: watch::Sender<bool>,
    owner: JoinHandle<()>,
}

impl World {
    fn start(requests: usize) -> Self {
        let (store, writer) = Store::new(Instant::now().into_std());
        let limits = Limits { requests, bytes: 100, wait: WAIT };
        let (control, owner) = FlowControl::new(limits, store);
        let (pool, changes) = watch::channel(());
        let (stop, stopped) = watch::channel(false);
        let lifecycle = Lifecycle::default();
        let owner = tokio::spawn(owner.run(changes, lifecycle.clone(), stopped));
        Self { control, writer, pool, lifecycle, stop, owner }
    }

    fn arrive(&self, bytes: u64) -> Waiting {
        let (ticket, deadline) = self.control.ticket();
        self.control.arrive(Arrival { ticket, bytes, priority: 0, fairness: None, deadline })
    }

    /// An endpoint joins, and the owner hears of it or not.
    fn join(&mut self, tell: bool) {
        self.writer.apply(vec![Endpoint::new("default", "a", ([127, 0, 0, 1], 1).into())]);
        if tell {
            self.pool.send_replace(());
        }
    }

    /// Returns once the owner has handled all that it was told.
    async fn settled(&self) {
        // Time passes only while nobody has anything to do.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Mutants: a change of the pool not heard; the level not shown, or shown after the verdict.
#[tokio::test(start_paused = true)]
async fn an_endpoint_lets_all_go() {
    let mut world = World::start(9);
    let (first, second) = (world.arrive(30), world.arrive(12));
    tokio::time::sleep(Duration::from_secs(60)).await;
    let held = Held { requests: 2, bytes: 42, oldest: Some(Duration::from_secs(60)) };
    assert_eq!(world.control.held(), held);
    world.join(true);
    assert_eq!((first.await, second.await), (Verdict::Dispatch, Verdict::Dispatch));
    assert_eq!(world.control.held(), Held::default());
}

/// A request that saw an empty pool a moment before an endpoint joined is not held for want of news.
/// Mutant: the pool looked at only when it is told to have changed.
#[tokio::test(start_paused = true)]
async fn an_arrival_meets_the_pool_of_now() {
    let mut world = World::start(9);
    world.join(false);
    assert_eq!(world.arrive(1).await, Verdict::Dispatch);
}

/// Mutants: no timer, a timer that is not moved to the next deadline, a wait that is not ours.
#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_deadline() {
    let world = World::start(9);
    let start = Instant::now();
    let first = world.arrive(1);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let second = world.arrive(1);
    assert_eq!(first.await, Verdict::Reject(Reason::Expired));
    assert_eq!(start.elapsed().as_secs(), 290);
    assert_eq!(second.await, Verdict::Reject(Reason::Expired));
    assert_eq!(start.elapsed().as_secs(), 300);
    assert_eq!(world.control.held(), Held::default());
}

/// Mutants: a dropped request that stays; one that was answered and takes another's place with it.
#[tokio::test(start_paused = true)]
async fn who_leaves_makes_room_at_once() {
    let world = World::start(1);
    let (first, second) = (world.arrive(1), world.arrive(1));
    assert_eq!(second.await, Verdict::Reject(Reason::Full));
    world.settled().await;
    assert_eq!(world.control.held().requests, 1);
    drop(first);
    world.settled().await;
    assert_eq!(world.control.held(), Held::default());
    let third = world.arrive(1);
    world.settled().await;
    assert_eq!(world.control.held().requests, 1);
    drop(third);
}

/// Mutants: the drain not heard; requests still held after it.
#[tokio::test(start_paused = true)]
async fn a_drain_ends_all_waits() {
    let world = World::start(9);
    let held = world.arrive(1);
    world.settled().await;
    world.lifecycle.drain();
    assert_eq!(held.await, Verdict::Reject(Reason::ShuttingDown));
    assert_eq!(world.arrive(1).await, Verdict::Reject(Reason::ShuttingDown));
}

/// Mutant: a wait without end when nobody is left who could answer.
#[tokio::test(start_paused = true)]
async fn nobody_waits_for_an_owner_that_is_gone() {
    let world = World::start(9);
    let held = world.arrive(1);
    world.stop.send_replace(true);
    world.owner.await.unwrap();
    assert_eq!(held.await, Verdict::Reject(Reason::ShuttingDown));
    let (ticket, deadline) = world.control.ticket();
    let late = Arrival { ticket, bytes: 1, priority: 0, fairness: None, deadline };
    assert_eq!(world.control.arrive(late).await, Verdict::Reject(Reason::ShuttingDown));
}
