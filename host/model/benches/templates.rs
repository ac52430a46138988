//! Cost of rendering chat templates in an instance of the WebAssembly module, beside the same code in the process.

#![allow(clippy::expect_used, reason = "a benchmark that does not start has nothing to report")]

use divan::Bencher;
use pl_model::{ChatMessage, ChatTemplate, RenderOptions};

fn main() {
    divan::main();
}

/// Published templates.
const TEMPLATES: [(&str, &str); 3] = [
    ("smollm2", include_str!("../../../tests/conformance/templates/smollm2.jinja")),
    ("qwen3", include_str!("../../../tests/conformance/templates/qwen3.jinja")),
    ("llama3.1-style", include_str!("../../../tests/conformance/templates/llama3.1-style.jinja")),
];

/// Number of messages: a task with its answer, an episode of many turns, a very long one.
const MESSAGES: [usize; 3] = [2, 20, 500];

fn source(name: &str) -> String {
    let found = TEMPLATES.iter().find(|(own, _)| *own == name);
    found.map(|(_, source)| (*source).to_owned()).expect("a template")
}

/// Messages of 60 words each.
fn messages(count: usize) -> Vec<ChatMessage> {
    let text = "The answer is one of the numbers below twelve. ".repeat(7);
    let roles = ["user", "assistant"];
    (0..count).map(|index| ChatMessage::new(roles[index % 2], text.clone())).collect()
}

fn cases() -> Vec<(&'static str, usize)> {
    TEMPLATES.iter().flat_map(|(name, _)| MESSAGES.map(|count| (*name, count))).collect()
}

#[divan::bench(args = cases())]
fn in_an_instance(bencher: Bencher<'_, '_>, (name, count): (&str, usize)) {
    let template = ChatTemplate::new(name, Some(source(name)), None, None).expect("a template");
    let (messages, options) = (messages(count), RenderOptions::prompt());
    bencher.bench_local(|| template.render(&messages, &options).expect("a text"));
}

#[divan::bench(args = cases())]
fn in_the_process(bencher: Bencher<'_, '_>, (name, count): (&str, usize)) {
    let template = pl_jinja::Template::parse(source(name)).expect("a template");
    let messages = messages(count);
    bencher.bench_local(|| {
        let variables = serde_json::json!({
            "messages": &messages,
            "tools": null,
            "documents": null,
            "add_generation_prompt": true,
            (pl_jinja::TIME): "2026-11-25T00:00:00",
        });
        template.render(&serde_json::to_vec(&variables).expect("JSON")).expect("a text")
    });
}

/// Parses a template in a new instance.
#[divan::bench(args = TEMPLATES.map(|(name, _)| name))]
fn parse_in_an_instance(bencher: Bencher<'_, '_>, name: &str) {
    let source = source(name);
    bencher.bench_local(|| ChatTemplate::new(name, Some(source.clone()), None, None).expect("a template"));
}
