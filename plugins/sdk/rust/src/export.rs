//! The contract's exports, implemented over a registry, and the macro that exports them from a component.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::panic;
use std::sync::Once;

use crate::agent::{Completion, Request, ToolCall, Turn};
use crate::bindings::exports::pl_host::plugin::{agents, catalog, environments, rewards};
use crate::bindings::pl_host::plugin::types::{AgentAction, Error, Outcome, Task};
use crate::environment::{DrawingForm, TaskRequest};
use crate::registry::{self, BoxedEpisode, Registry};
use crate::services;

/// The exports of a plugin.
pub struct Exports<R>(PhantomData<R>);

/// Sets a hook that writes a panic's message to the host's log before the panic traps. Every export that can
/// be an instance's first call calls it.
fn log_panics() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| panic::set_hook(Box::new(|info| services::log::warn(&info.to_string()))));
}

impl<R: Registry> catalog::Guest for Exports<R> {
    fn describe() -> Vec<catalog::Item> {
        log_panics();
        registry::items::<R>()
    }
}

impl<R: Registry> agents::Guest for Exports<R> {
    fn prompt(item: String, settings: String, view: String, turn: Turn) -> Result<Option<Request>, Error> {
        log_panics();
        registry::prompt::<R>(&item, &settings, &view, &turn)
    }

    fn call_tools(
        item: String,
        settings: String,
        view: String,
        calls: Vec<ToolCall>,
    ) -> Result<Option<Vec<String>>, Error> {
        log_panics();
        registry::call_tools::<R>(&item, &settings, &view, &calls)
    }

    fn parse(item: String, settings: String, view: String, completion: Completion) -> Result<String, Error> {
        log_panics();
        registry::parse::<R>(&item, &settings, &view, &completion)
    }
}

impl<R: Registry> rewards::Guest for Exports<R> {
    fn score(
        item: String,
        settings: String,
        transition: rewards::Transition,
    ) -> Result<rewards::Scores, Error> {
        log_panics();
        registry::score::<R>(&item, &settings, transition)
    }
}

impl<R: Registry> environments::Guest for Exports<R> {
    type Episode = ExportedEpisode<R>;

    fn tasks(
        item: String,
        settings: String,
        split: String,
        start: u64,
        count: u32,
        level: u32,
    ) -> Result<Vec<Task>, Error> {
        log_panics();
        registry::tasks::<R>(&item, &settings, &TaskRequest { split, start, count, level })
    }
}

/// The contract's `episode` resource.
pub struct ExportedEpisode<R> {
    /// The contract calls through a shared reference, never concurrently.
    episode: RefCell<BoxedEpisode>,
    registry: PhantomData<R>,
}

impl<R: Registry> ExportedEpisode<R> {
    fn exported(episode: BoxedEpisode) -> environments::Episode {
        environments::Episode::new(Self { episode: RefCell::new(episode), registry: PhantomData })
    }
}

impl<R: Registry> environments::GuestEpisode for ExportedEpisode<R> {
    fn start(item: String, settings: String, task: Task, seed: u64) -> Result<environments::Episode, Error> {
        log_panics();
        registry::start::<R>(&item, &settings, &task, seed).map(Self::exported)
    }

    fn restore(item: String, settings: String, snapshot: Vec<u8>) -> Result<environments::Episode, Error> {
        log_panics();
        registry::restore::<R>(&item, &settings, &snapshot).map(Self::exported)
    }

    fn snapshot(&self) -> Vec<u8> {
        self.episode.borrow().snapshot()
    }

    fn view(&self, agent: String) -> Result<String, Error> {
        self.episode.borrow().view(&agent)
    }

    fn apply(&self, actions: Vec<AgentAction>) -> Result<Outcome, Error> {
        self.episode.borrow_mut().apply(actions)
    }

    fn oracle(&self, agent: String) -> Result<Option<String>, Error> {
        self.episode.borrow().oracle(&agent)
    }

    fn draw(&self, form: DrawingForm) -> Result<Option<String>, Error> {
        self.episode.borrow().draw(form)
    }
}

/// Makes the crate a plugin with these items.
///
/// `pl_sdk::export! { environments: [Problems], agents: [Tool, Reasoner], rewards: [Score] }`
///
/// A plugin with only agents (or only environments, or only rewards) has one list and exports only that
/// interface; any other combination exports all three. The lists must be in this order, each at most once.
#[macro_export]
macro_rules! export {
    (environments: [$($environment:ty),* $(,)?] $(,)?) => {
        $crate::export!(@register [$($environment),*] [] []);
        $crate::export!(@component ENVIRONMENT "environment" environments);
    };
    (agents: [$($agent:ty),* $(,)?] $(,)?) => {
        $crate::export!(@register [] [$($agent),*] []);
        $crate::export!(@component AGENT "agent" agents);
    };
    (rewards: [$($reward:ty),* $(,)?] $(,)?) => {
        $crate::export!(@register [] [] [$($reward),*]);
        $crate::export!(@component REWARD "reward" rewards);
    };
    (
        $(environments: [$($environment:ty),* $(,)?],)?
        $(agents: [$($agent:ty),* $(,)?] $(,)?)?
        $(rewards: [$($reward:ty),* $(,)?] $(,)?)?
    ) => {
        $crate::export!(@register [$($($environment),*)?] [$($($agent),*)?] [$($($reward),*)?]);
        $crate::export!(@component DOMAIN "domain" environments agents rewards);
    };
    (@register [$($environment:ty),*] [$($agent:ty),*] [$($reward:ty),*]) => {
        /// The items of this plugin.
        pub struct Plugin;

        impl $crate::registry::Registry for Plugin {
            const ENVIRONMENTS: &'static [$crate::registry::EnvironmentEntry] =
                &[$($crate::registry::EnvironmentEntry::new::<$environment>()),*];
            const AGENTS: &'static [$crate::registry::AgentEntry] =
                &[$($crate::registry::AgentEntry::new::<$agent>()),*];
            const REWARDS: &'static [$crate::registry::RewardEntry] =
                &[$($crate::registry::RewardEntry::new::<$reward>()),*];
        }
    };
    (@component $world:ident $name:literal $($interface:ident)*) => {
        // The names of the exported symbols are valid only in a WebAssembly module.
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            type Exported = $crate::export::Exports<Plugin>;

            $crate::export!(@interface catalog Exported);
            $($crate::export!(@interface $interface Exported);)*

            #[used]
            #[unsafe(link_section = concat!("component-type:pl-sdk:", $name))]
            static WORLD: [u8; $crate::bindings::worlds::$world.len()] = *$crate::bindings::worlds::$world;
        };
    };
    (@interface catalog $exported:ident) => {
        $crate::bindings::exports::pl_host::plugin::catalog::__export_pl_host_plugin_catalog_0_1_0_cabi!(
            $exported with_types_in $crate::bindings::exports::pl_host::plugin::catalog
        );
    };
    (@interface environments $exported:ident) => {
        $crate::bindings::exports::pl_host::plugin::environments::__export_pl_host_plugin_environments_0_1_0_cabi!(
            $exported with_types_in $crate::bindings::exports::pl_host::plugin::environments
        );
    };
    (@interface agents $exported:ident) => {
        $crate::bindings::exports::pl_host::plugin::agents::__export_pl_host_plugin_agents_0_1_0_cabi!(
            $exported with_types_in $crate::bindings::exports::pl_host::plugin::agents
        );
    };
    (@interface rewards $exported:ident) => {
        $crate::bindings::exports::pl_host::plugin::rewards::__export_pl_host_plugin_rewards_0_1_0_cabi!(
            $exported with_types_in $crate::bindings::exports::pl_host::plugin::rewards
        );
    };
}
