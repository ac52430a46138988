//! Plugin projects from `plugin new` to a workflow that uses them, in every language and of every kind.
//!
//! `cargo xtask toolchains` fetches what they are built with. A language without its tools is skipped, unless
//! `PL_HOST_NEEDS_TOOLCHAINS` is 1.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::support::{pl_host, stderr, stdout, succeed};

/// Kinds, and the items of each.
const KINDS: [(&str, &[&str]); 4] = [
    ("agent", &["agent solver"]),
    ("environment", &["environment sums"]),
    ("reward", &["reward score"]),
    ("domain", &["environment game", "agent player", "reward found"]),
];

fn create(name: &str, language: &str, kind: &str, parent: &Path) -> PathBuf {
    let mut new = pl_host();
    new.args(["plugin", "new", name, "--lang", language, "--kind", kind, "--into"]).arg(parent);
    succeed(&mut new);
    parent.join(name)
}

fn build(project: &Path) -> Command {
    let mut command = pl_host();
    command.args(["plugin", "build"]).arg(project);
    // The tests' own toolchain settings must not reach the project's.
    for name in ["CARGO", "RUSTC", "RUSTC_WRAPPER", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
}

/// Builds a project. Returns false if the tools of its language are missing.
fn try_build(project: &Path) -> bool {
    let output = build(project).output().unwrap();
    let message = stderr(&output);
    if output.status.success() {
        let line = stdout(&output);
        assert!(line.contains(".wasm: ") && line.contains("MB, built in"), "{line}");
        return true;
    }
    let missing = message.contains("hint: ") && message.contains("--fetch");
    assert!(missing, "{}: {message}", project.display());
    pl_testing::skip_or_fail(pl_testing::Requirement::Toolchains, message.lines().next().unwrap_or_default());
    false
}

/// Kinds that are built in a language whose builds take half a minute: the one with an item of each kind. The others'
/// own tests run there too.
const DOMAIN: &[&str] = &["domain"];

/// Creates a project of every kind, and runs its own tests in the language's own runner. Builds those of the kinds
/// `built`, and checks the component's description, the workflow, and the promises of the contract. Then breaks the
/// file `wrong.0`: the build must fail with `wrong.1` in its message. Returns the folder with the last project, repaired.
/// Returns `None` if the tools of the language are missing.
fn every_kind(
    language: &str,
    built: &[&str],
    tests: impl Fn() -> Command,
    wrong: (&str, &str),
) -> Option<(TempDir, PathBuf)> {
    let folder = TempDir::new().unwrap();
    let project = folder.path().join("plugin_of_mine");
    // The last kind is built in every language: a missing tool ends this before the others' tests need it.
    for (kind, items) in KINDS.into_iter().rev() {
        recreate(&project, language, kind);
        if built.contains(&kind) {
            if !try_build(&project) {
                return None;
            }
            check_component(&project, kind, items);
        }
        succeed(tests().current_dir(&project));
    }
    let (file, place) = (project.join(wrong.0), wrong.1);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, ") nonsense (\n").unwrap();
    let output = build(&project).output().unwrap();
    let message = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains(place), "{message}");
    assert!(
        message.contains(" does not compile") || message.contains(" does not make a plugin"),
        "{message}"
    );
    std::fs::write(&file, whole).unwrap();
    Some((folder, project))
}

fn check_component(project: &Path, kind: &str, items: &[&str]) {
    let component = project.join("plugin_of_mine.wasm");
    let described = stdout(&succeed(pl_host().args(["plugin", "describe"]).arg(&component)));
    for item in items {
        assert!(described.lines().any(|line| line == *item), "{kind} has no {item}: {described}");
    }
    succeed(pl_host().arg("check").arg(project.join("plugin_of_mine.mas")));
    succeed(pl_host().args(["plugin", "test"]).arg(&component));
}

/// Replaces the project by a new one. Downloads, dependencies and the SDK, which is that of all kinds, stay, so that they are
/// made once.
fn recreate(project: &Path, language: &str, kind: &str) {
    const KEPT: [&str; 3] = ["target", "node_modules", "sdk"];
    let parent = project.parent().unwrap();
    for kept in KEPT {
        let _ = std::fs::rename(project.join(kept), parent.join(kept));
    }
    let _ = std::fs::remove_dir_all(project);
    create("plugin_of_mine", language, kind, parent);
    assert!(project.join("sdk").is_dir(), "{kind}");
    for kept in KEPT.into_iter().filter(|kept| parent.join(kept).is_dir()) {
        let _ = std::fs::remove_dir_all(project.join(kept));
        std::fs::rename(parent.join(kept), project.join(kept)).unwrap();
    }
}

fn command(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    command
}

#[test]
fn rust_projects_of_every_kind() {
    let tests = || command(&["cargo", "test", "--quiet"]);
    let Some((_folder, project)) =
        every_kind("rust", &KINDS.map(|(kind, _)| kind), tests, ("src/lib.rs", "src/lib.rs:1:1"))
    else {
        return;
    };
    // The new agent plays an episode.
    recreate(&project, "rust", "agent");
    assert!(try_build(&project));
    let mut play = pl_host();
    play.arg("play").arg(project.join("plugin_of_mine.mas"));
    let output = succeed(play.args(["--device", "cpu", "--task", "What is 2 + 3?"]));
    assert!(stdout(&output).contains("What is 2 + 3?"), "{}", stdout(&output));
}

#[test]
fn python_projects_of_every_kind() {
    let tests = || {
        let mut python = command(&["python3", "-m", "unittest", "discover", "-s", "tests"]);
        python.env("PYTHONPATH", "sdk:.");
        python
    };
    every_kind("python", DOMAIN, tests, ("plugin_of_mine.py", "plugin_of_mine.py\", line 1"));
}

/// A component has no streams: what would be written to them is discarded, also by what kept a stream at import.
#[test]
fn a_python_plugin_may_print() {
    let folder = TempDir::new().unwrap();
    let project = create("plugin_of_mine", "python", "domain", folder.path());
    let file = project.join("plugin_of_mine.py");
    let whole = std::fs::read_to_string(&file).unwrap();
    let prints = "    def prompt(settings, view, turn):\n        print('printed', file=KEPT, flush=True)\n        \
                  print(traceback.format_stack(), file=sys.stderr)\n        warnings.warn('warned')\n";
    let printing = whole.replace("    def prompt(settings, view, turn):\n", prints);
    assert_ne!(printing, whole);
    std::fs::write(&file, format!("import sys, traceback, warnings\n\nKEPT = sys.stdout\n{printing}"))
        .unwrap();
    if try_build(&project) {
        succeed(pl_host().args(["plugin", "test"]).arg(project.join("plugin_of_mine.wasm")));
    }
}

#[test]
fn javascript_projects_of_every_kind() {
    let tests = || command(&["sh", "-c", "npm install --silent --no-audit --no-fund && npm test --silent"]);
    every_kind("js", DOMAIN, tests, ("plugin_of_mine.js", "plugin_of_mine.js:1:"));
}

#[test]
fn c_projects_of_every_kind() {
    every_kind(
        "c",
        &KINDS.map(|(kind, _)| kind),
        || command(&["make", "--silent", "test"]),
        ("plugin_of_mine.c", "plugin_of_mine.c:1:"),
    );
}

#[test]
fn missing_tools_are_named_with_instructions() {
    let folder = TempDir::new().unwrap();
    let wanted = [
        ("rust", "https://rustup.rs"),
        ("python", "pip install componentize-py=="),
        ("js", "apt-get install nodejs"),
        ("c", "pip install ziglang"),
    ];
    for (language, install) in wanted {
        let project = create(&format!("{language}_agent"), language, "agent", folder.path());
        let mut command = build(&project);
        command.env("PATH", folder.path()).env("PL_HOST_CACHE", folder.path()).env_remove("VIRTUAL_ENV");
        let output = command.output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert!(message.contains("hint: ") && message.contains(install), "{language}: {message}");
    }
}

#[test]
fn invalid_projects_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let refused = |command: &mut Command, words: &[&str]| {
        let output = command.output().unwrap();
        let message = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        for word in words {
            assert!(message.contains(word), "{word}: {message}");
        }
    };
    let new = |name: &str| {
        let mut command = pl_host();
        command.args(["plugin", "new", name, "--lang", "c", "--into"]).arg(folder.path());
        command
    };
    refused(&mut new("My-Game"), &["My-Game", "lower-case"]);
    refused(&mut new("std"), &["std", "choose another"]);
    succeed(&mut new("game"));
    refused(&mut new("game"), &["game exists already", "--into"]);
    refused(&mut build(folder.path()), &["pl-plugin.toml", "plugin new"]);
    let file = folder.path().join("game/pl-plugin.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"c\"", "\"ruby\"")).unwrap();
    refused(&mut build(&folder.path().join("game")), &["pl-plugin.toml", "ruby", "line 3"]);
    std::fs::write(&file, text.replace("game.c", "gone.c")).unwrap();
    refused(&mut build(&folder.path().join("game")), &["pl-plugin.toml", "gone.c"]);
}
