//! The tutorial: every command of `docs/tutorial.md` is run, in order, and the page shows what it prints.
//!
//! A block ```` ```console ```` has commands, each after `$ `, with their output below. Numbers may differ: times do, and
//! results differ between processors. A block ```` ```console varies ```` shows what a model wrote or what a machine has, and is not compared.
//! A comment `<!-- picture FILE: ADDRESS ELEMENT -->` stands for a page of the viewer that a command before it has started,
//! and an element of that page. `PL_HOST_UPDATE_TUTORIAL=1` writes the present outputs into the page, and the pictures.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use pl_testing::chromium::Page;
use pl_testing::{Requirement, cache, skip_or_fail};

use crate::support::repository;

const PAGE: &str = "docs/tutorial.md";
const FENCE: &str = "```";

/// Size of a picture in pixels.
const PICTURE: (u32, u32) = (1000, 640);

/// A line of the page outside of the checked blocks, a command with what it prints, or a picture with its own line.
enum Part {
    Text(String),
    Command { line: String, output: Vec<String>, compared: bool },
    Picture { line: String, file: String, address: String, element: String },
}

#[test]
fn every_command_of_the_tutorial_does_what_the_page_shows() {
    if pl_testing::smollm().is_none() {
        return;
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
            Part::Picture { line, file, address, element } => {
                now.push_str(&format!("{line}\n"));
                assert!(page.contains(&format!("]({file})")), "{PAGE} doesn't show {file}");
                shell.take_picture(&file, &address, &element);
            }
        }
    }
    if updates() {
        return std::fs::write(repository().join(PAGE), now).unwrap();
    }
    assert!(
        differences.is_empty(),
        "{PAGE} shows other outputs (PL_HOST_UPDATE_TUTORIAL=1 writes them anew):\n{}",
        differences.join("\n\n")
    );
}

/// Returns true if the page and its pictures are written anew.
fn updates() -> bool {
    std::env::var_os("PL_HOST_UPDATE_TUTORIAL").is_some_and(|value| value == "1")
}

/// Parses the line of a picture.
fn picture(line: &str) -> Option<Part> {
    let (file, rest) = line.strip_prefix("<!-- picture ")?.strip_suffix(" -->")?.split_once(": ")?;
    let (address, element) = rest.split_once(' ')?;
    let [line, file, address, element] = [line, file, address, element].map(str::to_owned);
    Some(Part::Picture { line, file, address, element })
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
            _ => parts.push(picture(line).unwrap_or_else(|| Part::Text(line.to_owned()))),
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
    /// Address of the viewer that was started last, with its token.
    viewer: Option<String>,
}

impl Shell {
    fn start() -> Shell {
        let home = tempfile::tempdir().unwrap();
        Shell { folder: home.path().to_owned(), _home: home, servers: Vec::new(), viewer: None }
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
        if let Some(address) = first.split_whitespace().find(|word| word.contains("/?token=")) {
            self.viewer = Some(address.to_owned());
        }
        self.without_folder(first.trim_end())
    }

    /// Opens a page of the viewer, and writes its picture if the pictures are updated.
    fn take_picture(&self, file: &str, address: &str, element: &str) {
        let viewer = self.viewer.as_ref().unwrap();
        let (width, height) = PICTURE;
        let Some(mut page) = Page::open(&format!("{viewer}{address}"), width, height) else { return };
        page.wait_for(&format!("document.querySelector('{element}')"));
        if updates() {
            let path = repository().join("docs").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, page.picture(height.into())).unwrap();
        }
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

    /// Returns a line without the folders of this machine and without the token of a viewer.
    fn without_folder(&self, line: &str) -> String {
        let folder = self.folder.canonicalize().unwrap();
        let line = line.replace(&format!("{}/", folder.display()), "");
        let line = line.replace(&cache().display().to_string(), "~/.cache/pl-host");
        let line = line.replace(&repository().join("target/release").display().to_string(), "…");
        let Some((before, token)) = line.split_once("/?token=") else { return line.trim_end().to_owned() };
        let after = token.trim_start_matches(|character: char| character.is_ascii_hexdigit());
        format!("{before}/?token=…{after}").trim_end().to_owned()
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
            Part::Text(_) | Part::Picture { .. } => None,
        })
        .collect();
    assert_eq!(commands, [("one", 2, true), ("two", 0, true), ("three", 1, false)]);
}

#[test]
fn a_picture_has_its_file_its_address_and_an_element() {
    let parts = parse("<!-- picture tutorial/tree.png: #episode?run=a&view=tree .candidate -->\n");
    let [Part::Picture { file, address, element, .. }] = &parts[..] else { panic!("no picture") };
    assert_eq!(
        (&**file, &**address, &**element),
        ("tutorial/tree.png", "#episode?run=a&view=tree", ".candidate")
    );
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
        Part::Picture { .. } => 0,
        // Outputs are looked over.
        Part::Command { line, output, .. } => line.split_whitespace().count() + output.len(),
    };
    // 150 words a minute.
    assert!(parse(&page).into_iter().map(words).sum::<usize>() < 1500);
}
