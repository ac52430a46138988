//! The tutorial: every command of `docs/tutorial.md` is run, in order, and the page shows what it prints.
//!
//! A block ```` ```console ```` has commands, each after `$ `, with their output below. Numbers may differ: times do, and
//! results differ between processors. A block ```` ```console varies ```` shows what a model wrote or what a machine has, and is not compared.
//! `PL_HOST_UPDATE_TUTORIAL=1` writes the present outputs into the page.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use pl_testing::{Requirement, skip_or_fail};

use crate::support::repository;

const PAGE: &str = "docs/tutorial.md";
const FENCE: &str = "```";

/// A line of the page outside of the checked blocks, or a command with what it prints.
enum Part {
    Text(String),
    Command { line: String, output: Vec<String>, compared: bool },
}

#[test]
fn every_command_of_the_tutorial_does_what_the_page_shows() {
    if !model().is_file() {
        return skip_or_fail(Requirement::Model, "the model SmolLM2 is not in the cache");
    }
    if !Command::new("curl").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return skip_or_fail(Requirement::Curl, "curl is not on the PATH");
    }
    let page = std::fs::read_to_string(repository().join(PAGE)).unwrap();
    let mut shell = Shell::start();
    let (mut now, mut differences) = (String::new(), Vec::new());
    for part in parse(&page) {
        match part {
            Part::Text(line) => now.push_str(&format!("{line}\n")),
            Part::Command { line, output, compared } => {
                let printed = shell.run(&line);
                if compared && !same(&output, &printed) {
                    differences.push(format!(
                        "$ {line}\nshown:\n{}\nprinted:\n{}",
                        output.join("\n"),
                        printed.join("\n")
                    ));
                }
                now.push_str(&format!("$ {line}\n"));
                printed.iter().for_each(|line| now.push_str(&format!("{line}\n")));
            }
        }
    }
    if std::env::var_os("PL_HOST_UPDATE_TUTORIAL").is_some_and(|value| value == "1") {
        return std::fs::write(repository().join(PAGE), now).unwrap();
    }
    assert!(
        differences.is_empty(),
        "{PAGE} shows other outputs (PL_HOST_UPDATE_TUTORIAL=1 writes them anew):\n{}",
        differences.join("\n\n")
    );
}

/// Returns the folder of models and compiled plugins.
fn cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/pl-host");
    std::env::var_os("PL_HOST_CACHE").map_or_else(home, PathBuf::from)
}

fn model() -> PathBuf {
    cache().join("models/smollm2-135m/model.gguf")
}

fn parse(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut block = None;
    for line in page.lines() {
        if line.starts_with(FENCE) {
            block = match line {
                "```console" => Some(true),
                "```console varies" => Some(false),
                _ => None,
            };
            parts.push(Part::Text(line.to_owned()));
            continue;
        }
        match (block, line.strip_prefix("$ "), parts.last_mut()) {
            (Some(compared), Some(command), _) => {
                parts.push(Part::Command { line: command.to_owned(), output: Vec::new(), compared });
            }
            (Some(_), None, Some(Part::Command { output, .. })) => output.push(line.to_owned()),
            _ => parts.push(Part::Text(line.to_owned())),
        }
    }
    parts
}

/// Returns true if two outputs are the same apart from numbers.
fn same(shown: &[String], printed: &[String]) -> bool {
    let plain = |lines: &[String]| lines.iter().map(|line| without_numbers(line)).collect::<Vec<_>>();
    plain(shown) == plain(printed)
}

/// Replaces each number by `#`, and each run of spaces, which aligns numbers, by one.
fn without_numbers(line: &str) -> String {
    let mut plain = String::new();
    for character in line.trim_end().chars() {
        match character {
            '0'..='9' | '.' if plain.ends_with('#') => {}
            '0'..='9' => plain.push('#'),
            ' ' if plain.ends_with(' ') => {}
            other => plain.push(other),
        }
    }
    plain
}

/// A folder in which the commands run one after the other, with the servers that they started.
struct Shell {
    _home: tempfile::TempDir,
    folder: PathBuf,
    servers: Vec<Child>,
}

impl Shell {
    fn start() -> Shell {
        let home = tempfile::tempdir().unwrap();
        Shell { folder: home.path().to_owned(), _home: home, servers: Vec::new() }
    }

    fn run(&mut self, line: &str) -> Vec<String> {
        if let Some(folder) = line.strip_prefix("cd ") {
            self.folder.push(folder);
            assert!(self.folder.is_dir(), "{line}");
            return Vec::new();
        }
        if let Some(server) = line.strip_suffix(" &") {
            return vec![self.start_server(server)];
        }
        let output = self.command(line).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "$ {line}\n{printed}");
        printed.lines().map(|line| self.without_folder(line)).collect()
    }

    /// Starts a server and returns its first message, with which it is ready.
    fn start_server(&mut self, line: &str) -> String {
        let mut server = self.command(&format!("exec {line}")).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        let mut output = BufReader::new(server.stdout.take().unwrap());
        output.read_line(&mut first).unwrap();
        // Its further messages must not block it.
        std::thread::spawn(move || output.lines().for_each(drop));
        self.servers.push(server);
        self.without_folder(first.trim_end())
    }

    /// Returns a command whose stdout has its messages too, as on a terminal.
    fn command(&self, line: &str) -> Command {
        let programs = repository().join("target/release");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("exec 2>&1; {line}")])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("OMP_NUM_THREADS", "2")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null());
        command
    }

    /// Returns a line without the folders of this machine.
    fn without_folder(&self, line: &str) -> String {
        let folder = self.folder.canonicalize().unwrap();
        let line = line.replace(&format!("{}/", folder.display()), "");
        let line = line.replace(&cache().display().to_string(), "~/.cache/pl-host");
        line.replace(&repository().join("target/release").display().to_string(), "…").trim_end().to_owned()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for server in &mut self.servers {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

#[test]
fn the_folder_of_a_page_is_parsed_into_commands() {
    let parts =
        parse("a\n```console\n$ one\n1\n2\n$ two\n```\n$ no command\n```console varies\n$ three\nx\n```\n");
    let commands: Vec<(&str, usize, bool)> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Command { line, output, compared } => Some((line.as_str(), output.len(), *compared)),
            Part::Text(_) => None,
        })
        .collect();
    assert_eq!(commands, [("one", 2, true), ("two", 0, true), ("three", 1, false)]);
}

#[test]
fn numbers_are_not_compared() {
    let same = |a: &str, b: &str| without_numbers(a) == without_numbers(b);
    assert!(same("step 1/2: 9 %, 12.5 s", "step  1/2: 100 %,   1.25 s"));
    assert!(!same("step 1 failed", "step 1 finished"));
}

#[test]
fn the_tutorial_takes_ten_minutes_to_read() {
    let page = std::fs::read_to_string(repository().join(PAGE)).unwrap();
    let words = |part: Part| match part {
        Part::Text(line) => line.split_whitespace().count(),
        // Outputs are looked over.
        Part::Command { line, output, .. } => line.split_whitespace().count() + output.len(),
    };
    // 150 words a minute.
    assert!(parse(&page).into_iter().map(words).sum::<usize>() < 1500);
}
