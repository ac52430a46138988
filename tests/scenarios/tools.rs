//! Tool calls from end to end: a grammar makes a model of random weights call a tool, its agent answers within the
//! turn, and the update trains on all that the model has written, and on nothing of the tool's results.

use std::path::{Path, PathBuf};

use pl_record::{RunFolder, TokenTable, read_transitions};
use pl_types::{TrainedCompletion, Transition};
use serde_json::{Value, json};

use crate::support::{assert_equal_runs, metrics, pl_host, repository, run, scenario, stdout, succeed};

/// Steps, tasks per step and samples of a task, as the workflow has them.
const STEPS: u64 = 2;
const TASKS: usize = 4;
const SAMPLES: usize = 4;

/// Largest number of completions of a turn: the first, and one for each of the workflow's `tool_rounds`.
const MOST_CALLS: usize = 3;

/// Number of token ids of the model before those of several bytes: 3 control tokens and 256 bytes.
const SINGLE_BYTE_IDS: u64 = 259;

/// Beginning and end of a tool call in the workflow's grammar.
const TOOL_CALL: [&str; 2] = [r#"<tool_call>{"name":"vowels","arguments":{"of":""#, r#""}}</tool_call>"#];

/// Thought that Qwen 3's template puts before the answer that is due with `thinking = false`, but not before
/// earlier answers.
const EMPTY_THOUGHT: &str = "<think>\n\n</think>\n\n";

/// Completion with what the update of its step computed of it.
struct TrainedCall {
    transition: Transition,
    trained: TrainedCompletion,
}

impl TrainedCall {
    /// Returns true if its advantage was not 0, so that the update had to compute it.
    fn is_computed(&self) -> bool {
        self.trained.logprobs.is_some()
    }

    /// Tokens that the update was fed. The last one of a completion predicts no token of it.
    fn fed_tokens(&self) -> Vec<u32> {
        let Transition { prompt, completion, .. } = &self.transition;
        [&prompt[..], &completion[..completion.len() - 1]].concat()
    }
}

/// Writes the workflow and its model: that of other scenarios with Qwen 3's chat template and a token for each byte.
/// Equal texts then have equal tokens, whatever the model has sampled.
fn workflow(folder: &Path) -> PathBuf {
    for name in ["tools.mas", "call-or-line.lark"] {
        std::fs::copy(scenario("tools").join(name), folder.join(name)).unwrap();
    }
    let (tiny, model) = (repository().join("tests/data/tiny"), folder.join("model"));
    std::fs::create_dir(&model).unwrap();
    for name in ["config.json", "model.safetensors", "tokenizer_config.json"] {
        std::fs::copy(tiny.join(name), model.join(name)).unwrap();
    }
    let template = repository().join("tests/conformance/templates/qwen3.jinja");
    std::fs::copy(template, model.join("chat_template.jinja")).unwrap();
    let text = std::fs::read_to_string(tiny.join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_str(&text).unwrap();
    tokenizer["model"]["merges"] = json!([]);
    let vocabulary = tokenizer["model"]["vocab"].as_object_mut().unwrap();
    vocabulary.retain(|_, id| id.as_u64().unwrap() < SINGLE_BYTE_IDS);
    std::fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    folder.join("tools.mas")
}

/// Returns what the tool answers to a call.
fn tool_result(call: &str) -> String {
    let [start, end] = TOOL_CALL;
    let asked = call.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).unwrap();
    asked.chars().filter(|c| "aeiou".contains(*c)).count().to_string()
}

/// Checks the traces: each episode is one turn, in which each completion with a call is answered, except after the
/// last round, and the next prompt is the one before with the call and the result. `thought` is what the template puts
/// before the answer that is due.
fn check_conversations(out: &Path, thought: &str) {
    let exported = stdout(&succeed(pl_host().arg("export").arg(out)));
    let episodes: Vec<Value> = exported.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(episodes.len(), STEPS as usize * TASKS * SAMPLES);
    let mut answered_after_calls = 0;
    for episode in &episodes {
        assert_eq!(episode["visits"].as_array().unwrap().len(), 1, "{episode}");
        let visit = &episode["visits"][0];
        let turns = visit["branches"][0]["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 1, "{episode}");
        let mut text = turns[0]["text"].as_str().unwrap();
        let mut prompt = visit["prompts"][0]["text"].as_str().unwrap().to_owned();
        let follow_ups = turns[0]["follow_ups"].as_array().unwrap();
        for follow_up in follow_ups {
            let result = tool_result(text);
            assert_eq!(follow_up["tool_results"], json!([result]), "{episode}");
            let before = prompt.strip_suffix(thought).unwrap();
            prompt = format!(
                "{before}{text}<|im_end|>\n<|im_start|>user\n<tool_response>\n{result}\n</tool_response><|im_end|>\n\
                 <|im_start|>assistant\n{thought}"
            );
            assert_eq!(follow_up["prompt"], prompt, "{episode}");
            text = follow_up["text"].as_str().unwrap();
        }
        let ends_with_call = text.starts_with(TOOL_CALL[0]);
        assert!(!ends_with_call || follow_ups.len() + 1 == MOST_CALLS, "{episode}");
        assert_eq!(turns[0]["action"], json!(text).to_string(), "{episode}");
        answered_after_calls += usize::from(!ends_with_call && !follow_ups.is_empty());
    }
    assert!(answered_after_calls > 0, "no turn has a call and then an answer: {exported}");
}

/// Reads the completions of a step and what its update computed of them. Checks that the sampled tokens have the
/// advantage of their turn, that the tokens of prompts, with the tool's results, have none, and that a turn counts
/// once in its group.
fn trained_calls(out: &Path, step: u64) -> Vec<TrainedCall> {
    let transitions = read_transitions(&RunFolder::step_file(out, step)).unwrap();
    let table = TokenTable::open(&RunFolder::token_file(out, step)).unwrap();
    assert_eq!(table.rows().unwrap().len(), transitions.len(), "one pass over each completion");
    let records = (0..transitions.len()).map(|row| table.completion(row).unwrap().unwrap());
    let pairs = transitions.into_iter().zip(records);
    let calls: Vec<_> = pairs.map(|(transition, trained)| TrainedCall { transition, trained }).collect();
    let turns = turns(&calls);
    assert_eq!(turns.len(), TASKS * SAMPLES);
    assert!(turns.iter().any(|turn| turn.len() > 1 && turn[0].is_computed()), "no call is trained on");
    for turn in &turns {
        let reward = turn[0].transition.reward;
        let group = turns.iter().map(|other| &other[0].transition);
        let group = group.filter(|other| other.group == turn[0].transition.group);
        let mean = group.map(|other| other.reward).sum::<f64>() / SAMPLES as f64;
        for (at, TrainedCall { transition, trained }) in turn.iter().enumerate() {
            assert_eq!(trained.key, transition.key);
            assert_eq!((transition.key.call as usize, transition.final_call), (at, at + 1 == turn.len()));
            assert_eq!(transition.reward, reward);
            let credit = trained.credit.unwrap();
            assert_eq!((credit.value, credit.group_size), (reward, SAMPLES as u32));
            assert!((credit.group_mean - mean).abs() < 1e-12, "{} and {mean}", credit.group_mean);
            let sampled = transition.completion.len();
            assert_eq!(trained.advantages, vec![turn[0].trained.advantages[0]; sampled]);
            assert!(!trained.masked);
            let Some(logprobs) = &trained.logprobs else { continue };
            assert_eq!((logprobs.len(), transition.logprobs.len()), (sampled, sampled));
            // Equal only if training feeds the same tokens before them, with the tool's results.
            let gaps = logprobs.iter().zip(&transition.logprobs).map(|(now, then)| (now - then).abs());
            let largest = gaps.fold(0.0, f32::max);
            assert!(largest < 1e-4, "{:?}: {largest}", transition.key);
        }
    }
    calls
}

/// Returns the completions of each turn.
fn turns(calls: &[TrainedCall]) -> Vec<&[TrainedCall]> {
    calls.chunk_by(|_, next| next.transition.key.call > 0).collect()
}

/// Checks the line of a step in `metrics.jsonl`.
fn check_metrics(out: &Path, step: u64, calls: &[TrainedCall]) {
    let mut lines = metrics(out).into_iter();
    let line = lines.find(|line| line["kind"] == "step" && line["step"] == step).unwrap();
    let tokens = |call: &TrainedCall| call.transition.completion.len();
    let policy = &line["policies"]["writer"];
    assert_eq!((line["failures"].as_u64(), line["lost"].as_u64()), (Some(0), Some(0)));
    assert_eq!(line["agents"]["alto"]["completions"], turns(calls).len());
    assert_eq!(policy["completions"], calls.len());
    assert_eq!(policy["tokens"], calls.iter().map(tokens).sum::<usize>());
    let computed = calls.iter().filter(|call| call.is_computed());
    assert_eq!(policy["trained_tokens"], computed.map(tokens).sum::<usize>());
    assert_eq!(policy["version"], step);
    assert!(policy["grad_norm"].as_f64().unwrap() > 0.0, "{line}");
}

/// Returns the number of tokens of some sequences, in which a common beginning counts once.
fn distinct_tokens<'a>(calls: impl Iterator<Item = &'a TrainedCall>) -> usize {
    let mut sequences: Vec<Vec<u32>> = calls.map(TrainedCall::fed_tokens).collect();
    sequences.sort_unstable();
    let common = |pair: &[Vec<u32>]| pair[0].iter().zip(&pair[1]).take_while(|(a, b)| a == b).count();
    let shared: usize = sequences.windows(2).map(common).sum();
    sequences.iter().map(Vec::len).sum::<usize>() - shared
}

/// Checks that an update was fed `distinct` tokens for its sequences. A common beginning of fewer than 16 tokens may
/// be fed again for each of them.
fn check_fed_tokens(out: &Path, step: u64, calls: &[TrainedCall], distinct: usize) {
    let text = std::fs::read_to_string(out.join("timings.jsonl")).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let line = lines.find(|line| line["step"] == step).unwrap();
    let rate = line["trained_tokens_per_second"].as_f64().unwrap();
    let fed = (rate * line["seconds"]["train"].as_f64().unwrap()).round() as usize;
    let sequences = calls.iter().filter(|call| call.is_computed()).count();
    assert!((distinct..=distinct + 15 * sequences).contains(&fed), "{fed} of {distinct}");
}

#[test]
fn the_calls_of_a_turn_are_recorded_together_and_trained_on_as_one_sequence() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out, again) =
        (workflow(folder.path()), folder.path().join("run"), folder.path().join("again"));
    succeed(&mut run(&file, &out, &[]));
    check_conversations(&out, "");
    for step in 1..=STEPS {
        let calls = trained_calls(&out, step);
        check_metrics(&out, step, &calls);
        for pair in turns(&calls).iter().flat_map(|turn| turn.windows(2)) {
            let Transition { prompt, completion, .. } = &pair[0].transition;
            assert!(pair[1].transition.prompt.starts_with(&[&prompt[..], completion].concat()));
        }
        // The last sequence of a turn has all the others within it.
        let computed = || calls.iter().filter(|call| call.is_computed());
        let whole_turns = distinct_tokens(computed().filter(|call| call.transition.final_call));
        assert_eq!(distinct_tokens(computed()), whole_turns);
        check_fed_tokens(&out, step, &calls, whole_turns);
    }
    succeed(&mut run(&file, &again, &[]));
    assert_equal_runs(&out, &again, "the same run again");
    let replayed = stdout(&succeed(pl_host().arg("replay").arg(&out).arg("--all")));
    let episodes = STEPS as usize * TASKS * SAMPLES;
    assert_eq!(replayed.trim(), format!("{episodes} episodes: {episodes} as recorded"));
}

#[test]
fn a_template_that_rewrites_earlier_answers_has_a_sequence_for_each_call() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (workflow(folder.path()), folder.path().join("run"));
    succeed(&mut run(&file, &out, &["--set", "alto.thinking=false"]));
    check_conversations(&out, EMPTY_THOUGHT);
    for step in 1..=STEPS {
        let calls = trained_calls(&out, step);
        check_metrics(&out, step, &calls);
        for pair in turns(&calls).iter().flat_map(|turn| turn.windows(2)) {
            assert!(!pair[1].transition.prompt.starts_with(&pair[0].transition.prompt));
        }
        let computed = || calls.iter().filter(|call| call.is_computed());
        let all = distinct_tokens(computed());
        assert!(all > distinct_tokens(computed().filter(|call| call.transition.final_call)));
        check_fed_tokens(&out, step, &calls, all);
    }
}
