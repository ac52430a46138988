//! Hostile guests: each attack fails its own call within the limits and is reported correctly.

use std::sync::{Arc, Mutex};

use pl_plugin::{Cause, Error, PluginSpec};
use pl_wasm::{Engine, GuestFault, Limits};

use crate::common;
use crate::common::hostile::{Attack, ENTRY_POINTS, EntryPoint, component_of, play};

/// Small enough to end any loop in milliseconds.
const FUEL: u64 = 20_000_000;

/// Bytes; the guest's initial memory and a few allocations fit.
const MEMORY: u64 = 4 << 20;

fn spec() -> PluginSpec {
    PluginSpec { memory: MEMORY, fuel: FUEL, ..PluginSpec::new("hostile") }
}

async fn ending(
    engine: &Engine,
    entry: EntryPoint,
    attack: Attack,
    spec: PluginSpec,
) -> (&'static str, Cause) {
    match play(engine, &component_of(entry, attack), spec).await {
        Err(Error::Call(call)) => (call.function, call.cause),
        Err(other) => panic!("{attack:?} in {entry:?}: {other}"),
        Ok(_) => panic!("{attack:?} in {entry:?} was not noticed"),
    }
}

fn is_expected(attack: Attack, entry: EntryPoint, cause: &Cause) -> bool {
    let Cause::Fault(fault) = cause else { return false };
    let trap = |words: &str| matches!(fault, GuestFault::Trap(found) if found.contains(words));
    match attack {
        _ if entry.forbids_host_calls() && attack.calls_out() => trap("cannot leave component instance"),
        Attack::Jobs | Attack::Retrieve if !entry.has_services() => {
            matches!(fault, GuestFault::Host(words) if words.contains("only available to an environment"))
        }
        Attack::Loop
        | Attack::GrowAgain
        | Attack::Random
        | Attack::Log
        | Attack::LongLog
        | Attack::Retrieve
        | Attack::Jobs
        | Attack::Fill => *fault == GuestFault::OutOfFuel { fuel: FUEL },
        Attack::Trap => trap("unreachable"),
        Attack::Grow => *fault == GuestFault::Memory { limit: MEMORY },
        Attack::Table => *fault == GuestFault::Table { limit: Limits::default().table },
        Attack::Nest => *fault == GuestFault::Stack,
        Attack::Divide => trap("divide by zero"),
        Attack::Outside => trap("out of bounds memory access"),
        Attack::Null => trap("uninitialized element"),
        Attack::Handles => matches!(fault, GuestFault::Rules(words) if words.contains("handle limit")),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attack_in_every_export_is_reported_correctly() {
    let (engine, mut wrong) = (common::engine(), Vec::new());
    for entry in ENTRY_POINTS {
        for attack in Attack::ON_ENTRY {
            if entry == EntryPoint::Begin && attack.shows_memory() {
                continue;
            }
            let fuel = if attack == Attack::Handles { 1_000_000_000 } else { FUEL };
            let (function, cause) = ending(&engine, entry, attack, PluginSpec { fuel, ..spec() }).await;
            let reproducible = matches!(&cause, Cause::Fault(fault) if fault.reproducible());
            if function != entry.function() || !is_expected(attack, entry, &cause) || !reproducible {
                wrong.push(format!("{attack:?} in {entry:?}: {function}: {cause:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fuel_ends_every_loop_before_the_clock_does() {
    let engine = common::engine();
    // With a workflow's default limits.
    for attack in [
        Attack::Loop,
        Attack::GrowAgain,
        Attack::Random,
        Attack::Log,
        Attack::LongLog,
        Attack::Retrieve,
        Attack::Jobs,
        Attack::Fill,
    ] {
        let (_, cause) = ending(&engine, EntryPoint::Apply, attack, PluginSpec::new("hostile")).await;
        let fuel = Limits::default().fuel;
        assert_eq!(cause, Cause::Fault(GuestFault::OutOfFuel { fuel }), "{attack:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_return_values_are_reported() {
    let (engine, mut wrong) = (common::engine(), Vec::new());
    for entry in ENTRY_POINTS {
        for attack in Attack::ON_RETURN {
            let Some(expected) = entry.expected_error(attack) else { continue };
            let (function, cause) = ending(&engine, entry, attack, spec()).await;
            let words = cause.to_string();
            if function != entry.function() || !words.contains(expected) {
                wrong.push(format!("{attack:?} in {entry:?}: {function}: {words}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_is_refused_before_it_is_copied() {
    let engine = common::engine();
    let before = common::resident();
    for entry in [
        EntryPoint::Snapshot,
        EntryPoint::View,
        EntryPoint::Apply,
        EntryPoint::Prompt,
        EntryPoint::Parse,
        EntryPoint::Score,
        EntryPoint::Draw,
        EntryPoint::CallTools,
    ] {
        let (function, cause) = ending(
            &engine,
            entry,
            Attack::Gigabyte,
            PluginSpec { memory: 2 << 30, ..PluginSpec::new("hostile") },
        )
        .await;
        assert_eq!(function, entry.function());
        let limit = Limits::default().returned;
        assert_eq!(cause, Cause::Fault(GuestFault::Returned { limit }), "{entry:?}");
    }
    assert!(common::resident() < before + (256 << 20), "a part of it was copied");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_memory_returns_to_where_it_was() {
    let engine = common::engine();
    let round = async || {
        for entry in
            [EntryPoint::Describe, EntryPoint::View, EntryPoint::Apply, EntryPoint::Parse, EntryPoint::Score]
        {
            for attack in Attack::ON_ENTRY {
                let _ = play(&engine, &component_of(entry, attack), spec()).await;
            }
        }
    };
    round().await;
    let before = common::resident();
    for _ in 0..4 {
        round().await;
    }
    let after = common::resident();
    assert!(after < before + (24 << 20), "from {before} to {after} bytes");
}

/// Collects the messages of the log.
#[derive(Clone, Default)]
struct Messages(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Messages {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "plugin"
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                if field.name() == "message" {
                    self.0 = format!("{value:?}");
                }
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn a_flood_of_log_lines_is_cut() {
    let messages = Messages::default();
    let _default = tracing::subscriber::set_default(messages.clone());
    for attack in [Attack::Log, Attack::LongLog] {
        let engine = common::engine();
        // Enough for thousands of lines.
        let (_, cause) = ending(&engine, EntryPoint::Apply, attack, PluginSpec::new("hostile")).await;
        assert!(matches!(cause, Cause::Fault(GuestFault::OutOfFuel { .. })), "{cause:?}");
        let mut lines = std::mem::take(&mut *messages.0.lock().unwrap());
        let last = lines.pop().unwrap();
        assert!(last.starts_with("more log lines of this plugin are dropped"), "{attack:?}: {last}");
        let bytes: usize = lines.iter().map(String::len).sum();
        assert!(lines.len() <= 600 && bytes <= 256 << 10, "{attack:?}: {} lines, {bytes} bytes", lines.len());
        assert!(!lines.is_empty(), "{attack:?}");
    }
}
