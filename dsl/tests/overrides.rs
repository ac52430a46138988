//! Overrides: params and settings given by `--set`.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::panic, clippy::unwrap_used)]

mod common;

use std::path;
use std::time::Duration;

use common::TestCatalog;
use pl_dsl::workflow::{Rollout, Tasks, Workflow};
use pl_dsl::{BlockKind, Checked, DiagnosticCode, Override, Severity, Source, check, render};
use pl_types::ModelDtype;

fn source() -> Source {
    Source { name: "design.mas".to_owned(), text: include_str!("cases/design.mas").to_owned() }
}

fn set(given: &[&str]) -> Checked {
    let overrides: Vec<Override> = given.iter().map(|one| one.parse().unwrap()).collect();
    check(&source(), &overrides, &TestCatalog)
}

fn works(given: &[&str]) -> Workflow {
    let checked = set(given);
    let messages = render::short(&checked.diagnostics, &checked.sources);
    checked.workflow.unwrap_or_else(|| panic!("{messages}"))
}

/// Returns the messages of invalid overrides.
fn fails(given: &[&str]) -> String {
    let checked = set(given);
    assert!(checked.workflow.is_none());
    render::short(&checked.diagnostics, &checked.sources)
}

/// Findings about the machine name the place of the setting, in the file or on the command line.
#[test]
fn a_diagnostic_about_a_setting_has_its_place() {
    let model = (BlockKind::Model, "base", "source");
    let shown = |given: &[&str]| {
        let Checked { places, sources, .. } = set(given);
        let (code, severity) = (DiagnosticCode::NotFound, Severity::Warning);
        render::short(&[places.diagnostic(model, code, severity, "it is not there".to_owned())], &sources)
    };
    assert_eq!(shown(&[]), "design.mas:7:14: MAS0060 warning: it is not there\n");
    assert_eq!(
        shown(&["base.source=./m"]),
        "design.mas: MAS0060 warning: --set base.source=./m: it is not there\n"
    );
}

#[test]
fn a_bare_name_is_a_param() {
    let workflow = works(&["samples=8"]);
    assert_eq!(workflow.params["samples"], 8);
    assert_eq!(workflow.train.unwrap().samples, 8);
}

#[test]
fn a_path_is_a_setting() {
    let workflow = works(&["train.steps=3", "test.limit=5", "train.rollout=flat", "tool.temperature=0.5"]);
    let train = workflow.train.unwrap();
    assert_eq!((train.steps, train.rollout), (3, Rollout::Flat));
    assert_eq!(workflow.evaluations[0].limit, 5);
    assert_eq!(workflow.agents[0].sampling.temperature, 0.5);
}

#[test]
fn settings_that_are_not_written_can_be_set() {
    let workflow = works(&["train.epochs=2", "test.temperature=0", "sandbox.output=1MiB"]);
    assert_eq!(workflow.train.unwrap().epochs, 2);
    assert_eq!(workflow.evaluations[0].sampling.temperature, Some(0.0));
    assert_eq!(workflow.scenarios[0].environment.name, "problems");
    assert_eq!(workflow.sandbox.output, 1 << 20);
}

#[test]
fn implied_blocks_can_be_set() {
    let workflow = works(&["inference.kv_cache=64MiB", "inference.threads=1", "sandbox.workers=3"]);
    let inference = workflow.inference;
    assert_eq!((inference.kv_cache, inference.slots, inference.threads), (Some(64 << 20), 64, Some(1)));
    assert_eq!(workflow.sandbox.workers, 3);
    assert!(!inference.enforce_eager && works(&["inference.enforce_eager=true"]).inference.enforce_eager);
    assert!(fails(&["inference.enforce_eager=1"]).contains("`enforce_eager`"));
    assert!(fails(&["inference.slots=0"]).contains("`slots` is 0"));
}

#[test]
fn lists_of_texts_are_written_as_in_a_file() {
    let workflow = works(&[r#"tool.stop=["a b", "\n"]"#, "base.dtype=f16"]);
    assert_eq!(workflow.agents[0].stop, ["a b", "\n"]);
    assert_eq!(workflow.models[0].dtype, Some(ModelDtype::F16));
    assert!(fails(&["tool.stop=###"]).contains(r####"write `stop = ["###"]`"####));
    assert!(fails(&["tool.stop=a"]).contains(r#"write `stop = ["a"]`"#));
    assert!(fails(&["tool.stop=[a]"]).contains(r#"text needs quotes: `"a"`"#));
    assert!(fails(&["coder.lora.targets=q"]).contains("write `targets = [q]`"));
}

#[test]
fn inner_blocks_and_heads_have_paths_too() {
    let workflow =
        works(&["coder.lora.rank=4", "coder.lora.targets=[q, v]", "base.source=hf:a/b", "maths.memory=1GiB"]);
    let lora = workflow.policies[0].lora.as_ref().unwrap();
    assert_eq!((lora.rank, lora.targets.as_slice()), (4, ["q".to_owned(), "v".to_owned()].as_slice()));
    assert_eq!(workflow.models[0].source, "hf:a/b");
    assert_eq!(workflow.plugins[0].memory, 1 << 30);
}

#[test]
fn paths_of_overrides_are_relative_to_the_working_directory() {
    let workflow = works(&["problems.tasks=data/tasks.jsonl", "base.source=./tiny", "maths.path=other.wasm"]);
    let absolute = |path: &str| path::absolute(path).unwrap().to_string_lossy().into_owned();
    assert_eq!(workflow.scenarios[0].environment.tasks, Tasks::File(absolute("data/tasks.jsonl")));
    assert_eq!(workflow.models[0].source, absolute("./tiny"));
    assert_eq!(workflow.plugins[0].path, Some(absolute("other.wasm")));
    // A name stays a name.
    assert_eq!(works(&["base.source=smollm2-360m"]).models[0].source, "smollm2-360m");
}

#[test]
fn a_file_given_by_an_override_replaces_generated_tasks() {
    let text = source().text.replace("tasks = \"gsm8k.jsonl\"", "level = 2");
    let source = Source { name: "x.mas".to_owned(), text };
    let generated = check(&source, &[], &TestCatalog).workflow.unwrap();
    let level = Tasks::Generated { split: "train".to_owned(), level: 2 };
    assert_eq!(generated.scenarios[0].environment.tasks, level);
    let overrides = ["problems.tasks=/x.jsonl".parse().unwrap()];
    let read = check(&source, &overrides, &TestCatalog).workflow.unwrap();
    assert_eq!(read.scenarios[0].environment.tasks, Tasks::File("/x.jsonl".to_owned()));
}

#[test]
fn the_sandbox_can_be_set_without_its_block() {
    let text = source().text.replace("sandbox {", "# {");
    let overrides = ["sandbox.timeout=5s".parse().unwrap()];
    let checked = check(&Source { name: "x.mas".to_owned(), text }, &overrides, &TestCatalog);
    assert_eq!(checked.workflow.unwrap().sandbox.timeout, Duration::from_secs(5));
}

#[test]
fn the_last_one_wins_and_values_may_be_params_or_quoted() {
    assert_eq!(works(&["train.steps=3", "train.steps=5"]).train.unwrap().steps, 5);
    assert_eq!(works(&["train.tasks_per_step=samples"]).train.unwrap().tasks_per_step, 4);
    let quoted = works(&["problems.tasks=\"/with space.jsonl\""]);
    assert_eq!(quoted.scenarios[0].environment.tasks, Tasks::File("/with space.jsonl".to_owned()));
}

#[test]
fn a_keyword_distinguishes_blocks_of_one_name() {
    let text = source().text.replace("reward score", "reward tool");
    let source = Source { name: "x.mas".to_owned(), text };
    let clash = check(&source, &["tool.temperature=0.5".parse().unwrap()], &TestCatalog);
    assert_eq!(
        render::short(&clash.diagnostics, &clash.sources),
        "x.mas: MAS0031 error: --set tool.temperature=0.5: `tool` is the name of several blocks (write `agent \
         tool` or `reward tool` before the dot)\n"
    );
    let qualified = check(&source, &["agent tool.temperature=0.5".parse().unwrap()], &TestCatalog);
    assert_eq!(qualified.workflow.unwrap().agents[0].sampling.temperature, 0.5);
}

#[test]
fn mistakes_name_the_override() {
    insta::assert_snapshot!(fails(&["sample=8"]), @"design.mas: MAS0031 error: --set sample=8: there is no param `sample` (did you mean `samples`?)");
    insta::assert_snapshot!(fails(&["trian.steps=8"]), @"design.mas: MAS0031 error: --set trian.steps=8: there is no block `trian` (did you mean `train`?)");
    insta::assert_snapshot!(fails(&["train.step=8"]), @"design.mas: MAS0007 error: --set train.step=8: `train` has no setting `step` (did you mean `steps`?)");
    insta::assert_snapshot!(fails(&["train.steps=many"]), @"design.mas: MAS0010 error: --set train.steps=many: `steps` must be a whole number, not text");
    insta::assert_snapshot!(fails(&["train.rollout=tre"]), @"design.mas: MAS0013 error: --set train.rollout=tre: `tre` is not a valid value of `rollout` (did you mean `tree`?)");
    insta::assert_snapshot!(fails(&["coder.server=fleet"]), @"design.mas: MAS0012 error: --set coder.server=fleet: there is no server `fleet`");
    insta::assert_snapshot!(fails(&["tool.policy=nobody"]), @"design.mas: MAS0012 error: --set tool.policy=nobody: there is no policy `nobody` (the file has: `coder` and `reasoner`)");
    insta::assert_snapshot!(fails(&["samples=1"]), @"design.mas:31:15: MAS0029 error: at_grpo compares the completions of a group, but `samples` is 1 (start with 4)");
    insta::assert_snapshot!(fails(&["tool.lora.rank=1"]), @"design.mas: MAS0031 error: --set tool.lora.rank=1: agent `tool` has no `lora` block");
    insta::assert_snapshot!(fails(&["coder.lora=4"]), @"design.mas: MAS0031 error: --set coder.lora=4: `lora` is a block of policy `coder`, not a setting (set one of its settings, such as `coder.lora.rank`)");
    insta::assert_snapshot!(fails(&["train.tasks_per_step=4294967296"]), @"design.mas: MAS0011 error: --set train.tasks_per_step=4294967296: `tasks_per_step` is 4294967296, but must be between 1 and 4294967295");
    insta::assert_snapshot!(fails(&["coder.lora.rank.x=1"]), @"design.mas: MAS0031 error: --set coder.lora.rank.x=1: a path has at most three parts: block, inner block, setting");
}

#[test]
fn replaced_values_are_not_checked() {
    let text = source().text.replace("steps     = 200", "steps     = \"many\"");
    let source = Source { name: "x.mas".to_owned(), text };
    assert_eq!(check(&source, &[], &TestCatalog).diagnostics[0].code, DiagnosticCode::WrongType);
    let fixed = check(&source, &["train.steps=2".parse().unwrap()], &TestCatalog);
    assert_eq!(fixed.diagnostics, []);
    assert_eq!(fixed.workflow.unwrap().train.unwrap().steps, 2);
}

/// A shell keeps the quotes within its own, so that a text with a param in it is evaluated.
#[test]
fn texts_with_params_in_them_are_evaluated() {
    assert_eq!(works(&[r#"base.source="hf:a/b${samples}""#]).models[0].source, "hf:a/b4");
    let absolute = path::absolute("data4/x.jsonl").unwrap().to_string_lossy().into_owned();
    let tasks = works(&[r#"problems.tasks="data${samples}/x.jsonl""#]).scenarios[0].environment.tasks.clone();
    assert_eq!(tasks, Tasks::File(absolute));
    assert!(fails(&[r#"base.source="${sample}""#]).contains("did you mean `samples`?"));
    assert!(fails(&[r#"coder.model="${samples}""#]).contains("`model` must be"));
    assert!(fails(&[r#"train.rollout="${samples}""#]).contains("`4` is not a valid value of `rollout`"));
}

#[test]
fn mistakes_in_a_file_of_overrides_name_its_line() {
    let read = |text: &str| {
        let source = Source { name: "q.params".to_owned(), text: text.to_owned() };
        Override::from_file(&source).map_err(|error| error.to_string())
    };
    assert_eq!(read("samples = 8\n# a\ntool.stop = [\"}\",\n  \"b\"]\n").unwrap().len(), 2);
    for (text, mistake) in [
        ("a = 1\ns = a }\n", "q.params:2: unmatched `}` ("),
        ("train.steps = 3\ns = a }\n", "q.params:2: unmatched `}` ("),
        ("agent tool.max_tokens = 3\ns = a }\n", "q.params:2: unmatched `}` ("),
        ("a = 1\nli = [1, 2\n", "q.params:2: this `[` is never closed ("),
        ("s = a (b\nn = 4\n", "q.params:1: this `(` is never closed ("),
        ("s = {x}\n", "q.params:1: a value can't begin a block `{ … }` ("),
        ("s = say \"hi\n", "q.params:1: "),
    ] {
        let message = read(text).unwrap_err();
        assert!(message.starts_with(mistake) && !message.contains("has no value"), "{text}: {message}");
    }
    assert!(read("a = 1\nb\n").unwrap_err().starts_with("`q.params:2: b` has no value"));
}

#[test]
fn a_file_in_another_encoding_names_its_line() {
    let file = std::env::temp_dir().join(format!("latin-{}.mas", std::process::id()));
    std::fs::write(&file, b"workflow w\n# \xe4\n").unwrap();
    let read = pl_dsl::read_text(&file).map_err(|error| error.to_string());
    std::fs::remove_file(&file).unwrap();
    assert_eq!(read, Err("line 2 is not UTF-8: save the file as UTF-8".to_owned()));
}

/// What a branch is made of has other values where the branch is taken.
#[test]
fn branches_for_other_values_of_params_are_valid() {
    let text = include_str!("cases/design.mas").to_owned();
    for (setting, value) in [
        ("samples   = samples", "samples = if samples == 4 then 4 else samples / 3"),
        ("rollout   = tree", "rollout = if way == \"none\" then tree else way"),
        ("policy = coder;", "policy = if way == \"none\" then coder else way;"),
    ] {
        assert!(text.contains(setting), "{setting}");
        let text =
            text.replacen(setting, value, 1).replacen("plugin ", "param way: string = \"none\"\nplugin ", 1);
        let checked = check(&Source { name: "design.mas".to_owned(), text }, &[], &TestCatalog);
        let messages = render::short(&checked.diagnostics, &checked.sources);
        assert!(checked.workflow.is_some(), "{messages}");
    }
}

#[test]
fn an_override_needs_a_path_and_a_value() {
    assert!("train.steps".parse::<Override>().unwrap_err().to_string().contains("`NAME=VALUE`"));
    assert!("=3".parse::<Override>().is_err());
    let equals = "chat.template=a=b".parse::<Override>().unwrap();
    assert_eq!((equals.path.as_str(), equals.value.as_str()), ("chat.template", "a=b"));
}
