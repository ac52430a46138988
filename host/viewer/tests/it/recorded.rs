//! Small recorded runs, made without a model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pl_record::{Lock, RunFolder, TraceFile, Traces};
use pl_types::{Clipping, Group, Key, TrainedCompletion, Transition};
use pl_viewer::{SettingDoc, TokenTexts, Unavailable, Viewer, Workflows};
use serde_json::{Value, json};

/// Text that would run if a page put it in as HTML.
pub const HOSTILE: &str =
    "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">";

/// A drawing that would run scripts and load files if it were part of a page.
pub const HOSTILE_DRAWING: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" onload=\"parent.document.title='owned'\">\
    <script>parent.document.title='owned'</script><image href=\"/api/runs\"/></svg>";

/// Completion of both model calls in the turn of [`tool_calls`].
pub const TOOL_CALL: &str = "add(2, 4)";

/// Workflows whose token ids are the letters of the texts.
pub struct Letters;

impl TokenTexts for Letters {
    fn text(&self, ids: &[u32]) -> String {
        ids.iter().filter_map(|id| char::from_u32(*id)).collect()
    }
}

impl Workflows for Letters {
    fn tokenizer(&self, _: &Path, _: Option<&str>, agent: &str) -> Result<Arc<dyn TokenTexts>, Unavailable> {
        match agent {
            "reason" => Err(Unavailable("the model of reason is not on this machine".into())),
            _ => Ok(Arc::new(Letters)),
        }
    }

    fn gradient(
        &self,
        _: &Path,
        agent: &str,
        record: &TrainedCompletion,
        sampled: &[f32],
        token: usize,
    ) -> Result<Value, Unavailable> {
        let advantage = record.advantages.get(token).ok_or_else(|| Unavailable("no such token".into()))?;
        let term = json!({ "name": "A", "formula": "R", "numbers": HOSTILE, "value": advantage });
        Ok(json!({
            "terms": [term], "derivative": sampled[token], "summary": format!("a token of {agent}"),
            "algorithm": { "word": "at_grpo", "source": "a paper", "formula": "A = R" },
        }))
    }

    fn setting_docs(&self) -> Vec<SettingDoc> {
        vec![SettingDoc { block: "train", key: "steps", doc: "Number of training steps." }]
    }

    fn graph(&self, _: &Path) -> Result<Value, Unavailable> {
        Err(Unavailable("no graph in this test".into()))
    }

    fn design_graph(&self, _: &Path, _: Option<&str>, _: &str) -> Result<Value, Unavailable> {
        Err(Unavailable("no graph in this test".into()))
    }

    fn best_designs(&self, _: &Path, _: usize) -> Result<Vec<Value>, Unavailable> {
        Ok(Vec::new())
    }
}

pub fn viewer(folder: &Path) -> Viewer {
    Viewer::new(vec![folder.to_path_buf()], Arc::new(Letters))
}

/// Token ids of a text.
pub fn ids(text: &str) -> Vec<u32> {
    text.chars().map(u32::from).collect()
}

/// Creates a run folder without episodes.
pub fn create(runs: &Path, name: &str, seed: u64) -> (PathBuf, RunFolder) {
    let root = runs.join(name);
    let lock = Lock {
        version: "0.1.0".into(),
        contract: "0.1".into(),
        seed,
        date: None,
        device: "cpu".into(),
        threads: 1,
        plugins: [].into(),
        grants: [].into(),
        models: [].into(),
        dtypes: [].into(),
        starts: [].into(),
        data: [].into(),
        images: [].into(),
        permissions: [].into(),
    };
    let workflow = json!({ "folder": "/", "workflow": {
        "name": "sums",
        "agents": [{ "name": "tool" }, { "name": "reason" }],
        "scenarios": [{ "reward": { "team": 1.0, "local": 0.5 } }],
        "train": { "steps": 2 },
    }});
    let folder = RunFolder::create(&root, "workflow sums\n", &workflow, &lock).unwrap();
    (root, folder)
}

/// Creates a run of two steps with a flat episode, a tree, a failure and an evaluation.
pub fn example(runs: &Path, name: &str, seed: u64) -> PathBuf {
    let (root, mut folder) = create(runs, name, seed);
    let metrics = [
        json!({ "kind": "evaluation", "step": 0, "name": "test", "success": 0.25, "tasks": 8 }),
        json!({ "kind": "step", "step": 1, "rollout_success": 0.5, "agents": { "tool": { "reward": 0.5 + seed as f64 } } }),
        json!({ "kind": "step", "step": 2, "rollout_success": 0.75, "agents": { "tool": { "reward": 0.75 } } }),
    ];
    metrics.iter().for_each(|line| folder.append_metrics(1, line).unwrap());
    folder.append_timings(1, &json!({ "step": 1, "seconds": { "play": 1.0, "train": 2.0 } })).unwrap();
    let traces = Traces::for_run(&root);
    let file = |step, evaluation: Option<&str>| TraceFile { step, evaluation: evaluation.map(str::to_owned) };
    traces.write(&file(0, Some("test")), &[flat("test", 0, 0, 0, "six", 0.0)]).unwrap();
    traces.write(&file(1, None), &[flat("train", 1, 0, 0, HOSTILE, 1.0), failed(1, 1), tree(1, 2)]).unwrap();
    traces.write(&file(2, None), &[flat("train", 2, 0, 0, "eight", 1.0)]).unwrap();
    folder.write_step(1, &[transition(HOSTILE), transition("another")]).unwrap();
    let candidates = (0..3).map(|branch| trained(2, branch, 10, f64::from(branch) - 1.0));
    let records: Vec<_> = [trained(0, 0, ids(HOSTILE).len(), 0.5)].into_iter().chain(candidates).collect();
    folder.write_tokens(1, &records).unwrap();
    root
}

/// Creates a run of one episode, whose turn has two model calls that sampled the same tokens. The tool's results of
/// the second one no longer fit the context.
pub fn tool_calls(runs: &Path, name: &str) -> PathBuf {
    let (root, folder) = create(runs, name, 0);
    let mut trace = flat("train", 1, 0, 0, TOOL_CALL, 1.0);
    let of_tool = |kind: Value| event(0, None, Some("tool"), kind);
    let results = || of_tool(json!({ "tool_results": ["6"] }));
    let prompted = of_tool(json!({ "prompted": { "visit": 0, "prompt": ids("6") } }));
    // Behind the first completion.
    let later = [results(), prompted, of_tool(completion(TOOL_CALL)), results()];
    trace["events"].as_array_mut().unwrap().splice(3..3, later);
    Traces::for_run(&root).write(&TraceFile { step: 1, evaluation: None }, &[trace]).unwrap();
    let tokens = ids(TOOL_CALL).len();
    let first = Transition { final_call: false, action: "null".into(), ..transition(TOOL_CALL) };
    let mut last = Transition { logprobs: vec![-0.5; tokens], ..transition(TOOL_CALL) };
    last.key.call = 1;
    folder.write_step(1, &[first, last]).unwrap();
    let mut records = [trained(0, 0, tokens, 0.5), trained(0, 0, tokens, 0.25)];
    records[1].key.call = 1;
    folder.write_tokens(1, &records).unwrap();
    root
}

/// Creates a run of trees of candidates, each with its reward. The turn of a candidate has two model calls: the first
/// completion, the tool's result, and the last completion.
pub fn trees_of_tool_calls(runs: &Path, name: &str, trees: &[&[(f64, [&str; 3])]]) -> PathBuf {
    let (root, _folder) = create(runs, name, 0);
    let traces = (0..).zip(trees).map(|(task, &candidates)| {
        let prompted = |text: &str| json!({ "prompted": { "visit": 0, "prompt": ids(text) } });
        let mut events = vec![event(0, None, Some("tool"), prompted("go"))];
        for (branch, (reward, [first, result, last])) in (0..).zip(candidates) {
            let of_tool = |kind: Value| event(0, Some(branch), Some("tool"), kind);
            events.push(of_tool(completion(first)));
            events.push(of_tool(json!({ "tool_results": [result] })));
            events.push(of_tool(prompted(result)));
            events.push(of_tool(completion(last)));
            events.push(event(0, Some(branch), None, scores(*reward)));
        }
        events.push(event(0, None, None, json!({ "chosen": candidates.len() - 1 })));
        json!({
            "key": key("train", 1, task, 0), "task": { "id": format!("train-{task}"), "data": "{}" },
            "mode": "tree", "candidates": candidates.len(), "events": events, "end": end(true, 1, 0),
        })
    });
    let traces: Vec<Value> = traces.collect();
    Traces::for_run(&root).write(&TraceFile { step: 1, evaluation: None }, &traces).unwrap();
    root
}

fn key(set: &str, step: u64, task: u32, sample: u32) -> Value {
    let phase = if set == "train" { json!("train") } else { json!({ "evaluate": set }) };
    json!({ "seed": 0, "phase": phase, "step": step, "task": task, "sample": sample, "attempt": 0 })
}

pub fn event(visit: u32, branch: Option<u32>, agent: Option<&str>, kind: Value) -> Value {
    let mut position = json!({ "node_visit": visit });
    if let Some(branch) = branch {
        position["candidate"] = json!({ "branch": branch, "retry": 0 });
    }
    if let Some(agent) = agent {
        position["agent"] = json!(agent);
    }
    json!({ "position": position, "kind": kind })
}

fn end(success: bool, turns: u32, tokens: usize) -> Value {
    json!({ "success": success, "truncated": false, "turns": turns, "tokens": tokens })
}

fn scores(reward: f64) -> Value {
    let local = json!([{ "agent": "tool", "reward": reward, "success": reward > 0.0 }]);
    json!({ "scores": { "team": reward, "local": local, "success": reward > 0.0 } })
}

pub fn completion(text: &str) -> Value {
    json!({ "completion": { "text": text, "finish": "stop", "tokens": ids(text) } })
}

/// An episode of one turn.
pub fn flat(set: &str, step: u64, task: u32, sample: u32, text: &str, reward: f64) -> Value {
    let prompt = "<|im_start|>user\nTwo and four?<|im_end|>\n<|im_start|>assistant\n";
    let outcome = json!({ "outcome": { "done": true, "truncated": false, "facts": { "agreed": true }, "evidence": "{}" } });
    let verdict =
        json!({ "ending": "ok", "exit": 0, "stdout": "printed", "stderr": "", "reproducible": true });
    let log = json!({ "call_log": { "function": "apply", "events": [{ "sandbox": { "jobs": "", "verdicts": [verdict] } }] } });
    json!({
        "key": key(set, step, task, sample),
        "task": { "id": format!("{set}-{task}"), "data": "{\"question\":\"Two and four?\"}" },
        "mode": "flat", "candidates": 1,
        "events": [
            event(0, None, None, json!({ "drawing": "<svg/>" })),
            event(0, None, Some("tool"), json!({ "prompted": { "visit": 0, "prompt": ids(prompt) } })),
            event(0, None, Some("tool"), completion(text)),
            event(0, None, Some("tool"), json!({ "action": json!({ "answer": text }).to_string() })),
            event(0, None, None, log),
            event(0, None, None, outcome),
            event(0, None, None, scores(reward)),
            event(0, None, None, json!({ "drawing": HOSTILE_DRAWING })),
            event(0, None, None, json!({ "invented_later": [1, 2] })),
        ],
        "end": end(reward > 0.0, 1, text.len()),
    })
}

fn failed(step: u64, task: u32) -> Value {
    let fault = json!({ "fault": { "stage": "apply", "cause": "out of fuel", "reproducible": true } });
    json!({
        "key": key("train", step, task, 0), "task": { "id": "train-1", "data": "{}" },
        "mode": "flat", "candidates": 1,
        "events": [event(0, None, Some("reason"), json!("skipped")), event(0, None, None, fault)],
        "end": { "success": false, "truncated": false, "turns": 0, "tokens": 0, "failure": "environment: out of fuel" },
    })
}

/// Creates a run of one episode, which a fault of the agent's plugin has ended, and whose completion is penalised for it.
pub fn penalised(runs: &Path, name: &str) -> PathBuf {
    let (root, folder) = create(runs, name, 0);
    let mut trace = flat("train", 1, 0, 0, "six", 0.0);
    let fault = json!({ "fault": { "stage": "parse", "cause": "out of fuel", "reproducible": true } });
    let events = trace["events"].as_array_mut().unwrap();
    events.truncate(3);
    events.push(event(0, None, Some("tool"), fault));
    trace["end"] = end(false, 1, 3);
    Traces::for_run(&root).write(&TraceFile { step: 1, evaluation: None }, &[trace]).unwrap();
    folder.write_step(1, &[Transition { reward: -1.0, ..transition("six") }]).unwrap();
    root
}

/// A tree of one node visit with three candidates of rewards 0, 1 and 2; it went on from the last.
fn tree(step: u64, task: u32) -> Value {
    let mut events =
        vec![event(0, None, Some("tool"), json!({ "prompted": { "visit": 0, "prompt": ids("go") } }))];
    for branch in 0..3 {
        events.push(event(0, Some(branch), Some("tool"), completion(&format!("candidate {branch}"))));
        events.push(event(
            0,
            Some(branch),
            None,
            json!({ "outcome": { "done": false, "truncated": false, "facts": {}, "evidence": "{}" } }),
        ));
        events.push(event(0, Some(branch), None, scores(f64::from(branch))));
        let drawing = format!("<svg>{branch}{}</svg>", " ".repeat(if branch == 2 { 300_000 } else { 0 }));
        events.push(event(0, Some(branch), None, json!({ "drawing": drawing })));
    }
    events.push(event(0, None, None, json!({ "chosen": 2 })));
    json!({
        "key": key("train", step, task, 0), "task": { "id": "train-2", "data": "{}" },
        "mode": "tree", "candidates": 3, "events": events, "end": end(true, 1, 33),
    })
}

/// The row of a completion of task 0 in step 1.
fn transition(text: &str) -> Transition {
    let completion = ids(text);
    Transition {
        key: Key { step: 1, task: 0, sample: 0, node_visit: 0, agent: 0, branch: 0, call: 0 },
        group: Group { step: 1, task: 0, agent: 0, turn: 0, node_visit: None },
        task_id: "train-0".into(),
        agent: "tool".into(),
        policy: 0,
        turn: 0,
        prompt: vec![1, 2, 3],
        logprobs: (0..completion.len()).map(|index| -(index as f32) / 8.0).collect(),
        completion,
        support: None,
        temperature: 1.0,
        max_tokens: 256,
        cut_off: false,
        final_call: true,
        versions: vec![0],
        version: 0,
        version_changes: Vec::new(),
        team_reward: 1.0,
        local_reward: 1.0,
        reward: 1.5,
        success: true,
        chosen: true,
        action: "{}".into(),
        state: String::new(),
        next_prompt: None,
        values: None,
    }
}

/// Values that the update of step 1 computed for a completion of `tool`.
fn trained(task: u32, branch: u32, tokens: usize, advantage: f64) -> TrainedCompletion {
    TrainedCompletion {
        key: Key { step: 1, task, sample: 0, node_visit: 0, agent: 0, branch, call: 0 },
        epoch: 0,
        optimizer_steps: 0,
        loss_weight: 0.25,
        kl_coefficient: 0.0,
        masked: false,
        credit: None,
        advantages: vec![advantage as f32; tokens],
        logprobs: Some((0..tokens).map(|token| -(token as f32) / 8.0 + 0.1).collect()),
        entropies: Some(vec![1.25; tokens]),
        clipped: Some(
            (0..tokens).map(|token| if token == 1 { Clipping::Range } else { Clipping::None }).collect(),
        ),
        old_logprobs: None,
        reference_logprobs: None,
        importance_weights: None,
    }
}
