//! The engine's thread with recorded steps: completions are those of the plain way.

use std::sync::mpsc;

use parking_lot::Mutex;
use pl_types::{Completion, Grammar, Request, Sampling, ValueHeadWeights};
use tokio::sync::oneshot;

use super::*;
use crate::config::{PolicyWeights, WeightUpdate};
use crate::during_update::DuringUpdate;
use crate::grammars::Grammars;
use crate::message::{NewRequest, WorkerMessage};
use crate::policies::Policies;
use crate::stats::EngineStats;
use crate::worker::Worker;

fn tiny() -> BaseModel {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/tiny");
    let Model { config, weights, tokenizer, .. } = Model::load(folder, Device::Cpu, Dtype::F32).unwrap();
    BaseModel { config, weights, tokenizer, dtype: Dtype::F32 }
}

fn adapter(config: &Config, seed: u8) -> Adapter {
    // All threads share libtorch's generator.
    static GENERATOR: Mutex<()> = Mutex::new(());
    let _guard = GENERATOR.lock();
    let adapter = Adapter::new(config, 4, 8.0, &Projection::ALL, [seed; 32]).unwrap();
    tch::manual_seed(i64::from(seed));
    for (name, mut tensor) in adapter.parameters() {
        if name.contains("lora_B") {
            let _ = tensor.normal_(0.0, 0.3);
        }
    }
    adapter
}

/// Prompts of three policies, some with a grammar, some of which end before others.
fn requests() -> Vec<Request> {
    let grammar =
        Grammar::Lark("start: \"[\" (item (\",\" item)*)? \"]\"\nitem: start | /[a-z]{1,9}/\n".into());
    let grammar = Arc::new(grammar);
    (0..12u32)
        .map(|index| Request {
            policy: index as usize % 3,
            prompt: (0..5 + index * 3).map(|i| (index * 131 + i * i * 17 + i * 7) % 296 + 3).collect(),
            seeds: vec![[index as u8; 32]; 1 + index as usize % 2],
            max_tokens: 6 + index * 2,
            sampling: Sampling {
                grammar: (index % 4 == 3).then(|| Arc::clone(&grammar)),
                ..Sampling::with_temperature(if index % 5 == 4 { 0.0 } else { 1.0 })
            },
            stop: Arc::new([]),
            stop_ids: Arc::new([]),
            top_logprobs: 0,
            listener: None,
        })
        .collect()
}

/// Plays the requests three times: with a value head of a policy, then with another version of an adapter, then of the weights.
fn play(recorded: bool) -> (Vec<Completion>, EngineStats) {
    let (sender, receiver) = mpsc::channel();
    let counters = Arc::new(Counters::default());
    let own = Arc::clone(&counters);
    let thread = std::thread::spawn(move || {
        let recorder = recorded.then(|| Rc::new(Repeater::default()) as Rc<dyn GraphRecorder>);
        let executor =
            Libtorch { recorder, ahead: recorded, ..Libtorch::new(Device::Cpu, true, Arc::clone(&own)) };
        let base = tiny();
        let policies = [Some(adapter(&base.config, 1)), Some(adapter(&base.config, 2)), None]
            .map(|adapter| PolicyWeights { base: 0, adapter, version: 1 });
        // So few blocks that sequences are preempted.
        let cache = 12 * executor.block_bytes(&base) as u64;
        let policies = Policies::new(&executor, vec![base], policies.into(), cache).unwrap();
        Worker::new(executor, policies, 8, own, receiver).run();
    });
    let base = tiny();
    let policy = || PolicyWeights { base: 0, adapter: None, version: 1 };
    let grammars = Grammars::new(&[tiny()], &[policy(), policy(), policy()]);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut completions = Vec::new();
    let weight = (0..base.config.hidden).map(|i| (i % 7) as f32 / 10.0 - 0.3).collect();
    let updates: [(usize, WeightUpdate); 3] = [
        (1, WeightUpdate::ValueHead(ValueHeadWeights { weight, bias: 0.5 })),
        (0, adapter(&base.config, 3).into()),
        (2, base.weights.map(|t| t * 1.01).into()),
    ];
    for (policy, update) in updates {
        let (reply, done) = mpsc::sync_channel(1);
        sender.send(WorkerMessage::Publish { policy, update, version: 2, reply }).unwrap();
        done.recv().unwrap().unwrap();
        let replies: Vec<_> = requests()
            .into_iter()
            .map(|request| {
                let (reply, response) = oneshot::channel();
                let grammar = runtime.block_on(grammars.of_request(&request)).unwrap();
                let request = NewRequest { request, during_update: DuringUpdate::Finish, grammar };
                sender.send(WorkerMessage::Generate { request, reply }).unwrap();
                response
            })
            .collect();
        for reply in replies {
            completions.extend(reply.blocking_recv().unwrap().unwrap());
        }
    }
    drop(sender);
    thread.join().unwrap();
    (completions, counters.snapshot())
}

#[test]
fn completions_are_those_of_the_plain_way() {
    let (expected, plain) = play(false);
    let (got, recorded) = play(true);
    assert_eq!((plain.replayed_steps, plain.steps_ahead), (0, 0));
    // The others have a prompt in them, or are the first of their shape.
    assert!(recorded.replayed_steps * 5 > recorded.steps * 2, "{recorded:?}");
    // Grammars and full caches end a series too.
    assert!(recorded.steps_ahead * 5 > recorded.steps, "{recorded:?}");
    assert!(recorded.preemptions > 0, "{recorded:?}");
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(&expected) {
        assert_eq!(got.tokens, expected.tokens);
        for (a, b) in got.logprobs.iter().zip(&expected.logprobs) {
            assert!((a - b).abs() < 1e-4, "{a} {b}");
        }
        assert_eq!(got.values.is_some(), expected.values.is_some());
        for (a, b) in got.values.iter().flatten().zip(expected.values.iter().flatten()) {
            assert!((a - b).abs() < 1e-3, "{a} {b}");
        }
    }
    let with_values: Vec<&Completion> = got.iter().filter(|own| own.values.is_some()).collect();
    // Those of policy 1, one or two of each of its four requests.
    assert_eq!(with_values.len(), 3 * 6);
    assert!(with_values.iter().all(|own| own.values.as_ref().map(Vec::len) == Some(own.tokens.len())));
}
