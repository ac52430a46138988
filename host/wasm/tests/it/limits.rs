//! Limits, faults and determinism, on small guests in text form.

use std::time::{Duration, Instant};

use pl_wasm::{Clock, Engine, EngineConfig, GuestFault, Limits, Seed, Store, call, link_http};
use wasmtime::component::{ComponentNamedList, Instance, Lift, Lower};

const TEMPER: &str = include_str!("../guests/temper.wat");
const WORLD: &str = include_str!("../guests/world.wat");
const POLL: &str = include_str!("../guests/poll.wat");
const BYTES: &str = include_str!("../guests/bytes.wat");

struct Running {
    store: Store<()>,
    instance: Instance,
}

async fn start(text: &str, limits: &Limits) -> Running {
    let engine = Engine::new(EngineConfig { instances: 4, calls: 0, ..EngineConfig::plugins() }).unwrap();
    let component = engine.load("guest", &wat::parse_str(text).unwrap()).unwrap();
    let mut linker = engine.linker::<()>().unwrap();
    link_http(&mut linker).unwrap();
    let ready = linker.instantiate_pre(component.inner()).unwrap();
    let mut store = engine.store((), limits);
    let instance = call(&mut store, async |store| ready.instantiate_async(store).await).await.unwrap();
    Running { store, instance }
}

impl Running {
    async fn call<P, R>(&mut self, name: &str, arguments: P) -> Result<R, GuestFault>
    where
        P: ComponentNamedList + Lower + Send + Sync + 'static,
        R: Send + Sync + 'static,
        (R,): ComponentNamedList + Lift,
    {
        let function = self.instance.get_typed_func::<P, (R,)>(&mut self.store, name).unwrap();
        call(&mut self.store, async |store| Ok(function.call_async(store, arguments).await?.0)).await
    }

    async fn fault(&mut self, name: &str) -> GuestFault {
        let function = self.instance.get_typed_func::<(), ()>(&mut self.store, name).unwrap();
        call(&mut self.store, async |store| function.call_async(store, ()).await).await.unwrap_err()
    }
}

async fn temper(limits: Limits) -> Running {
    start(TEMPER, &limits).await
}

#[tokio::test]
async fn a_call_returns() {
    let mut guest = temper(Limits::default()).await;
    assert_eq!(guest.call::<_, u32>("add", (2_u32, 3_u32)).await, Ok(5));
}

#[tokio::test]
async fn a_loop_ends_when_its_fuel_does_and_every_call_has_its_own() {
    let limits = Limits { fuel: 100_000, ..Limits::default() };
    let mut guest = temper(limits).await;
    for _ in 0..1000 {
        // More in all than one call may use.
        assert_eq!(guest.call::<_, u32>("add", (1_u32, 1_u32)).await, Ok(2));
    }
    let fault = guest.fault("loop").await;
    assert_eq!(fault, GuestFault::OutOfFuel { fuel: 100_000 });
    assert!(fault.reproducible());
}

#[tokio::test]
async fn the_wall_clock_is_the_backstop_and_says_so() {
    let timeout = Duration::from_millis(50);
    let mut guest = temper(Limits { fuel: u64::MAX / 4, timeout, ..Limits::default() }).await;
    let started = Instant::now();
    let fault = guest.fault("loop").await;
    assert_eq!(fault, GuestFault::Timeout { after: timeout });
    assert!(!fault.reproducible());
    assert!(started.elapsed() >= timeout);
}

#[tokio::test]
async fn a_busy_guest_gives_way_to_others_on_its_thread() {
    // One thread: the timer can only fire in between if the guest yields.
    let mut guest =
        temper(Limits { fuel: u64::MAX / 4, timeout: Duration::from_secs(2), ..Limits::default() }).await;
    let cut = tokio::time::timeout(Duration::from_millis(100), guest.fault("loop")).await;
    assert!(cut.is_err(), "the guest ran to its end: {cut:?}");
}

#[tokio::test]
async fn memory_that_is_refused_is_named_as_the_cause() {
    let memory = 2 << 20;
    let mut guest = temper(Limits { memory, ..Limits::default() }).await;
    assert_eq!(guest.call::<_, i32>("ask", ()).await, Ok(-1));
    assert!(guest.store.data().memory_refused());
    // A trap for another reason in a later call is not blamed on memory.
    assert!(matches!(guest.fault("trap").await, GuestFault::Trap(_)));
    let mut guest = temper(Limits { memory, ..Limits::default() }).await;
    assert_eq!(guest.fault("grow").await, GuestFault::Memory { limit: memory });
}

#[tokio::test]
async fn tables_have_a_limit() {
    let mut guest = temper(Limits { table: 1000, ..Limits::default() }).await;
    assert_eq!(guest.call::<_, i32>("widen", ()).await, Ok(-1));
    assert!(!guest.store.data().memory_refused());
}

#[tokio::test]
async fn what_a_memorys_own_type_forbids_is_no_fault() {
    let mut guest = temper(Limits::default()).await;
    // Beyond all addresses, and beyond a maximum of its own that the limit would allow.
    assert_eq!(guest.call::<_, i32>("overreach", ()).await, Ok(-1));
    assert_eq!(guest.call::<_, i32>("outgrow", ()).await, Ok(-1));
    assert!(!guest.store.data().memory_refused());
}

#[tokio::test]
async fn asking_for_memory_costs_fuel_whether_it_is_given_or_not() {
    let mut guest = temper(Limits { fuel: 10_000, ..Limits::default() }).await;
    let fault = guest.fault("beg").await;
    assert_eq!(fault, GuestFault::OutOfFuel { fuel: 10_000 });
}

#[tokio::test]
async fn calls_of_the_host_cost_fuel() {
    // Without their price, a hundred calls would cost no fuel. The clock measures the price.
    let mut guest = start(WORLD, &Limits::default()).await;
    let one = guest.call::<_, u64>("apart", (1_u32,)).await.unwrap();
    let hundred = guest.call::<_, u64>("apart", (101_u32,)).await.unwrap();
    assert!((hundred - one) / 100 >= 100, "a call takes {} ns of a guest's time", (hundred - one) / 100);
    // Without it, a loop of calls would last as long as the clock lets it.
    let mut guest = start(WORLD, &Limits { fuel: 1_000_000, ..Limits::default() }).await;
    assert_eq!(
        guest.call::<_, u64>("apart", (10_000_u32,)).await,
        Err(GuestFault::OutOfFuel { fuel: 1_000_000 })
    );
}

/// The control of the prices: another hook takes the place of the one that deducts them.
#[tokio::test]
async fn calls_without_a_price_go_on_beyond_the_fuel() {
    // Many times more than the fuel pays for.
    const CALLS: u32 = 500_000;
    let limits = Limits { fuel: 10_000_000, ..Limits::default() };
    let mut guest = start(WORLD, &limits).await;
    assert_eq!(
        guest.call::<_, u64>("apart", (CALLS,)).await,
        Err(GuestFault::OutOfFuel { fuel: limits.fuel })
    );
    let mut guest = start(WORLD, &limits).await;
    guest.store.call_hook(|_, _| Ok(()));
    assert!(guest.call::<_, u64>("apart", (CALLS,)).await.is_ok());
}

/// Bytes of this process that are in memory. Under nextest, each test has its process for itself.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[tokio::test]
async fn without_their_limits_handles_fill_the_host() {
    const HANDLES: u32 = 1_000_000;
    let limits = Limits { fuel: u64::MAX / 4, timeout: Duration::from_secs(60), ..Limits::default() };
    let mut guest = start(POLL, &limits).await;
    let before = resident();
    let fault = guest.call::<_, u32>("hoard", (HANDLES,)).await.unwrap_err();
    assert!(!matches!(fault, GuestFault::OutOfFuel { .. } | GuestFault::Timeout { .. }), "{fault:?}");
    let grown = resident().saturating_sub(before);
    assert!(grown <= limits.memory, "{grown} bytes");
    drop(guest);
    // The control: the same guest without the limits on its resources and on its handles.
    let mut guest = start(POLL, &limits).await;
    guest.store.set_max_component_handles(usize::MAX);
    guest.store.data_mut().table().set_max_capacity(usize::MAX);
    let before = resident();
    assert_eq!(guest.call::<_, u32>("hoard", (HANDLES,)).await, Ok(HANDLES));
    let grown = resident().saturating_sub(before);
    assert!(grown > limits.memory, "{grown} bytes only");
}

#[tokio::test]
async fn every_handle_of_a_poll_costs_fuel() {
    let mut guest = start(POLL, &Limits::default()).await;
    let mut used = Vec::new();
    for handles in [1_u32, 1001] {
        assert_eq!(guest.call::<_, u32>("poll", (handles,)).await, Ok(handles));
        used.push(guest.store.data().fuel_used());
    }
    assert!(used[1] - used[0] >= 1000 * 2500, "{used:?}");
}

#[tokio::test]
async fn bytes_that_pass_to_and_from_the_host_cost_fuel() {
    // Texts that are refused, which the host has copied by then, and random bytes, which it computes. Three functions
    // pass the text twice: as a name and as its value.
    let calls = [
        ("header", 1),
        ("values", 1),
        ("set", 2),
        ("delete", 1),
        ("append", 2),
        ("list", 2),
        ("method", 1),
        ("scheme", 1),
        ("authority", 1),
        ("path", 1),
        ("address", 1),
        ("random", 17),
    ];
    for (call, fuel_per_byte) in calls {
        let mut guest = start(BYTES, &Limits::default()).await;
        let mut used = Vec::new();
        for bytes in [1_u32, 50_001] {
            let expected = match call {
                "header" | "values" => 0,
                "random" => bytes,
                _ => 1,
            };
            assert_eq!(guest.call::<_, u32>(call, (bytes,)).await, Ok(expected), "{call}");
            used.push(guest.store.data().fuel_used());
        }
        assert!(used[1] - used[0] >= 50_000 * fuel_per_byte, "{call}: {used:?}");
    }
}

#[tokio::test]
async fn calls_on_headers_cost_as_much_as_their_largest_size() {
    // The host may read or copy all headers, however short the text is that the guest passes.
    const LARGEST: u64 = 32 << 10;
    for call in ["header", "values", "set", "delete", "append", "list", "entries"] {
        let mut guest = start(BYTES, &Limits::default()).await;
        let called = match call {
            "entries" => guest.call::<_, u32>(call, ()).await,
            _ => guest.call::<_, u32>(call, (1_u32,)).await,
        };
        assert!(called.is_ok(), "{call}: {called:?}");
        assert!(guest.store.data().fuel_used() >= LARGEST, "{call}: {}", guest.store.data().fuel_used());
    }
}

#[tokio::test]
async fn looks_at_the_clock_cost_no_fuel() {
    // Long enough that the engine looks at the clock a few times, in one run more often than in another.
    let limits = Limits { fuel: u64::MAX / 4, ..Limits::default() };
    let mut first = start(WORLD, &limits).await;
    let mut second = start(WORLD, &limits).await;
    let work = async |guest: &mut Running| guest.call::<_, u64>("work", (100_000_000_u32,)).await.unwrap();
    let took = work(&mut first).await;
    let busy = std::thread::spawn(|| {
        let until = Instant::now() + Duration::from_millis(200);
        while Instant::now() < until {}
    });
    assert_eq!(work(&mut second).await, took);
    busy.join().unwrap();
}

#[tokio::test]
async fn a_component_of_too_many_parts_leaves_the_others_their_room() {
    let instances = "(core instance (instantiate $m))".repeat(3);
    let text = format!("(component (core module $m (memory 1)) {instances})");
    let engine = Engine::new(EngineConfig { instances: 4, ..EngineConfig::plugins() }).unwrap();
    let error = engine.load("greedy", &wat::parse_str(&text).unwrap()).err().unwrap().to_string();
    assert!(error.contains("3 Wasm linear memories"), "{error}");
}

#[tokio::test]
async fn threads_and_shared_memory_are_refused() {
    let engine = Engine::new(EngineConfig { instances: 4, ..EngineConfig::plugins() }).unwrap();
    let shared = "(component (core module (memory 1 2 shared)))";
    let error = engine.load("shared", &wat::parse_str(shared).unwrap()).err().unwrap().to_string();
    assert!(error.contains("threads must be enabled"), "{error}");
}

#[tokio::test]
async fn an_instance_that_starts_too_large_is_refused() {
    let engine = Engine::new(EngineConfig { instances: 4, ..EngineConfig::plugins() }).unwrap();
    let component = engine.load("guest", &wat::parse_str(TEMPER).unwrap()).unwrap();
    let ready = engine.linker::<()>().unwrap().instantiate_pre(component.inner()).unwrap();
    let mut store = engine.store((), &Limits { memory: 1000, ..Limits::default() });
    let fault = call(&mut store, async |store| ready.instantiate_async(store).await).await.unwrap_err();
    assert_eq!(fault, GuestFault::Memory { limit: 1000 });
}

#[tokio::test]
async fn deep_calls_fill_the_stack_and_nothing_else() {
    let mut guest = temper(Limits::default()).await;
    assert_eq!(guest.fault("deep").await, GuestFault::Stack);
}

#[tokio::test]
async fn returned_bytes_have_a_limit() {
    let mut guest = temper(Limits { returned: 1 << 19, ..Limits::default() }).await;
    assert_eq!(guest.call::<_, String>("talk", ()).await, Err(GuestFault::Returned { limit: 1 << 19 }));
    let mut guest = temper(Limits { returned: 1 << 22, ..Limits::default() }).await;
    assert_eq!(guest.call::<_, String>("talk", ()).await.unwrap().len(), 1 << 20);
}

#[tokio::test]
async fn not_a_number_has_one_form() {
    let mut guest = temper(Limits::default()).await;
    let signalling = f64::from_bits(0x7ff4_dead_beef_0001);
    for odd in [f64::INFINITY, signalling, -signalling] {
        assert_eq!(guest.call::<_, u64>("nan", (odd,)).await, Ok(0x7ff8_0000_0000_0000));
    }
}

const START: Clock = Clock::Fuel(Duration::ZERO);

#[tokio::test]
async fn clocks_run_on_fuel_and_randomness_on_a_seed() {
    let mut first = start(WORLD, &Limits::default()).await;
    let mut second = start(WORLD, &Limits::default()).await;
    let took = first.call::<_, u64>("took", ()).await.unwrap();
    assert!(took > 0);
    assert_eq!(second.call::<_, u64>("took", ()).await, Ok(took));
    let drawn = first.call::<_, u64>("draw", ()).await.unwrap();
    assert_eq!(second.call::<_, u64>("draw", ()).await, Ok(drawn));
    assert_ne!(first.call::<_, u64>("draw", ()).await, Ok(drawn));
    first.store.data_mut().rewind(START, Seed::Number(0));
    assert_eq!(first.call::<_, u64>("draw", ()).await, Ok(drawn));
    first.store.data_mut().rewind(START, Seed::Derived(|_| [1; 32]));
    assert_ne!(first.call::<_, u64>("draw", ()).await, Ok(drawn));
}
