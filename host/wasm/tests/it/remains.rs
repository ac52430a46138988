//! Remains of an earlier guest in memory that was swapped out meanwhile.

use pl_testing::{Requirement, skip_or_fail};
use pl_wasm::{Engine, EngineConfig, Limits, call};

const REMAINS: &str = include_str!("../guests/remains.wat");

/// Moves the private memory of this process to the swap space. Returns false if nothing of it got there.
fn swap_out() -> bool {
    for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
        let Some((range, _)) = line.split_once(" rw-p ") else { continue };
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| usize::from_str_radix(text, 16).unwrap());
        // SAFETY: pages keep their content, wherever the system keeps them.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_PAGEOUT) };
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let swapped = status.lines().find_map(|line| line.strip_prefix("VmSwap:"));
    swapped.is_some_and(|text| text.trim() != "0 kB")
}

#[tokio::test]
async fn memory_of_an_earlier_guest_is_never_seen() {
    let engine = Engine::new(EngineConfig { instances: 1, ..EngineConfig::workers() }).unwrap();
    let component = engine.load("guest", &wat::parse_str(REMAINS).unwrap()).unwrap();
    let ready = engine.linker::<()>().unwrap().instantiate_pre(component.inner()).unwrap();
    for round in 0..3 {
        let mut store = engine.store((), &Limits::default());
        let instance = call(&mut store, async |store| ready.instantiate_async(store).await).await.unwrap();
        let look = instance.get_typed_func::<(), (u32,)>(&mut store, "look").unwrap();
        let found = call(&mut store, async |store| Ok(look.call_async(store, ()).await?.0)).await.unwrap();
        assert_eq!(found, 0, "marks of an earlier guest in round {round}");
        let leave = instance.get_typed_func::<(), ()>(&mut store, "leave").unwrap();
        call(&mut store, async |store| leave.call_async(store, ()).await).await.unwrap();
        if !swap_out() {
            return skip_or_fail(Requirement::Swap, "nothing is swapped out (no swap space: `swapon`)");
        }
    }
}
