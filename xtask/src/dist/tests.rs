//! A wheel is installed into an empty environment and runs there.

use std::os::unix::fs::symlink;
use std::process::Output;

use pl_testing::{Requirement, skip_or_fail};

use super::*;
use crate::workspace_root;

/// An environment of Python with the wheel alone, and a variable-free way to run what is in it.
struct Environment {
    folder: tempfile::TempDir,
}

impl Environment {
    /// Creates the environment. Returns `None` and skips the test if this machine's Python can't make one.
    fn create() -> Option<Environment> {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new("python3").args(["-m", "venv"]).arg(folder.path().join("venv")).output();
        if !made.is_ok_and(|made| made.status.success()) {
            skip_or_fail(Requirement::Venv, "`python3 -m venv` makes no environment");
            return None;
        }
        Some(Environment { folder })
    }

    fn packages(&self) -> PathBuf {
        let lib = self.folder.path().join("venv/lib");
        let python = fs::read_dir(lib).unwrap().next().unwrap().unwrap().path();
        python.join("site-packages")
    }

    fn run(&self, program: &str, arguments: &[&str], variables: &[(&str, &Path)]) -> Output {
        let mut command = Command::new(self.folder.path().join("venv/bin").join(program));
        command.args(arguments).env_clear().current_dir(self.folder.path()).envs(variables.iter().copied());
        for kept in ["PATH", "HOME", "PL_HOST_CACHE"] {
            command.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        command.output().unwrap()
    }
}

fn text(output: &Output) -> String {
    let parts = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    parts.concat()
}

#[test]
fn an_installed_wheel_runs_with_the_libtorch_of_the_package_torch() {
    let root = workspace_root().unwrap();
    let program = root.join("target/release/pl-host");
    assert!(program.is_file(), "{} is missing: run `cargo xtask test`", program.display());
    let Some(environment) = Environment::create() else { return };
    let package = package(&root, &program).unwrap();
    let (shared, licences) = (shared(&program).unwrap(), licences(&root).unwrap());
    let content = python(&root, &program, &package).unwrap();
    let wheel = wheel::write(environment.folder.path(), &content, &shared, &licences).unwrap().path;
    assert!(wheel.metadata().unwrap().len() <= LARGEST, "{} is too large", wheel.display());
    let wheel = wheel.to_str().unwrap();
    let installed =
        environment.run("python3", &["-m", "pip", "install", "--no-deps", "--no-index", wheel], &[]);
    assert!(installed.status.success(), "{}", text(&installed));

    let without = environment.run("pl-host", &["--version"], &[]);
    assert!(
        !without.status.success() && text(&without).contains("pip install 'torch==2.11.*'"),
        "{}",
        text(&without)
    );

    // What the checkout is linked to stands for the packages that pip would fetch, in another folder of packages …
    let elsewhere = environment.folder.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let libtorch = root.join(".libtorch").canonicalize().unwrap();
    let link = |folder: &Path| {
        ["torch", "nvidia"]
            .into_iter()
            .for_each(|name| symlink(libtorch.join(name), folder.join(name)).unwrap());
    };
    link(&elsewhere);
    let version = environment.run("pl-host", &["--version"], &[("PYTHONPATH", &elsewhere)]);
    assert_eq!(text(&version), format!("pl-host {VERSION}\n"));
    // … and in the same one.
    link(&environment.packages());
    let version = environment.run("python3", &["-m", "pl_host", "--version"], &[]);
    assert_eq!(text(&version), format!("pl-host {VERSION}\n"));

    // The plugins came with it.
    let math = root.join("examples/math.mas");
    let checked = environment.run("pl-host", &["check", math.to_str().unwrap()], &[]);
    assert!(checked.status.success(), "{}", text(&checked));
    assert!(environment.folder.path().join("venv/share/man/man1/pl-host.1").is_file());
    // It doesn't look into the checkout. (Messages of libtorch's headers still name their files there.)
    let (packed, checkout) = (&package[0].bytes, b"/.libtorch/torch/lib");
    assert!(
        !packed.windows(checkout.len()).any(|part| part == checkout),
        "the path of the checkout's libtorch is left"
    );
}

#[test]
fn a_package_has_the_domains_and_no_guests_of_tests() {
    let names: Vec<String> =
        guests::published(Path::new("plugins")).map(|path| path.display().to_string()).collect();
    assert_eq!(
        names,
        ["plugins/math.wasm", "plugins/code.wasm", "plugins/planning.wasm", "plugins/search.wasm"]
    );
}

#[test]
fn only_programs_are_changed() {
    let mut text = b"#!/bin/sh\n".to_vec();
    assert!(elf::set_runpath(&mut text, LIBTORCH).unwrap_err().to_string().contains("not a program"));
    let mut cut = b"\x7fELF\x02\x01".to_vec();
    assert!(elf::set_runpath(&mut cut, LIBTORCH).unwrap_err().to_string().contains("cut off"));
}
