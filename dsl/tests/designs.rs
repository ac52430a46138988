//! Designs: what fits the palette resolves, and nothing reaches beyond it.

// clippy.toml excuses test functions, but not what they call.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::TestCatalog;
use pl_dsl::graph::{Graph, Node};
use pl_dsl::settings::PATTERNS;
use pl_dsl::workflow::{Palette, Plugin, Workflow};
use pl_dsl::{
    Catalog, CatalogError, DesignMistake, DiagnosticCode, Source, ValidParts, WorkflowSkeleton, check_design,
    design_graph, own_design, pattern, with_paths,
};
use pl_types::{Fact, FactKind, Item};
use proptest::prelude::*;

const SKELETON: &str = r#"workflow team
param samples: int = 4
plugin maths = "math.wasm"
model base = "smollm2-135m"
policy coder    { model = base; train = false }
policy reasoner { model = base; train = false }
policy secret   { model = base; train = false }
environment problems = maths.problems
reward score = maths.score
inference { slots = samples }
"#;

/// Counts the files that are asked for.
#[derive(Default)]
struct Counting(AtomicUsize);

impl Catalog for Counting {
    fn text(&self, path: &Path) -> Result<String, CatalogError> {
        self.0.fetch_add(1, Ordering::Relaxed);
        TestCatalog.text(path)
    }

    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, CatalogError> {
        TestCatalog.items(plugin)
    }
}

fn palette() -> Palette {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Palette {
        agents: names(&["std.chat", "maths.tool"]),
        policies: names(&["coder", "reasoner"]),
        max_agents: 3,
        max_visits: 3,
        max_tokens: 10_000,
    }
}

/// The same skeleton as a part of a whole workflow, whose other parts designs don't see.
const WHOLE: &str = r#"# A workflow with a designer.
workflow team
param samples: int = 4
plugin maths = "math.wasm"
model base = "smollm2-135m"
policy coder    { model = base; train = false }
policy reasoner { model = base; train = false }
policy secret   { model = base; train = false }
environment problems = maths.problems
environment others = maths.problems { tasks = "others.jsonl" }
reward score = maths.score
reward final = maths.final
inference { slots = samples }

# The team by hand.
agent tool = maths.tool { policy = coder }      # it counts
agent reason = maths.reasoner { policy = secret }

designer architect = std.designer {
  policy = secret
  palette { agents = [std.chat, maths.tool]; policies = [coder, reasoner]; max_agents = 3; max_visits = 3 }
}

scenario made { environment = problems; reward = score; designer = architect; turns { max = 1; start -> tool -> end } }
scenario more { environment = others; reward = final; turns { start -> reason -> end } }

mix { made = 0.5; more = 0.5 }

evaluate here  { scenario = made; limit = 5 }
evaluate there { scenario = more; limit = 5 }
evaluate swapped { scenario = made; roles { tool = secret } }
"#;

fn whole() -> (Source, Workflow) {
    let source = Source { name: "team.mas".to_owned(), text: WHOLE.to_owned() };
    let workflow = pl_dsl::check(&source, &[], &TestCatalog).workflow.unwrap();
    (source, workflow)
}

fn design(fragment: &str) -> Result<Workflow, Vec<DesignMistake>> {
    let skeleton =
        WorkflowSkeleton::from(Source { name: "skeleton.mas".to_owned(), text: SKELETON.to_owned() });
    let catalog = Counting::default();
    let checked = check_design(&skeleton, &palette(), fragment, &catalog);
    // Assembled from a whole workflow, it is the same.
    static OF_SCENARIO: LazyLock<WorkflowSkeleton> = LazyLock::new(|| {
        let (source, workflow) = whole();
        WorkflowSkeleton::new(&source, &workflow, 0, &[]).unwrap()
    });
    let assembled = check_design(&OF_SCENARIO, &palette(), fragment, &catalog);
    let team = |workflow: &Workflow| (workflow.agents.clone(), workflow.scenarios.clone());
    assert_eq!(assembled.as_ref().map(team).ok(), checked.as_ref().map(team).ok(), "{fragment}");
    assert_eq!(catalog.0.load(Ordering::Relaxed), 0, "a file was read for {fragment}");
    if let Ok(workflow) = &checked {
        let used = workflow.agents.iter().map(|agent| &workflow.policies[agent.policy].name);
        assert!(used.into_iter().all(|name| palette().policies.contains(name)), "{fragment}");
        assert!(workflow.agents.len() <= 3 && workflow.scenarios[0].turns.max <= 3, "{fragment}");
        assert!(workflow.agents.iter().all(|agent| ["chat", "tool"].contains(&agent.item.as_str())));
        assert_eq!((workflow.plugins.len(), workflow.models.len(), workflow.policies.len()), (2, 1, 3));
    }
    checked
}

/// Blocks without a mistake count, whatever is around them.
#[test]
fn parts_of_wrong_designs_may_be_sound() {
    let of = |fragment: &str| {
        let parts = ValidParts::of(fragment, &design(fragment).unwrap_err());
        (parts.agent, parts.turns)
    };
    let agent = "agent solve = std.chat { policy = coder; system = \"Solve.\" }\n";
    let turns = "turns {\n  max = 2\n  start -> solve -> end\n}\n";
    assert_eq!(of("Here is the team that solves it."), (false, false));
    assert_eq!(of(&format!("Here is the team:\n{agent}{turns}")), (true, true));
    assert_eq!(of(&format!("{agent}{turns}It solves the task.")), (true, true));
    // No turns reach it.
    assert_eq!(of(agent), (false, false));
    assert_eq!(of(turns), (false, false));
    assert_eq!(of(&agent.replace("coder", "secret")), (false, false));
    assert_eq!(of(&format!("{}{turns}", agent.replace("coder", "secret"))), (false, true));
    assert_eq!(of(&format!("{agent}{}", turns.replace("-> end", "-> stop"))), (true, false));
    assert_eq!(of(&format!("{agent}{}", turns.replace("}", ""))), (true, false));
    assert_eq!(of(&"x".repeat(70_000)), (false, false));
}

const DEBATE: &str = r#"agent solve = std.chat { policy = coder; temperature = 0.7; system = "Solve."; template = "{question}" }
agent check = maths.tool { policy = reasoner; max_tokens = 64 }
turns {
  max = 2
  start -> solve -> check
  check -> end when env.agreed or turn >= 2
  check -> solve
}
"#;

#[test]
fn a_design_of_the_palette_resolves() {
    let workflow = design(DEBATE).unwrap();
    assert_eq!(
        workflow.agents.iter().map(|agent| agent.name.as_str()).collect::<Vec<_>>(),
        ["solve", "check"]
    );
}

#[test]
fn mistakes_have_their_line_and_kind() {
    let mistakes = design(&DEBATE.replace("max_tokens = 64", "max_tokenz = 64")).unwrap_err();
    assert!(matches!(&mistakes[..], [DesignMistake::Checked { line: Some(2), .. }]), "{mistakes:?}");
    let mistakes = design(&DEBATE.replace("policy = coder", "policy = secret")).unwrap_err();
    assert_eq!(
        mistakes[0].to_string(),
        "line 1: the palette has no policy `secret`; use `coder`, `reasoner`"
    );
    let mistakes = design(&DEBATE.replace("max = 2", "max = 4")).unwrap_err();
    assert_eq!(mistakes, [DesignMistake::Visits { count: 4, max: 3 }]);
    // Without `max`, the default of the language holds.
    assert!(matches!(
        design(&DEBATE.replace("max = 2", "")).unwrap_err()[..],
        [DesignMistake::Visits { .. }]
    ));
    let more: String = (0..3).map(|n| format!("agent a{n} = maths.tool {{ policy = coder }}\n")).collect();
    let mistakes = design(&format!("{more}{DEBATE}")).unwrap_err();
    assert_eq!(mistakes, [DesignMistake::Agents { count: 5, max: 3 }]);
    assert!(matches!(design(&" ".repeat(100_000)).unwrap_err()[..], [DesignMistake::Size(_)]));
}

#[test]
fn the_file_of_a_design_has_what_it_uses() {
    let (source, workflow) = whole();
    let skeleton = WorkflowSkeleton::new(&source, &workflow, 0, &[]).unwrap();
    let own = own_design(&source, &workflow, 0).unwrap();
    assert_eq!(
        own,
        "agent tool = maths.tool { policy = coder }\n\nturns { max = 1; start -> tool -> end }\n"
    );
    let file = skeleton.file(&own, &|text| {
        let source = Source { name: "x.mas".to_owned(), text: text.to_owned() };
        let checked = pl_dsl::check(&source, &[], &TestCatalog);
        assert!(checked.workflow.is_some(), "{text}");
        let unused = checked.diagnostics.iter().filter(|one| one.code == DiagnosticCode::Unused);
        unused.map(|one| one.labels[0].span).collect()
    });
    insta::assert_snapshot!(file);
    assert!(
        WorkflowSkeleton::new(
            &Source { name: "x.mas".to_owned(), text: SKELETON.to_owned() },
            &workflow,
            0,
            &[]
        )
        .is_err()
    );
}

/// A workflow may train its designer alone, or some of the policies.
#[test]
fn a_design_may_use_the_policies_alone_that_are_not_trained() {
    let fragment = r#"agent first = std.chat { policy = coder; template = "{{ view }}" }
turns { max = 1; start -> first -> end }
"#;
    let designer = "
designer writer = std.designer { policy = secret; palette { agents = [std.chat]; policies = [coder] } }
scenario made { environment = problems; reward = score; designer = writer; turns { start -> first -> end } }
agent first = std.chat { policy = coder; template = \"{{ view }}\" }
";
    for trained in ["secret", "reasoner", "coder"] {
        let untrained = format!("policy {trained:<8} {{ model = base; train = false }}");
        assert!(SKELETON.contains(&untrained));
        let text = SKELETON.replace(&untrained, &format!("policy {trained} {{ model = base }}"))
            + "train { rollout = flat }\n";
        let skeleton = WorkflowSkeleton::from(Source { name: "skeleton.mas".to_owned(), text: text.clone() });
        let workflow = check_design(&skeleton, &palette(), fragment, &TestCatalog).unwrap();
        assert_eq!(workflow.train.is_some(), trained == "coder", "{trained}");
        // Nor is a hand-made team a mistake whose designer is trained.
        let whole = Source { name: "team.mas".to_owned(), text: text + designer };
        let checked = pl_dsl::check(&whole, &[], &TestCatalog);
        let nothing = checked.diagnostics.iter().any(|one| one.code == DiagnosticCode::NothingToTrain);
        assert_eq!(nothing, trained == "reasoner", "{:?}", checked.diagnostics);
    }
}

#[test]
fn overrides_of_what_is_left_out_are_left_out() {
    let text =
        WHOLE.replace("policy coder ", "policy tool {\n  model = base\n  train = false\n}\npolicy coder ");
    let source = Source { name: "team.mas".to_owned(), text };
    let workflow = pl_dsl::check(&source, &[], &TestCatalog).workflow.unwrap();
    let given = [
        "samples=5",
        "agent tool.temperature=0.5",
        "policy tool.train=false",
        "reason.max_tokens=9",
        "architect.designs=9",
        "mix.made=0.1",
        "there.limit=1",
        "here.limit=1",
        "others.level=2",
        "inference.slots=3",
        "base.dtype=f32",
    ];
    let overrides = given.map(|one| one.parse().unwrap());
    let skeleton = WorkflowSkeleton::new(&source, &workflow, 0, &overrides).unwrap();
    let left: Vec<&str> = skeleton.overrides().iter().map(|one| one.path.as_str()).collect();
    assert_eq!(left, ["samples", "policy tool.train", "here.limit", "inference.slots", "base.dtype"]);
}

/// A used or included file with an agent.
struct OtherFile;

impl Catalog for OtherFile {
    fn text(&self, _: &Path) -> Result<String, CatalogError> {
        let policy =
            SKELETON.lines().filter(|line| ["plugin", "model"].iter().any(|word| line.starts_with(word)));
        let agent =
            "policy spare { model = base; train = false }\nagent spare = maths.tool { policy = spare }";
        Ok(policy.chain([agent]).collect::<Vec<_>>().join("\n"))
    }

    fn items(&self, plugin: &Plugin) -> Result<Vec<Item>, CatalogError> {
        TestCatalog.items(plugin)
    }
}

#[test]
fn agents_of_other_files_are_none_of_a_designs() {
    let text = format!("{SKELETON}use \"lib.mas\" as lib\n");
    let skeleton = WorkflowSkeleton::from(Source { name: "skeleton.mas".to_owned(), text });
    let design = |turns: &str| {
        let text = format!("agent solve = maths.tool {{ policy = coder }}\nturns {{ {turns} }}\n");
        check_design(&skeleton, &palette(), &text, &OtherFile)
    };
    design("max = 1; start -> solve -> end").unwrap();
    let mistakes = design("max = 1; start -> solve -> lib.spare -> end").unwrap_err();
    assert_eq!(mistakes, [DesignMistake::Agent { line: 2, agent: "lib.spare".to_owned() }]);
    assert!(design("max = 1; start -> [solve, lib.spare] -> end").is_err());
    // Those of an included file would be in every design.
    let own = ["plugin maths", "model base"];
    let lines = WHOLE.lines().filter(|line| !own.iter().any(|word| line.starts_with(word)));
    let text = lines.map(|line| format!("{line}\n")).collect::<String>() + "include \"lib.mas\"\n";
    let source = Source {
        name: "team.mas".to_owned(),
        text: text.replace("start -> reason", "start -> spare -> reason"),
    };
    let workflow = pl_dsl::check(&source, &[], &OtherFile).workflow.unwrap();
    let error = WorkflowSkeleton::new(&source, &workflow, 0, &[]).unwrap_err();
    assert!(error.to_string().contains("agent `spare` is in a file that team.mas includes"), "{error}");
}

#[test]
fn paths_change_where_they_stand_for_files() {
    let text = "plugin maths = \"math.wasm\"\nagent a = maths.tool { system = file(\"a.txt\"); template = \"a.txt\" }\n\
                environment e = maths.problems { tasks = \"a.txt\" }\n";
    let moved = with_paths(text, &|path| (path == "a.txt").then(|| "../a.txt".to_owned()));
    let expected =
        text.replacen("\"a.txt\"", "\"../a.txt\"", 1).replace("tasks = \"a.txt\"", "tasks = \"../a.txt\"");
    assert_eq!(moved, expected);
}

/// Statements, settings, values and conditions that would reach beyond the palette.
#[test]
fn hostile_fragments_are_refused() {
    let statements = [
        "plugin other = \"other.wasm\"",
        "plugin maths = \"math.wasm\" { grant { http = [\"api.example.org\"] } }",
        "model other = \"/etc/passwd\"",
        "model other = \"hf:some/model\"",
        "policy mine { model = base }",
        "policy mine { model = base; server = \"http://10.0.0.1:8000\" }",
        "environment other = maths.problems",
        "environment other = maths.problems { tasks = \"/etc/passwd\" }",
        "reward easy = maths.final",
        "reward score = maths.score { team = 100 }",
        "corpus wiki = \"/etc/passwd\"",
        "server fleet = \"http://10.0.0.1:8000\"",
        "sandbox { backend = docker }",
        "inference { slots = 10000 }",
        "train { steps = 1000000 }",
        "evaluate test { every = 1 }",
        "mix { a = 1 }",
        "scenario s { environment = problems; reward = score }",
        "param samples: int = 9",
        "include \"/etc/passwd\"",
        "include \"team.mas\"",
        "use lib = \"lib.mas\"",
        "workflow other",
        "layout = L0",
        "designer d = std.designer { policy = coder }",
        "devices { rollout = [\"cpu:0\"] }",
        "cluster { nats = \"nats://host:4222\" }",
        "template expert(topic: string) = agent maths.tool { policy = coder }",
        "agent more = maths.reasoner { policy = coder }",
        "agent more = maths.problems { policy = coder }",
        "agent more = other.tool { policy = coder }",
        "agent more = std { policy = coder }",
        "agent more = \"math.wasm\" { policy = coder }",
        "agent more = expert(\"sums\")",
        "agent more = maths.tool { policy = coder; grant { http = [\"x\"] } }",
        "agent more = maths.tool { policy = coder; lora { rank = 8 } }",
        "turns { start -> end }",
        "} plugin other = \"other.wasm\" {",
        "{ team = 5 }",
        "\"\"\"",
        "\u{0}",
        "agent more = maths.tool { policy = coder",
    ];
    let settings = [
        "policy = secret",
        "policy = samples",
        "policy = env.agreed",
        "policy = \"coder\"",
        "policy = if true then secret else coder",
        "policy = coder { x = 1 }",
        "server = \"http://10.0.0.1\"",
        "grammar = \"start: \\\"a\\\"\"",
        "json_schema = file(\"/etc/passwd\")",
        "stop = [\"a\"]",
        "thinking = true",
        "tool_rounds = 1000",
        "long_prompt = left",
        "repetition_penalty = 2.0",
        "max_tokens = samples",
        "max_tokens = samples * 100",
        "max_tokens = max(1, 2)",
        "max_tokens = 1 + 1",
        "max_tokens = if true then 1 else 2",
        "max_tokens = 99999999999999999999",
        "temperature = -1",
        "system = file(\"/etc/passwd\")",
        "system = file(\"../secrets.txt\")",
        "system = \"${samples}\"",
        "system = \"${file(\"/etc/passwd\")}\"",
        "system = \"\"\"${samples}\"\"\"",
        "system = samples",
        "system = upper(\"a\")",
        "system = [\"a\"][0]",
        "system = [file(\"x\")]",
        "system = lib.text",
        "unknown = 1",
        "grant = 1",
        "path = \"/etc/passwd\"",
        "plugin = \"other.wasm\"",
    ];
    let turns = [
        "start -> nobody -> end",
        "max = samples",
        "max = 1000000",
        "max = file(\"x\")",
        "solve -> end when samples > 3",
        "solve -> end when file(\"/etc/passwd\") == \"\"",
        "solve -> end when upper(\"a\") == \"A\"",
        "solve -> end when \"${samples}\" == \"4\"",
        "solve -> end when env.missing",
        "solve -> end when turn + 1 > 3",
        "solve -> end when maths.tool",
        "solve -> end when reward.success",
        "solve -> end when reward.team > 0.5 and env.agreed",
        "lora { rank = 8 }",
        "environment = problems",
    ];
    let templates = DEBATE.replace("system = \"Solve.\"; ", "");
    let mut all: Vec<String> = Vec::new();
    all.extend(statements.iter().flat_map(|one| [format!("{one}\n{DEBATE}"), format!("{DEBATE}{one}\n")]));
    all.extend(settings.iter().map(|one| templates.replace("temperature = 0.7", one)));
    all.extend(turns.iter().map(|one| DEBATE.replace("max = 2", one)));
    assert!(all.len() >= 100, "{}", all.len());
    let accepted: Vec<&String> = all.iter().filter(|one| design(one).is_ok()).collect();
    assert!(accepted.is_empty(), "{accepted:#?}");
}

proptest! {
    /// Lines of designs and of whole workflows in any order, cut anywhere: no panic, and what passes keeps to the palette.
    #[test]
    fn nothing_reaches_beyond_the_palette(picks in prop::collection::vec((0usize..24, 0usize..80), 0..12)) {
        let lines: Vec<&str> = SKELETON.lines().chain(DEBATE.lines()).chain(["include \"x\"", "}", "{", "turns {"]).collect();
        let mut fragment = String::new();
        for (at, cut) in picks {
            let line = lines[at % lines.len()];
            fragment.push_str(if cut < 20 { line.get(..cut).unwrap_or(line) } else { line });
            fragment.push('\n');
        }
        let _ = design(&fragment);
        let _ = design(&format!("{DEBATE}{fragment}"));
    }
}

#[test]
fn the_graph_of_a_design_is_that_of_its_workflow() {
    let palette = Palette { max_agents: 8, ..palette() };
    let fact = Fact { name: "agreed".to_owned(), kind: FactKind::Boolean, doc: String::new() };
    let skeleton =
        WorkflowSkeleton::from(Source { name: "skeleton.mas".to_owned(), text: SKELETON.to_owned() });
    let mut workflow = None;
    for one in PATTERNS {
        let design = pattern(one.word, &palette, &["question"], std::slice::from_ref(&fact)).unwrap();
        let checked = check_design(&skeleton, &palette, &design, &TestCatalog).unwrap();
        let drawn = design_graph(&checked, 0, &design).unwrap();
        assert_eq!(drawn.max_visits, checked.scenarios[0].turns.max, "{}", one.word);
        assert_eq!(parts(&drawn), parts(&Graph::new(&checked, 0)), "{}", one.word);
        drawn.json().unwrap();
        workflow = Some(checked);
    }
    let workflow = workflow.unwrap();
    for wrong in ["", "turns { start -> ", "agent first = std.chat { policy = coder }"] {
        assert_eq!(design_graph(&workflow, 0, wrong), None, "{wrong}");
    }
    let many: String = (0..100).map(|number| format!("  a{number} -> a{}\n", number + 1)).collect();
    assert_eq!(design_graph(&workflow, 0, &format!("turns {{\n{many}}}")), None);
    let unknown = design_graph(&workflow, 0, "turns { start -> nobody -> end }").unwrap();
    unknown.json().unwrap();
}

/// Edges of a graph by the names of their ends, in the order in which those of each node are tried.
fn parts(graph: &Graph) -> BTreeMap<String, Vec<(String, Option<String>)>> {
    let name = |node: usize| match &graph.nodes[node] {
        Node::Start => "start".to_owned(),
        Node::End => "end".to_owned(),
        Node::Agents(agents) => {
            let mut names: Vec<String> = agents
                .iter()
                .map(|agent| format!("{} {} {}", agent.item.name, agent.item.path, agent.policy))
                .collect();
            names.sort_unstable();
            names.join(", ")
        }
    };
    let mut parts: BTreeMap<String, Vec<(String, Option<String>)>> = BTreeMap::new();
    for edge in &graph.edges {
        parts.entry(name(edge.from)).or_default().push((name(edge.to), edge.when.clone()));
    }
    parts
}
