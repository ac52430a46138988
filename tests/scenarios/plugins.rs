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

fn create(language: &str, kind: &str, parent: &Path) -> PathBuf {
    let name = format!("{language}_{kind}");
    let mut new = pl_host();
    new.args(["plugin", "new", &name, "--lang", language, "--kind", kind, "--into"]).arg(parent);
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
/// stands. Its own tests pass in the language's own runner.
fn every_kind(language: &str, tests: impl Fn(&Path) -> Command) {
    let folder = TempDir::new().unwrap();
    for (kind, items) in KINDS {
        let project = create(language, kind, folder.path());
        if !built(&project) {
            return;
        }
        let name = format!("{language}_{kind}");
        let component = project.join(format!("{name}.wasm"));
        let described = stdout(&succeed(pl_host().args(["plugin", "describe"]).arg(component)));
        for item in items {
            assert!(described.lines().any(|line| line == *item), "{name} has no {item}: {described}");
        }
        succeed(pl_host().arg("check").arg(project.join(format!("{name}.mas"))));
        succeed(tests(&project).current_dir(&project));
    }
}

fn command(line: &[&str]) -> Command {
    let mut command = Command::new(line[0]);
    command.args(&line[1..]);
    command
}

#[test]
fn rust_projects_of_every_kind() {
    let target = TempDir::new().unwrap();
    every_kind("rust", |_| {
        let mut cargo = command(&["cargo", "test", "--quiet", "--target-dir"]);
        cargo.arg(target.path());
        cargo
    });
}

#[test]
fn python_projects_of_every_kind() {
    every_kind("python", |project| {
        let mut python = command(&["python3", "-m", "unittest", "discover", "-s", "tests"]);
        python.env("PYTHONPATH", std::env::join_paths([project.join("sdk"), project.to_owned()]).unwrap());
        python
    });
}

#[test]
fn javascript_projects_of_every_kind() {
    every_kind("js", |_| {
        command(&["sh", "-c", "npm install --silent --no-audit --no-fund && npm test --silent"])
    });
}

#[test]
fn c_projects_of_every_kind() {
    every_kind("c", |_| command(&["make", "--silent", "test"]));
}

#[test]
fn an_agent_of_ones_own_plays() {
    let folder = TempDir::new().unwrap();
    let project = create("rust", "agent", folder.path());
    if !built(&project) {
        return;
    }
    let output = succeed(pl_host().arg("play").arg(project.join("rust_agent.mas")).args([
        "--device",
        "cpu",
        "--task",
        "What is 2 + 3?",
    ]));
    assert!(stdout(&output).contains("What is 2 + 3?"), "{}", stdout(&output));
}

#[test]
fn what_does_not_compile_is_shown_with_its_file_and_line() {
    let folder = TempDir::new().unwrap();
    let files = [
        ("rust", "src/lib.rs", "src/lib.rs:1:1"),
        ("python", "python_reward.py", "python_reward.py\", line 1"),
        ("js", "js_reward.js", "js_reward.js:1:"),
        ("c", "c_reward.c", "c_reward.c:1:"),
    ];
    for (language, file, place) in files {
        let project = create(language, "reward", folder.path());
        if !built(&project) {
            continue;
        }
        std::fs::write(project.join(file), ") nonsense (\n").unwrap();
        let output = build(&project).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(place), "{language}: {said}");
        assert!(said.contains(" does not compile") || said.contains(" does not make a plugin"), "{said}");
    }
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
        let project = create(language, "agent", folder.path());
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
