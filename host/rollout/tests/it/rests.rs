//! More episodes in flight than the environment has seats: they rest while a model is asked, and nobody can tell.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::journal::Journal;
use pl_plugin::{Outcome, Snapshot, Task};
use pl_rollout::{Cast, Environment, Episode, Fault, Plan};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::common::{Action, Script, World, line, plan, play_on_two};

/// An environment with so many seats: whoever finds none waits.
struct Seated {
    inner: Arc<dyn Environment>,
    seats: usize,
    free: Arc<Semaphore>,
    rests: Arc<AtomicUsize>,
}

struct Copy {
    inner: Box<dyn Episode>,
    seat: Option<OwnedSemaphorePermit>,
    free: Arc<Semaphore>,
    rests: Arc<AtomicUsize>,
}

async fn take(free: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Some(Arc::clone(free).acquire_owned().await.unwrap())
}

impl Seated {
    async fn seated(
        &self,
        inner: impl Future<Output = Result<Box<dyn Episode>, Fault>>,
    ) -> Result<Box<dyn Episode>, Fault> {
        let (free, rests) = (Arc::clone(&self.free), Arc::clone(&self.rests));
        Ok(Box::new(Copy { seat: take(&self.free).await, inner: inner.await?, free, rests }))
    }
}

#[async_trait]
impl Environment for Seated {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        journal: &Journal,
    ) -> Result<Box<dyn Episode>, Fault> {
        self.seated(self.inner.start(task, seed, stream, journal)).await
    }

    async fn restore(&self, snapshot: &Snapshot, journal: &Journal) -> Result<Box<dyn Episode>, Fault> {
        self.seated(self.inner.restore(snapshot, journal)).await
    }

    fn seats(&self) -> usize {
        self.seats
    }
}

impl Copy {
    async fn sit(&mut self) {
        if self.seat.is_none() {
            self.seat = take(&self.free).await;
        }
    }
}

#[async_trait]
impl Episode for Copy {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        self.sit().await;
        self.inner.view(agent).await
    }

    async fn apply(&mut self, actions: &[Action]) -> Result<Outcome, Fault> {
        self.sit().await;
        self.inner.apply(actions).await
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.inner.snapshot().await
    }

    async fn rest(&mut self) -> Result<(), Fault> {
        self.rests.fetch_add(1, Ordering::Relaxed);
        self.seat = None;
        Ok(())
    }
}

/// What is played with so many seats, and how often an episode rested.
fn played(mode: Rollout, seats: usize, in_flight: usize) -> (Vec<pl_record::Transition>, usize) {
    let world = World::with_jitter(Script::default(), 3);
    let cast = world.cast(2, line(3, &[&[0], &[1]], Target::Node(0)));
    let rests = Arc::new(AtomicUsize::new(0));
    let free = Arc::new(Semaphore::new(seats));
    let environment =
        Arc::new(Seated { inner: Arc::clone(&cast.environment), seats, free, rests: Arc::clone(&rests) });
    let cast = Arc::new(Cast { environment, ..(*cast).clone() });
    let batch = play_on_two(&cast, &Plan { in_flight, ..plan(mode, 6, 4) }).unwrap();
    assert_eq!(batch.lost, 0);
    (batch.transitions, rests.load(Ordering::Relaxed))
}

#[test]
fn a_batch_is_the_same_with_seats_for_all_and_for_two() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let (roomy, _) = played(mode, 64, 24);
        let (crowded, _) = played(mode, 2, 24);
        assert_eq!(roomy, crowded, "{mode:?}");
    }
}

#[test]
fn episodes_rest_exactly_where_there_are_more_of_them_than_seats() {
    let stops = 6;
    assert_eq!(played(Rollout::Flat, 24, 24).1, 0);
    assert_eq!(played(Rollout::Flat, 8, 8).1, 0);
    assert_eq!(played(Rollout::Flat, 23, 24).1, 24 * stops);
    // All that there are, have seats.
    assert_eq!(played(Rollout::Flat, 24, 1000).1, 0);
    // The states of a tree are snapshots between its calls.
    assert_eq!(played(Rollout::Tree, 2, 24).1, 0);
}
