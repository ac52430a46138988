//! Environments and their episodes.

use std::ops::DerefMut;
use std::sync::Arc;

use pl_types::erased::erased;
use pl_types::{Fact, ItemKind};
use pl_wasm::{Guest, InstancePermit, Lifetime, Store};
use serde_json::{Map, Value};
use wasmtime::component::ResourceAny;

use crate::bindings::environment::EnvironmentPre;
use crate::bindings::environment::exports::pl_host::plugin::environments::{
    DrawingForm as WireForm, GuestEpisode,
};
use crate::bindings::{environment, types};
use crate::call_log::CallLog;
use crate::check::{self, InvalidValue};
use crate::error::{CallFailure, Cause, Error};
use crate::item_handle::ItemHandle;
use crate::plugin::{Inner, Plugin, World, refused};
use crate::random::RandomStream;
use crate::services::{Context, Services, begin_call, end_call};
use crate::snapshot::Snapshot;
use crate::values::{DrawingForm, Outcome, Task};

type Bindings = environment::Environment;

/// An environment with its settings. Cheap to clone.
#[derive(Clone)]
pub struct Environment {
    item: ItemHandle,
    facts: Arc<[Fact]>,
    services: Services,
}

impl Environment {
    /// Creates a handle of the environment `item` of a plugin.
    ///
    /// # Errors
    /// [`Error::UnknownItem`]. Invalid settings are not an error here: the workflow checker validates them
    /// against the item's schema, and the item checks them itself when an episode starts.
    pub fn new(
        plugin: &Plugin,
        item: &str,
        settings: Map<String, Value>,
        services: Services,
    ) -> Result<Self, Error> {
        let (item, description) = ItemHandle::new(plugin, ItemKind::Environment, item, settings)?;
        Ok(Self { item, facts: description.facts.clone().into(), services })
    }

    /// Returns the same environment, whose calls (and those of its episodes) are recorded in `call_log`. A
    /// call log that [replays](CallLog::replaying) also answers the calls of the sandbox and of the corpus.
    #[must_use]
    pub fn with_call_log(&self, call_log: &CallLog) -> Self {
        Self { item: self.item.with_call_log(call_log), ..self.clone() }
    }

    /// Facts that every outcome has.
    pub fn facts(&self) -> &[Fact] {
        &self.facts
    }

    /// Services that its episodes may use.
    pub fn services(&self) -> &Services {
        &self.services
    }

    /// Number of episodes that may have an instance at a time. Others wait or are suspended.
    pub fn capacity(&self) -> usize {
        self.inner().stores.engine.capacity(Lifetime::Episode)
    }

    /// Generates `count` tasks from index `start` on. Equal arguments give equal tasks; splits share no task.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn tasks(&self, split: &str, start: u64, count: u32, level: u32) -> Result<Vec<Task>, Error> {
        let stream = RandomStream::from_parts(&[
            b"tasks",
            self.item.settings.as_bytes(),
            split.as_bytes(),
            &start.to_le_bytes(),
            &count.to_le_bytes(),
            &level.to_le_bytes(),
        ]);
        erased(self.try_tasks(stream, split, start, count, level))
            .await
            .map_err(|failure| self.item.error("tasks", failure))
    }

    async fn try_tasks(
        &self,
        stream: RandomStream,
        split: &str,
        start: u64,
        count: u32,
        level: u32,
    ) -> Result<Vec<Task>, CallFailure> {
        let world = self.world()?;
        let made = world
            .pool
            .call(
                &self.inner().stores,
                self.item.stateless_call("tasks", stream),
                async |store| world.ready.instantiate_async(&mut *store).await,
                async |bindings, store| {
                    let environments = bindings.pl_host_plugin_environments();
                    environments
                        .call_tasks(store, &self.item.name, &self.item.settings, split, start, count, level)
                        .await
                },
            )
            .await?;
        let tasks = made.map_err(refused)?;
        if tasks.len() != count as usize {
            return Err(CallFailure::invalid(InvalidValue::TaskCount {
                expected: count,
                found: tasks.len(),
            }));
        }
        tasks
            .into_iter()
            .map(|task| {
                check::json("a task", &task.data).map_err(CallFailure::invalid)?;
                Ok(Task { id: task.id, data: task.data })
            })
            .collect()
    }

    /// Starts an episode. Equal arguments give an equal episode.
    ///
    /// Waits while the engine's pool is full. A caller that holds more than [`Environment::capacity`]
    /// episodes must [suspend](Episode::suspend) those that don't step, or it waits forever.
    ///
    /// # Errors
    /// [`Error::Call`]; its cause is [`Cause::Refused`] with [`crate::RefusalKind::Task`] if the environment
    /// can't read the task.
    pub async fn start(&self, task: &Task, seed: u64, stream: RandomStream) -> Result<Episode, Error> {
        let task = types::Task { id: task.id.clone(), data: task.data.clone() };
        erased(self.open("start", stream, 0, async |bindings, store| {
            let environments = bindings.pl_host_plugin_environments();
            let episode = environments.episode();
            episode.call_start(&mut *store, &self.item.name, &self.item.settings, &task, seed).await
        }))
        .await
    }

    /// Restores an episode from a snapshot. It continues exactly like the episode of the snapshot.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<Episode, Error> {
        let stream = RandomStream::from_position(&snapshot.stream);
        erased(self.open("restore", stream, snapshot.turns, async |bindings, store| {
            let environments = bindings.pl_host_plugin_environments();
            let episode = environments.episode();
            episode.call_restore(&mut *store, &self.item.name, &self.item.settings, &snapshot.bytes).await
        }))
        .await
    }

    async fn open(
        &self,
        function: &'static str,
        stream: RandomStream,
        turns: u32,
        make: impl AsyncFnOnce(
            &Bindings,
            &mut Store<Context>,
        ) -> wasmtime::Result<Result<ResourceAny, types::Error>>,
    ) -> Result<Episode, Error> {
        let opened = async {
            let world = self.world()?;
            let permit = self.inner().stores.engine.permit(Lifetime::Episode).await;
            let (services, call_log) = (self.services.clone(), self.item.call_log.clone());
            let mut store = self.inner().stores.granted(&self.item.name, stream, services, call_log);
            let created = pl_wasm::call(&mut store, async |store| {
                let bindings = world.ready.instantiate_async(&mut *store).await?;
                store.data_mut().data.turns = turns;
                begin_call(store, function);
                let handle = make(&bindings, store).await?;
                Ok((bindings, handle))
            })
            .await;
            let (bindings, handle) = created.map_err(|fault| CallFailure::fault(fault, &mut store))?;
            end_call(&mut store);
            let handle = handle.map_err(refused)?;
            Ok::<_, CallFailure>(LiveEpisode { bindings, handle, store, _permit: permit })
        };
        match opened.await {
            Ok(live) => Ok(Episode {
                environment: self.clone(),
                live: Some(Box::new(Box::new(live))),
                suspended: None,
                reproducible: true,
            }),
            Err(failure) => Err(self.item.error(function, failure)),
        }
    }

    fn world(&self) -> Result<&World<EnvironmentPre<Guest<Context>>, Bindings>, Cause> {
        require_world(&self.inner().environments)
    }

    fn inner(&self) -> &Inner {
        self.item.plugin()
    }
}

/// Returns an item's world. Loading has checked that each described item has one; only the type allows
/// `None`.
pub(crate) fn require_world<T>(world: &Option<T>) -> Result<&T, Cause> {
    world.as_ref().ok_or_else(|| Cause::Invalid("the plugin does not export the item's interface".to_owned()))
}

/// One running copy of an environment, with its own instance and random stream.
///
/// A call that faults destroys the episode, and later calls fail with [`Cause::Lost`]. A call that the
/// environment refuses leaves it intact.
pub struct Episode {
    environment: Environment,
    /// Hides the parts of a store, as [`pl_types::erased`] does for what is shared.
    live: Option<Box<dyn DerefMut<Target = LiveEpisode> + Send>>,
    /// Replaces the instance between [`Episode::suspend`] and the next call.
    suspended: Option<Snapshot>,
    reproducible: bool,
}

/// An instance with its episode. Fields are dropped in this order: the permit last.
struct LiveEpisode {
    bindings: Bindings,
    handle: ResourceAny,
    store: Store<Context>,
    _permit: InstancePermit,
}

impl Episode {
    /// Returns the view of `agent`, a JSON document.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn view(&mut self, agent: &str) -> Result<String, Error> {
        self.resume().await?;
        let view = erased(
            self.call("view", async |episode, handle, store| episode.call_view(store, handle, agent).await),
        )
        .await
        .and_then(|view| view.map_err(refused))
        .and_then(|view| checked_json("the view", view));
        self.with_context("view", view)
    }

    /// Applies the actions of one turn together, as pairs of an agent's name and its action (JSON).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn apply(&mut self, actions: Vec<(String, String)>) -> Result<Outcome, Error> {
        self.resume().await?;
        let actions: Vec<types::AgentAction> =
            actions.into_iter().map(|(agent, action)| types::AgentAction { agent, action }).collect();
        let outcome =
            erased(self.call("apply", async |episode, handle, store| {
                episode.call_apply(store, handle, &actions).await
            }))
            .await
            .and_then(|outcome| outcome.map_err(refused))
            .inspect(|_| self.finish_turn())
            .and_then(|outcome| self.checked_outcome(outcome).map_err(CallFailure::invalid));
        self.with_context("apply", outcome)
    }

    /// Returns an action (JSON) of `agent` that leads to success. Returns `None` if the environment knows none.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn oracle(&mut self, agent: &str) -> Result<Option<String>, Error> {
        self.resume().await?;
        let action =
            erased(self.look("oracle", async |episode, handle, store| {
                episode.call_oracle(store, handle, agent).await
            }))
            .await
            .and_then(|action| action.map_err(refused))
            .and_then(|action| action.map(|action| checked_json("the oracle's action", action)).transpose());
        self.with_context("oracle", action)
    }

    /// Returns a drawing of the state. Returns `None` if the environment has none in this form.
    ///
    /// # Errors
    /// [`Error::Call`]; also if the drawing has more than [`crate::MAX_DRAWING`] bytes.
    pub async fn draw(&mut self, form: DrawingForm) -> Result<Option<String>, Error> {
        self.resume().await?;
        let form = match form {
            DrawingForm::Svg => WireForm::Svg,
            DrawingForm::Text => WireForm::Text,
        };
        let drawing = erased(
            self.look("draw", async |episode, handle, store| episode.call_draw(store, handle, form).await),
        )
        .await
        .and_then(|drawing| drawing.map_err(refused))
        .and_then(|drawing| drawing.map(check::drawing).transpose().map_err(CallFailure::invalid));
        self.with_context("draw", drawing)
    }

    /// Returns the episode's current state, from which [`Environment::restore`] makes copies.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub async fn snapshot(&mut self) -> Result<Snapshot, Error> {
        if let Some(snapshot) = &self.suspended {
            return Ok(snapshot.clone());
        }
        let taken = erased(
            self.call("snapshot", async |episode, handle, store| episode.call_snapshot(store, handle).await),
        )
        .await
        .and_then(|bytes| {
            let live = self.live.as_ref().ok_or(Cause::Lost)?;
            let Context { stream, turns, .. } = &live.store.data().data;
            Ok(Snapshot { bytes: bytes.into(), stream: stream.position(), turns: *turns })
        });
        self.with_context("snapshot", taken)
    }

    /// Replaces the episode's instance by a snapshot and releases its permit for other episodes, for example
    /// while this one waits for a model. The next call restores it, and waits while the pool is full.
    ///
    /// # Errors
    /// [`Error::Call`] if no snapshot can be taken.
    pub async fn suspend(&mut self) -> Result<(), Error> {
        if self.live.is_some() {
            self.suspended = Some(self.snapshot().await?);
            self.live = None;
        }
        Ok(())
    }

    /// Restores a suspended episode.
    async fn resume(&mut self) -> Result<(), Error> {
        if let Some(snapshot) = self.suspended.take() {
            self.live = self.environment.restore(&snapshot).await?.live;
        }
        Ok(())
    }

    /// Returns `false` once the environment has seen a result that depends on a wall clock or on the network.
    pub fn reproducible(&self) -> bool {
        self.reproducible
    }

    /// Makes one call. A fault drops the instance.
    async fn call<R>(
        &mut self,
        function: &'static str,
        work: impl AsyncFnOnce(&GuestEpisode<'_>, ResourceAny, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let live: &mut LiveEpisode = self.live.as_mut().ok_or(Cause::Lost)?;
        let (bindings, handle) = (&live.bindings, live.handle);
        begin_call(&mut live.store, function);
        let returned = pl_wasm::call(&mut live.store, async |store| {
            work(&bindings.pl_host_plugin_environments().episode(), handle, store).await
        })
        .await;
        let ended = match returned {
            Ok(answer) => {
                end_call(&mut live.store);
                Ok(answer)
            }
            Err(fault) => {
                self.reproducible &= fault.reproducible();
                Err(CallFailure::fault(fault, &mut live.store))
            }
        };
        self.reproducible &= !live.store.data().data.irreproducible;
        if ended.is_err() {
            self.live = None;
        }
        ended
    }

    /// Makes a call that leaves the episode as it is: it gets no services, and whatever it draws from the random stream
    /// is drawn again.
    async fn look<R>(
        &mut self,
        function: &'static str,
        work: impl AsyncFnOnce(&GuestEpisode<'_>, ResourceAny, &mut Store<Context>) -> wasmtime::Result<R>,
    ) -> Result<R, CallFailure> {
        let saved = self.live.as_mut().map(|live| {
            let context = &mut live.store.data_mut().data;
            (context.stream.clone(), context.services.take())
        });
        let returned = self.call(function, work).await;
        if let (Some(live), Some((stream, services))) = (&mut self.live, saved) {
            let context = &mut live.store.data_mut().data;
            (context.stream, context.services) = (stream, services);
        }
        returned
    }

    fn finish_turn(&mut self) {
        if let Some(live) = &mut self.live {
            live.store.data_mut().data.turns += 1;
        }
    }

    fn checked_outcome(&self, outcome: types::Outcome) -> Result<Outcome, InvalidValue> {
        check::json("the evidence", &outcome.evidence)?;
        Ok(Outcome {
            done: outcome.done,
            truncated: outcome.truncated,
            facts: check::facts(&self.environment.facts, &outcome.facts)?,
            evidence: outcome.evidence,
        })
    }

    fn with_context<R>(&self, function: &'static str, result: Result<R, CallFailure>) -> Result<R, Error> {
        result.map_err(|failure| self.environment.item.error(function, failure))
    }
}

fn checked_json(name: &str, text: String) -> Result<String, CallFailure> {
    check::json(name, &text).map_err(CallFailure::invalid)?;
    Ok(text)
}
