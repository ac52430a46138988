//! Environments and their episodes.

use std::sync::Arc;

use pl_types::{Fact, ItemKind};
use pl_wasm::{Guest, InstancePermit, Lifetime, Store};
use serde_json::{Map, Value};
use wasmtime::component::ResourceAny;

use crate::bindings::environment::EnvironmentPre;
use crate::bindings::environment::exports::pl_host::plugin::environments::GuestEpisode;
use crate::bindings::{environment, types};
use crate::error::Failed;
use crate::journal::Journal;
use crate::plugin::{Inner, World, refused};
use crate::pool::Call;
use crate::services::{Context, begin, settle};
use crate::{Cause, Error, Outcome, Plugin, Services, Snapshot, Stream, Task, check};

type Bindings = environment::Environment;

/// An environment with its settings. Cheap to clone.
#[derive(Clone)]
pub struct Environment {
    plugin: Plugin,
    item: Arc<str>,
    settings: Arc<String>,
    facts: Arc<[Fact]>,
    services: Services,
    journal: Option<Journal>,
}

impl Environment {
    /// The environment `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`]. Settings are checked against the item's schema by whoever reads the workflow, and
    /// by the item itself when an episode starts.
    pub fn new(
        plugin: &Plugin,
        item: &str,
        settings: Map<String, Value>,
        services: Services,
    ) -> Result<Self, Error> {
        let described = plugin.item(ItemKind::Environment, item)?;
        Ok(Self {
            plugin: plugin.clone(),
            item: item.into(),
            settings: Arc::new(Value::Object(settings).to_string()),
            facts: described.facts.clone().into(),
            services,
            journal: None,
        })
    }

    /// The same, with what its calls and those of its episodes do noted in a journal, which may also answer the
    /// sandbox's calls with what was recorded.
    #[must_use]
    pub fn with_journal(&self, journal: &Journal) -> Self {
        Self { journal: Some(journal.clone()), ..self.clone() }
    }

    /// The facts that every outcome has.
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Episodes that may have an instance at a time. Others wait, or rest.
    pub fn seats(&self) -> usize {
        self.inner().engine.capacity(Lifetime::Episode)
    }

    /// Makes `count` tasks from index `start` on. Equal arguments give equal tasks; splits share none.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn tasks(&self, split: &str, start: u64, count: u32, level: u32) -> Result<Vec<Task>, Error> {
        let stream = Stream::of(&[
            b"tasks",
            self.settings.as_bytes(),
            split.as_bytes(),
            &start.to_le_bytes(),
            &count.to_le_bytes(),
            &level.to_le_bytes(),
        ]);
        self.try_tasks(stream, split, start, count, level)
            .await
            .map_err(|failed| self.inner().error(&self.item, "tasks", failed))
    }

    async fn try_tasks(
        &self,
        stream: Stream,
        split: &str,
        start: u64,
        count: u32,
        level: u32,
    ) -> Result<Vec<Task>, Failed> {
        let world = self.world()?;
        let made = world
            .pool
            .call(
                self.inner(),
                Call { item: &self.item, function: "tasks", stream, journal: self.journal.as_ref() },
                async |store| world.ready.instantiate_async(&mut *store).await,
                async |bindings, store| {
                    let environments = bindings.pl_host_plugin_environments();
                    environments
                        .call_tasks(store, &self.item, &self.settings, split, start, count, level)
                        .await
                },
            )
            .await?;
        let tasks = made.map_err(refused)?;
        if tasks.len() != count as usize {
            return Err(Failed::invalid(format!("{count} tasks were asked for and {} came", tasks.len())));
        }
        tasks
            .into_iter()
            .map(|task| {
                check::json("a task", &task.data).map_err(Failed::invalid)?;
                Ok(Task { id: task.id, data: task.data })
            })
            .collect()
    }

    /// Starts an episode. Equal arguments give an equal episode.
    ///
    /// Waits where the engine's pool is full: hold no more episodes than [`Environment::seats`] that neither step nor
    /// [rest](Episode::rest).
    ///
    /// # Errors
    /// [`Error::Call`]; a task that the environment can't read is a [`Cause::Refused`] about the task.
    pub async fn start(&self, task: &Task, seed: u64, stream: Stream) -> Result<Episode, Error> {
        let task = types::Task { id: task.id.clone(), data: task.data.clone() };
        self.open("start", stream, 0, async |bindings, store| {
            let environments = bindings.pl_host_plugin_environments();
            let episode = environments.episode();
            episode.call_start(&mut *store, &self.item, &self.settings, &task, seed).await
        })
        .await
    }

    /// An episode that goes on exactly as the one that the snapshot was taken of.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<Episode, Error> {
        let stream = Stream::at(&snapshot.stream);
        self.open("restore", stream, snapshot.turns, async |bindings, store| {
            let environments = bindings.pl_host_plugin_environments();
            let episode = environments.episode();
            episode.call_restore(&mut *store, &self.item, &self.settings, &snapshot.bytes).await
        })
        .await
    }

    async fn open(
        &self,
        function: &'static str,
        stream: Stream,
        turns: u32,
        make: impl AsyncFnOnce(
            &Bindings,
            &mut Store<Context>,
        ) -> wasmtime::Result<Result<ResourceAny, types::Error>>,
    ) -> Result<Episode, Error> {
        let opened = async {
            let world = self.world()?;
            let seat = self.inner().engine.permit(Lifetime::Episode).await;
            let sandbox = Some(Arc::clone(&self.services.sandbox));
            let mut store = self.inner().store(&self.item, sandbox, stream, self.journal.clone());
            let made = pl_wasm::call(&mut store, async |store| {
                let bindings = world.ready.instantiate_async(&mut *store).await?;
                store.data_mut().data.turns = turns;
                begin(store, function);
                let handle = make(&bindings, store).await?;
                Ok((bindings, handle))
            })
            .await;
            let (bindings, handle) = made.map_err(|fault| Failed::fault(fault, &mut store))?;
            settle(&mut store);
            let handle = handle.map_err(refused)?;
            Ok::<_, Failed>(Live { bindings, handle, store, _permit: seat })
        };
        match opened.await {
            Ok(live) => {
                Ok(Episode { environment: self.clone(), live: Some(live), resting: None, reproducible: true })
            }
            Err(failed) => Err(self.inner().error(&self.item, function, failed)),
        }
    }

    fn world(&self) -> Result<&World<EnvironmentPre<Guest<Context>>, Bindings>, Cause> {
        world_of(&self.inner().environments)
    }

    fn inner(&self) -> &Inner {
        &self.plugin.inner
    }
}

/// Loading has checked that a described item has its world; this only says it again in the type's terms.
pub(crate) fn world_of<T>(world: &Option<T>) -> Result<&T, Cause> {
    world.as_ref().ok_or_else(|| Cause::Invalid("it does not export the item's interface".to_owned()))
}

/// One running copy of an environment, with an instance and a random stream of its own.
///
/// A call that faults loses the copy; later calls say so. A refusal of the environment does not.
pub struct Episode {
    environment: Environment,
    live: Option<Live>,
    /// In place of the instance, between [`Episode::rest`] and the next call.
    resting: Option<Snapshot>,
    reproducible: bool,
}

/// Fields are dropped in this order: the seat last.
struct Live {
    bindings: Bindings,
    handle: ResourceAny,
    store: Store<Context>,
    _permit: InstancePermit,
}

impl Episode {
    /// What `agent` sees: a JSON document.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn view(&mut self, agent: &str) -> Result<String, Error> {
        self.wake().await?;
        let view = self
            .call("view", async |episode, handle, store| episode.call_view(store, handle, agent).await)
            .await
            .and_then(|view| view.map_err(refused))
            .and_then(|view| checked_json("the view", view));
        self.named("view", view)
    }

    /// Applies the actions of one turn together, each an agent's name and its action (JSON).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn apply(&mut self, actions: Vec<(String, String)>) -> Result<Outcome, Error> {
        self.wake().await?;
        let actions: Vec<types::AgentAction> =
            actions.into_iter().map(|(agent, action)| types::AgentAction { agent, action }).collect();
        let outcome = self
            .call("apply", async |episode, handle, store| episode.call_apply(store, handle, &actions).await)
            .await
            .and_then(|outcome| outcome.map_err(refused))
            .inspect(|_| self.turn_over())
            .and_then(|outcome| self.checked_outcome(outcome).map_err(Failed::invalid));
        self.named("apply", outcome)
    }

    /// The episode as it stands; [`Environment::restore`] makes copies of it.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn snapshot(&mut self) -> Result<Snapshot, Error> {
        if let Some(snapshot) = &self.resting {
            return Ok(snapshot.clone());
        }
        let taken = self
            .call("snapshot", async |episode, handle, store| episode.call_snapshot(store, handle).await)
            .await
            .and_then(|bytes| {
                let live = self.live.as_ref().ok_or(Cause::Lost)?;
                let Context { stream, turns, .. } = &live.store.data().data;
                Ok(Snapshot { bytes: bytes.into(), stream: stream.mark(), turns: *turns })
            });
        self.named("snapshot", taken)
    }

    /// Puts the episode aside as its snapshot and gives up its instance and its seat, so that others may have them
    /// while this one waits, for a model say. The next call restores it, and waits where the pool is full.
    ///
    /// # Errors
    /// [`Error::Call`], where no snapshot can be taken.
    pub async fn rest(&mut self) -> Result<(), Error> {
        if self.live.is_some() {
            self.resting = Some(self.snapshot().await?);
            self.live = None;
        }
        Ok(())
    }

    /// Restores an episode that rests.
    async fn wake(&mut self) -> Result<(), Error> {
        if let Some(snapshot) = self.resting.take() {
            self.live = self.environment.restore(&snapshot).await?.live;
        }
        Ok(())
    }

    /// False once a wall clock, not the code, decided something that the environment has seen.
    pub fn reproducible(&self) -> bool {
        self.reproducible
    }

    /// Makes one call; a fault loses the instance.
    async fn call<R>(
        &mut self,
        function: &'static str,
        work: impl AsyncFnOnce(&GuestEpisode<'_>, ResourceAny, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, Failed> {
        let live = self.live.as_mut().ok_or(Cause::Lost)?;
        let (bindings, handle) = (&live.bindings, live.handle);
        begin(&mut live.store, function);
        let returned = pl_wasm::call(&mut live.store, async |store| {
            work(&bindings.pl_host_plugin_environments().episode(), handle, store).await
        })
        .await;
        let ended = match returned {
            Ok(answer) => {
                settle(&mut live.store);
                Ok(answer)
            }
            Err(fault) => {
                self.reproducible &= fault.reproducible();
                Err(Failed::fault(fault, &mut live.store))
            }
        };
        self.reproducible &= !live.store.data().data.irreproducible;
        if ended.is_err() {
            self.live = None;
        }
        ended
    }

    fn turn_over(&mut self) {
        if let Some(live) = &mut self.live {
            live.store.data_mut().data.turns += 1;
        }
    }

    fn checked_outcome(&self, outcome: types::Outcome) -> Result<Outcome, String> {
        check::json("the evidence", &outcome.evidence)?;
        Ok(Outcome {
            done: outcome.done,
            truncated: outcome.truncated,
            facts: check::facts(&self.environment.facts, &outcome.facts)?,
            evidence: outcome.evidence,
        })
    }

    fn named<R>(&self, function: &'static str, result: Result<R, Failed>) -> Result<R, Error> {
        result.map_err(|failed| self.environment.inner().error(&self.environment.item, function, failed))
    }
}

fn checked_json(what: &str, text: String) -> Result<String, Failed> {
    check::json(what, &text).map_err(Failed::invalid)?;
    Ok(text)
}
