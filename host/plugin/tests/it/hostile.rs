//! Guests that mean harm: each costs the call it does it in, within its limits, and is reported as what it was.

use pl_plugin::{Cause, Error, PluginSpec};
use pl_wasm::{Engine, Fault, Limits};

use crate::common;
use crate::common::hostile::{Deed, PLACES, Place, component_of, play};

/// Little enough that a loop of any kind ends in milliseconds.
const FUEL: u64 = 20_000_000;

/// Bytes; the sum of what the guest starts with and a few allocations fits.
const MEMORY: u64 = 4 << 20;

fn spec() -> PluginSpec {
    PluginSpec { memory: MEMORY, fuel: FUEL, ..PluginSpec::new("hostile") }
}

async fn ending(engine: &Engine, place: Place, deed: Deed, spec: PluginSpec) -> (&'static str, Cause) {
    match play(engine, &component_of(place, deed), spec).await {
        Err(Error::Call(call)) => (call.function, call.cause),
        Err(other) => panic!("{deed:?} in {place:?}: {other}"),
        Ok(_) => panic!("{deed:?} in {place:?} went unnoticed"),
    }
}

fn is_as_it_was(deed: Deed, place: Place, cause: &Cause) -> bool {
    let Cause::Fault(fault) = cause else { return false };
    let trap = |words: &str| matches!(fault, Fault::Trap(found) if found.contains(words));
    match deed {
        _ if place.is_shut() && deed.calls_out() => trap("cannot leave component instance"),
        Deed::Jobs if place.is_stateless() => {
            matches!(fault, Fault::Host(words) if words.contains("only an environment"))
        }
        Deed::Loop
        | Deed::GrowAgain
        | Deed::Random
        | Deed::Log
        | Deed::LongLog
        | Deed::Retrieve
        | Deed::Jobs
        | Deed::Fill => *fault == Fault::OutOfFuel { fuel: FUEL },
        Deed::Trap => trap("unreachable"),
        Deed::Grow => *fault == Fault::Memory { limit: MEMORY },
        Deed::Table => *fault == Fault::Table { limit: Limits::default().table },
        Deed::Nest => *fault == Fault::Stack,
        Deed::Divide => trap("divide by zero"),
        Deed::Outside => trap("out of bounds memory access"),
        Deed::Null => trap("uninitialized element"),
        Deed::Handles => matches!(fault, Fault::Rules(words) if words.contains("handle limit")),
        _ => false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_deed_in_every_export_is_reported_as_what_it_was() {
    let (engine, mut wrong) = (common::engine(), Vec::new());
    for place in PLACES {
        for deed in Deed::ON_ENTRY {
            if place == Place::Begin && deed.shows_memory() {
                continue;
            }
            let fuel = if deed == Deed::Handles { 1_000_000_000 } else { FUEL };
            let (function, cause) = ending(&engine, place, deed, PluginSpec { fuel, ..spec() }).await;
            let reproducible = matches!(&cause, Cause::Fault(fault) if fault.reproducible());
            if function != place.function() || !is_as_it_was(deed, place, &cause) || !reproducible {
                wrong.push(format!("{deed:?} in {place:?}: {function}: {cause:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn fuel_ends_every_loop_before_the_clock_does() {
    let engine = common::engine();
    // With the limits that a workflow gets unless it says otherwise.
    for deed in [
        Deed::Loop,
        Deed::GrowAgain,
        Deed::Random,
        Deed::Log,
        Deed::LongLog,
        Deed::Retrieve,
        Deed::Jobs,
        Deed::Fill,
    ] {
        let (_, cause) = ending(&engine, Place::Apply, deed, PluginSpec::new("hostile")).await;
        let fuel = Limits::default().fuel;
        assert_eq!(cause, Cause::Fault(Fault::OutOfFuel { fuel }), "{deed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_returned_is_read_with_care() {
    let (engine, mut wrong) = (common::engine(), Vec::new());
    for place in PLACES {
        for deed in Deed::ON_RETURN {
            let Some(expected) = place.spoilt(deed) else { continue };
            let (function, cause) = ending(&engine, place, deed, spec()).await;
            let words = cause.to_string();
            if function != place.function() || !words.contains(expected) {
                wrong.push(format!("{deed:?} in {place:?}: {function}: {words}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gigabyte_is_refused_before_it_is_copied() {
    let engine = common::engine();
    let before = common::resident();
    for place in [Place::Snapshot, Place::View, Place::Apply, Place::Prompt, Place::Parse, Place::Score] {
        let (function, cause) = ending(
            &engine,
            place,
            Deed::Gigabyte,
            PluginSpec { memory: 2 << 30, ..PluginSpec::new("hostile") },
        )
        .await;
        assert_eq!(function, place.function());
        let limit = Limits::default().returned;
        assert_eq!(cause, Cause::Fault(Fault::Returned { limit }), "{place:?}");
    }
    assert!(common::resident() < before + (256 << 20), "a part of it was copied");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_memory_returns_to_where_it_was() {
    let engine = common::engine();
    let round = async || {
        for place in [Place::Describe, Place::View, Place::Apply, Place::Parse, Place::Score] {
            for deed in Deed::ON_ENTRY {
                let _ = play(&engine, &component_of(place, deed), spec()).await;
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
