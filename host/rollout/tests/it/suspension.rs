//! More episodes in flight than the environment has capacity for: they are suspended while a model generates,
//! with no effect on the results.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use pl_dsl::workflow::{Rollout, Target};
use pl_plugin::call_log::CallLog;
use pl_plugin::{Outcome, Snapshot, Task};
use pl_rollout::{Environment, Episode, EpisodeSetup, Fault, RolloutPlan};
use pl_types::Transition;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::common::{Action, Script, World, line, plan, play_on_two};

/// An environment with limited capacity: a copy waits until it gets a permit.
struct LimitedEnvironment {
    inner: Arc<dyn Environment>,
    capacity: usize,
    permits: Arc<Semaphore>,
    suspensions: Arc<AtomicUsize>,
}

struct LimitedEpisode {
    inner: Box<dyn Episode>,
    permit: Option<OwnedSemaphorePermit>,
    permits: Arc<Semaphore>,
    suspensions: Arc<AtomicUsize>,
}

async fn acquire(permits: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
    Some(Arc::clone(permits).acquire_owned().await.unwrap())
}

impl LimitedEnvironment {
    async fn with_permit(
        &self,
        inner: impl Future<Output = Result<Box<dyn Episode>, Fault>>,
    ) -> Result<Box<dyn Episode>, Fault> {
        let (permits, suspensions) = (Arc::clone(&self.permits), Arc::clone(&self.suspensions));
        let permit = acquire(&self.permits).await;
        Ok(Box::new(LimitedEpisode { permit, inner: inner.await?, permits, suspensions }))
    }
}

#[async_trait]
impl Environment for LimitedEnvironment {
    async fn start(
        &self,
        task: &Task,
        seed: u64,
        stream: [u8; 32],
        call_log: &CallLog,
    ) -> Result<Box<dyn Episode>, Fault> {
        self.with_permit(self.inner.start(task, seed, stream, call_log)).await
    }

    async fn restore(&self, snapshot: &Snapshot, call_log: &CallLog) -> Result<Box<dyn Episode>, Fault> {
        self.with_permit(self.inner.restore(snapshot, call_log)).await
    }

    fn capacity(&self) -> usize {
        self.capacity
    }
}

impl LimitedEpisode {
    async fn resume(&mut self) {
        if self.permit.is_none() {
            self.permit = acquire(&self.permits).await;
        }
    }
}

#[async_trait]
impl Episode for LimitedEpisode {
    async fn view(&mut self, agent: &str) -> Result<String, Fault> {
        self.resume().await;
        self.inner.view(agent).await
    }

    async fn apply(&mut self, actions: &[Action]) -> Result<Outcome, Fault> {
        self.resume().await;
        self.inner.apply(actions).await
    }

    async fn snapshot(&mut self) -> Result<Snapshot, Fault> {
        self.inner.snapshot().await
    }

    async fn suspend(&mut self) -> Result<(), Fault> {
        self.suspensions.fetch_add(1, Ordering::Relaxed);
        self.permit = None;
        Ok(())
    }
}

/// Plays a batch with limited capacity. Returns its transitions and the number of suspensions.
fn play_limited(mode: Rollout, capacity: usize, in_flight: usize) -> (Vec<Transition>, usize) {
    let world = World::with_jitter(Script::default(), 3);
    let setup = world.setup(2, line(3, &[&[0], &[1]], Target::Node(0)));
    let suspensions = Arc::new(AtomicUsize::new(0));
    let environment = Arc::new(LimitedEnvironment {
        inner: Arc::clone(&setup.environment),
        capacity,
        permits: Arc::new(Semaphore::new(capacity)),
        suspensions: Arc::clone(&suspensions),
    });
    let setup = Arc::new(EpisodeSetup { environment, ..(*setup).clone() });
    let batch = play_on_two(&setup, &RolloutPlan { in_flight, ..plan(mode, 6, 4) }).unwrap();
    assert_eq!(batch.lost, 0);
    (batch.transitions, suspensions.load(Ordering::Relaxed))
}

#[test]
fn a_batch_is_the_same_with_capacity_for_all_and_for_two() {
    for mode in [Rollout::Flat, Rollout::Tree] {
        let (ample, _) = play_limited(mode, 64, 24);
        let (scarce, _) = play_limited(mode, 2, 24);
        assert_eq!(ample, scarce, "{mode:?}");
    }
}

#[test]
fn episodes_are_suspended_exactly_if_they_exceed_the_capacity() {
    let node_visits = 6;
    assert_eq!(play_limited(Rollout::Flat, 24, 24).1, 0);
    assert_eq!(play_limited(Rollout::Flat, 8, 8).1, 0);
    assert_eq!(play_limited(Rollout::Flat, 23, 24).1, 24 * node_visits);
    // The plan has no more episodes than the capacity.
    assert_eq!(play_limited(Rollout::Flat, 24, 1000).1, 0);
    // The states of a tree are snapshots between its calls.
    assert_eq!(play_limited(Rollout::Tree, 2, 24).1, 0);
}
