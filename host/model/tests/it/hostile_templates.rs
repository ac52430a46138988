//! Chat templates that would take all memory, or the stack, of the program that renders them.

use std::process::Command;

use pl_model::{ChatMessage, ChatTemplate, RenderOptions};

/// Memory that rendering may take besides the limit of 128 MiB: copies of arguments and results, the compiled module.
const SLACK: u64 = 32 << 20;

const LIMIT: u64 = 128 << 20;

/// Name and source of templates that take from one to three GiB, each in its own way.
const HOARDERS: [(&str, &str); 9] = [
    (
        "~",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(26) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x | length }}",
    ),
    (
        "+",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(26) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x | length }}",
    ),
    (
        "replace",
        "{% set ns = namespace(x='a' * 64) %}{% for i in range(23) %}{% set ns.x = ns.x | replace('a' * 64, 'a' * 128) %}{% endfor %}{{ ns.x | length }}",
    ),
    (
        "join",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(26) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}{{ ns.x | length }}",
    ),
    (
        "format",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(26) %}{% set ns.x = '%s%s' | format(ns.x, ns.x) %}{% endfor %}{{ ns.x | length }}",
    ),
    (
        "*",
        "{% set ns = namespace(l=[]) %}{% for i in range(14) %}{% set ns.l = [ns.l, 'a' * (90000000 + i)] %}{% endfor %}{{ ns.l | length }}",
    ),
    ("a long list", "{{ ([0] * 50000000) | list | length }}"),
    ("pieces", "{% set n = 45000000 %}{{ ('a,' * n).split(',') | list | length }}"),
    (
        "nested lists",
        "{% set ns = namespace(l='a' * 1000) %}{% for i in range(20) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ (ns.l ~ '') | length }}",
    ),
];

/// A list in a list, a hundred thousand times: freeing it takes as many frames of the stack.
const DEEP: &str = "{% set ns = namespace(l=[]) %}{% for i in range(10) %}{% for k in range(10000) %}{% set ns.l = [ns.l] %}{% endfor %}{% endfor %}";

/// Environment variable with the number of the template that a child process renders.
const CHILD: &str = "PL_HOST_TEST_TEMPLATE";

/// Value in bytes of a line of `/proc/self/status`.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new("test-model", Some(source.to_owned()), None, None).unwrap()
}

/// Measures the growth of the process's peak, so it needs a process of its own, as nextest runs it.
#[test]
fn hoarding_templates_stay_within_the_limit() {
    let messages = [ChatMessage::new("user", "hi")];
    // Compiles the module.
    let harmless = template("{{ messages[0].content }}");
    assert_eq!(harmless.render(&messages, &RenderOptions::prompt()).unwrap(), "hi");
    for (name, source) in HOARDERS {
        let template = template(source);
        let before = status("VmRSS:");
        // Starts the measurement of the peak again.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let error = template.render(&messages, &RenderOptions::prompt()).unwrap_err().to_string();
        let grown = status("VmHWM:").saturating_sub(before);
        assert!(error.contains("test-model") && error.contains("128 MiB of memory"), "{name}: {error}");
        assert!(grown <= LIMIT + SLACK, "{name}: the memory grew by {} MiB", grown >> 20);
        assert!(status("VmRSS:") <= before + SLACK, "{name}: the memory stays");
        // The template and others can be used afterwards.
        assert!(template.render(&messages, &RenderOptions::prompt()).is_err(), "{name}");
        assert_eq!(harmless.render(&messages, &RenderOptions::prompt()).unwrap(), "hi");
    }
}

#[test]
fn deep_values_are_an_error_of_their_prompt() {
    let error = template(DEEP).render(&[], &RenderOptions::prompt()).unwrap_err().to_string();
    assert!(error.contains("nest too deeply"), "{error}");
}

/// Without the limits of an instance, rendering in the process takes more than a gigabyte, or its stack.
#[test]
fn without_an_instance_hostile_templates_take_the_memory() {
    let render = |number: usize| {
        let child = std::env::current_exe().unwrap();
        let name = "hostile_templates::a_child_renders_without_an_instance";
        let mut command = Command::new(child);
        command.args(["--exact", name, "--ignored", "--nocapture"]).env(CHILD, number.to_string());
        command.output().unwrap()
    };
    for (number, (name, _)) in HOARDERS.iter().enumerate() {
        let output = render(number);
        let text = String::from_utf8_lossy(&output.stdout);
        let peak = text.lines().find_map(|line| line.split_once("peak ")?.1.parse::<u64>().ok());
        assert!(peak.unwrap() > 1 << 30, "{name}: {text}");
    }
    let deep = render(HOARDERS.len());
    assert!(!deep.status.success(), "a deep value is freed: {deep:?}");
}

#[test]
#[ignore = "started by the test above"]
fn a_child_renders_without_an_instance() {
    let Ok(number) = std::env::var(CHILD) else { return };
    let source = HOARDERS.get(number.parse::<usize>().unwrap()).map_or(DEEP, |(_, source)| *source);
    let template = pl_jinja::Template::parse(source.to_owned()).unwrap();
    template.render(b"{}").unwrap();
    println!("\npeak {}", status("VmHWM:"));
}
