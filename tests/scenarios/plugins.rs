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
    // The toolchain of the tests is not the author's.
    for name in ["CARGO", "RUSTC", "RUSTC_WRAPPER", "CARGO_TARGET_DIR"] {
        command.env_remove(name);
    }
    command
}

/// Whether the tools of a language are there: a project of it was built.
fn built(project: &Path) -> bool {
    let output = build(project).output().unwrap();
    let said = stderr(&output);
    if output.status.success() {
        let line = stdout(&output);
        assert!(line.contains(".wasm: ") && line.contains("MB, built in"), "{line}");
        return true;
    }
    let missing = said.contains("hint: ") && said.contains("--fetch");
    let needed = std::env::var_os("PL_HOST_NEEDS_TOOLCHAINS").is_some_and(|value| value == "1");
    assert!(missing && !needed, "{}: {said}", project.display());
    eprintln!("skipped: no {}", said.lines().next().unwrap_or_default().trim_start_matches("error: "));
    false
}

/// Every kind of project: it builds, says what it offers, keeps the contract's promises, and its workflow is right as it
/// stands. Its own tests pass in the language's own runner. What does not compile is shown at its place: `wrong` is the
/// file that is spoiled, and what is said of it. Returns the folder with the last project, whole again.
fn every_kind(
    language: &str,
    tests: impl Fn() -> Command,
    wrong: (&str, &str),
) -> Option<(TempDir, PathBuf)> {
    let folder = TempDir::new().unwrap();
    let project = folder.path().join("plugin_of_mine");
    for (kind, items) in KINDS {
        create_again(&project, language, kind);
        if !built(&project) {
            return None;
        }
        let component = project.join("plugin_of_mine.wasm");
        let described = stdout(&succeed(pl_host().args(["plugin", "describe"]).arg(&component)));
        for item in items {
            assert!(described.lines().any(|line| line == *item), "{kind} has no {item}: {described}");
        }
        succeed(pl_host().arg("check").arg(project.join("plugin_of_mine.mas")));
        succeed(pl_host().args(["plugin", "test"]).arg(&component));
        succeed(tests().current_dir(&project));
    }
    let (file, place) = (project.join(wrong.0), wrong.1);
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, ") nonsense (\n").unwrap();
    let output = build(&project).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(place), "{said}");
    assert!(said.contains(" does not compile") || said.contains(" does not make a plugin"), "{said}");
    std::fs::write(&file, whole).unwrap();
    Some((folder, project))
}

/// A new project in the place of the last one. What its tools have fetched and built stays, so that it is made once for
/// all kinds.
fn create_again(project: &Path, language: &str, kind: &str) {
    let parent = project.parent().unwrap();
    for kept in ["target", "node_modules"] {
        let _ = std::fs::rename(project.join(kept), parent.join(kept));
    }
    let _ = std::fs::remove_dir_all(project);
    create("plugin_of_mine", language, kind, parent);
    for kept in ["target", "node_modules"] {
        let _ = std::fs::rename(parent.join(kept), project.join(kept));
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
    let Some((_folder, project)) = every_kind("rust", tests, ("src/lib.rs", "src/lib.rs:1:1")) else {
        return;
    };
    // And an agent of one's own plays.
    create_again(&project, "rust", "agent");
    assert!(built(&project));
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
    every_kind("python", tests, ("plugin_of_mine.py", "plugin_of_mine.py\", line 1"));
}

#[test]
fn javascript_projects_of_every_kind() {
    let tests = || command(&["sh", "-c", "npm install --silent --no-audit --no-fund && npm test --silent"]);
    every_kind("js", tests, ("plugin_of_mine.js", "plugin_of_mine.js:1:"));
}

#[test]
fn c_projects_of_every_kind() {
    every_kind("c", || command(&["make", "--silent", "test"]), ("plugin_of_mine.c", "plugin_of_mine.c:1:"));
}

#[test]
fn missing_tools_are_named_with_what_to_install() {
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
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("hint: ") && said.contains(install), "{language}: {said}");
    }
}

#[test]
fn wrong_projects_are_refused_by_name() {
    let folder = TempDir::new().unwrap();
    let refused = |command: &mut Command, words: &[&str]| {
        let output = command.output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
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
    refused(&mut new("game"), &["game is there already", "--into"]);
    refused(&mut build(folder.path()), &["pl-plugin.toml", "plugin new"]);
    let file = folder.path().join("game/pl-plugin.toml");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"c\"", "\"ruby\"")).unwrap();
    refused(&mut build(&folder.path().join("game")), &["pl-plugin.toml", "ruby", "line 3"]);
    std::fs::write(&file, text.replace("game.c", "gone.c")).unwrap();
    refused(&mut build(&folder.path().join("game")), &["pl-plugin.toml", "gone.c"]);
}
