//! `cargo xtask attack fuzz`: the targets of the fuzzers, in rounds whose counts add up over calls and, in the repository, over
//! machines.
//!
//! A target is a test, whose package and dependencies are built so that they count which code an input reaches. libFuzzer then keeps what
//! reaches new code, in a corpus per target. The programs are copied into the cache folder, so that other builds don't disturb a long
//! campaign. `PL_HOST_FUZZ_ARGUMENTS=FILE PROGRAM TEST --exact --nocapture` runs an input that was found again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use pl_toolchain::cache;
use serde_json::{Value, json};

use crate::cargo::cargo;
use crate::page::write_table;
use crate::setup;

/// Longest round of a target: all of them advance together.
const ROUND: Duration = Duration::from_secs(5 * 60);

/// Time between two looks at the CPU time of a target.
const LOOK: Duration = Duration::from_millis(200);

/// Ticks of a second in `/proc/PID/stat`, on all architectures of Linux that people use.
const TICKS: f64 = 100.0;

/// Lines of the rounds, one in JSON each: those of this machine, in the cache folder.
const ROUNDS: &str = "coverage.jsonl";

/// Lines of the rounds on all machines so far, in the repository.
const RECORD: &str = "docs/fuzzing.jsonl";

/// Flags of the compiler for libFuzzer, as cargo-fuzz passes them, without a sanitizer, which needs another compiler. Integer overflow
/// panics. Programs that tests start are linked without libFuzzer; no target starts one.
const COVERAGE: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Coverflow-checks=on --cfg fuzzing \
     -Clink-arg=-Wl,--warn-unresolved-symbols";

/// Platform that the programs are built for, so that build scripts and macros have no coverage.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";

/// A reader of what others wrote: a test of a binary, in the folder of its package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Target {
    name: &'static str,
    binary: &'static str,
    folder: &'static str,
    test: &'static str,
}

const fn test(name: &'static str, binary: &'static str, folder: &'static str, test: &'static str) -> Target {
    Target { name, binary, folder, test }
}

const TARGETS: [Target; 15] = [
    test("GGUF", "pl-model::it", "host/model", "fuzz::gguf"),
    test("safetensors headers", "pl-model::it", "host/model", "fuzz::safetensors_headers"),
    test("config.json", "pl-model::it", "host/model", "fuzz::config_json"),
    test("tokenizer.json", "pl-model::it", "host/model", "fuzz::tokenizer_json"),
    test("workflow.json", "pl-run::it", "host/run", "fuzz::workflow_json"),
    test("trace lines", "pl-run::it", "host/run", "fuzz::trace_lines"),
    test("trace files", "pl-run::it", "host/run", "fuzz::trace_files"),
    test("Parquet files of tasks", "pl-data::fuzz", "host/data", "parquet"),
    test("tables of transitions", "pl-record::fuzz", "host/record", "transitions"),
    test("supervisor's messages", "pl-supervisor::fuzz", "host/sandbox/supervisor", "messages"),
    test("supervisor's tasks", "pl-supervisor::fuzz", "host/sandbox/supervisor", "tasks"),
    test("verdicts of worker processes", "pl-sandbox::it", "host/sandbox", "fuzz::verdicts"),
    test("language: check", "pl-dsl::fuzz", "dsl", "checks"),
    test("language: format", "pl-dsl::fuzz", "dsl", "formats"),
    test("language: edits in an editor", "pl-lsp::it", "host/lsp", "fuzz::edits"),
];

/// Arguments of a call.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    /// Time of each target.
    time: Duration,
    /// Targets that run at once.
    jobs: usize,
    /// Uses the programs of the call before.
    is_built: bool,
}

impl Options {
    fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { time: Duration::from_secs(60), jobs: 1, is_built: false };
        let mut arguments = arguments.iter().map(String::as_str);
        while let Some(flag) = arguments.next() {
            let mut number = || -> Result<u32> {
                let text = arguments.next().with_context(|| format!("{flag} needs a number"))?;
                text.parse().with_context(|| format!("{flag} {text}: not a number"))
            };
            match flag {
                "--minutes" => options.time = Duration::from_secs(u64::from(number()?) * 60),
                "--jobs" => options.jobs = number()?.max(1) as usize,
                "--built" => options.is_built = true,
                _ => bail!("usage: cargo xtask attack fuzz [--minutes N] [--jobs N] [--built] | fuzz table"),
            }
        }
        Ok(options)
    }
}

/// Gives each target its time and prints the table of this machine's rounds, or adds them to the record of all machines and
/// writes its table into docs/results.md.
/// Returns the exit code: 1 if an input was found that a target does not survive.
///
/// # Errors
/// If the programs can't be built or started, the table can't be written, or the arguments are wrong.
pub fn run(root: &Path, arguments: &[String]) -> Result<u8> {
    let folder = cache::private("fuzz")?;
    if arguments == ["table"] {
        let record = root.join(RECORD);
        let rounds = merge(read_rounds(&record)?, read_rounds(&folder.join(ROUNDS))?);
        let lines: String = rounds.iter().map(|round| format!("{round}\n")).collect();
        fs::write(&record, lines).with_context(|| format!("cannot write {}", record.display()))?;
        let table = table(&rounds);
        print!("{table}");
        write_table(&root.join("docs/results.md"), "attack fuzz table", &table)?;
        return Ok(0);
    }
    let options = Options::parse(arguments)?;
    for name in ["programs", "found"] {
        let folder = folder.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("cannot write {}", folder.display()))?;
    }
    if !options.is_built {
        setup::all(root)?;
        build(root, &folder)?;
    }
    let found = campaign(root, &folder, &options)?;
    print!("{}", table(&read_rounds(&folder.join(ROUNDS))?));
    Ok(u8::from(found))
}

/// Builds the programs of all targets and copies them into the folder of the campaign.
fn build(root: &Path, folder: &Path) -> Result<()> {
    let built = folder.join("build");
    let mut command = cargo(root);
    command
        .args(["nextest", "list", "--release", "--list-type", "binaries-only"])
        .args(["--message-format", "json", "--target", PLATFORM, "--target-dir"])
        .arg(&built)
        .args(["--test", "it", "--test", "fuzz"]);
    let packages: BTreeSet<&str> =
        TARGETS.iter().filter_map(|target| target.binary.split("::").next()).collect();
    for package in packages {
        command.args(["--package", package]);
    }
    let output = command
        .env("RUSTFLAGS", COVERAGE)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo nextest")?;
    if !output.status.success() {
        bail!("the programs of the fuzzers could not be built: see above");
    }
    let list: Value = serde_json::from_slice(&output.stdout).context("cargo nextest lists no binaries")?;
    for target in TARGETS {
        let from = list["rust-binaries"][target.binary]["binary-path"]
            .as_str()
            .with_context(|| format!("there is no test binary {}", target.binary))?;
        let into = target.program(folder);
        // A program that still runs in another campaign keeps its file.
        let partial = into.with_extension("partial");
        fs::copy(from, &partial)
            .and_then(|_| fs::rename(&partial, &into))
            .with_context(|| format!("cannot copy {from} to {}", into.display()))?;
    }
    Ok(())
}

/// Runs the rounds of all targets, `jobs` at once. Returns true if something was found.
fn campaign(root: &Path, folder: &Path, options: &Options) -> Result<bool> {
    let mut rounds = Vec::new();
    let mut left = options.time;
    while !left.is_zero() {
        let time = left.min(ROUND);
        rounds.extend(TARGETS.map(|target| (target, time)));
        left -= time;
    }
    let queue = Mutex::new(rounds.into_iter());
    let next = || queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).next();
    let work = || -> Result<bool> {
        let mut found = false;
        while let Some((target, time)) = next() {
            let round = target.run(root, folder, time)?;
            eprintln!("{round}");
            found |= round["found"] != Value::Null;
            // One write, so that the lines of two campaigns don't mix.
            let path = folder.join(ROUNDS);
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .and_then(|mut file| file.write_all(format!("{round}\n").as_bytes()))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(found)
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        let results = workers.into_iter().map(|worker| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a round of the fuzzer panicked: see above")))
        });
        results.collect::<Result<Vec<bool>>>().map(|found| found.contains(&true))
    })
}

impl Target {
    /// Returns the copy of the target's program.
    fn program(&self, folder: &Path) -> PathBuf {
        folder.join("programs").join(self.binary.replace("::", "-"))
    }

    /// Runs a round and returns its line.
    fn run(&self, root: &Path, folder: &Path, time: Duration) -> Result<Value> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (program, name) = (self.program(folder), self.name.replace([' ', ':', '\''], "-"));
        let found_folder = folder.join("found");
        let log = found_folder.join(format!("{name}-{}.txt", since.as_secs()));
        // Different in each round, and for targets that start at the same moment.
        let seed = since.as_nanos() as u64 % 1_000_000_007;
        let corpus = folder.join("corpus").join(&name);
        fs::create_dir_all(&corpus).with_context(|| format!("cannot write {}", corpus.display()))?;
        // libFuzzer exits without running destructors, so temporary files are removed here.
        let temporary = tempfile::tempdir_in(folder).context("cannot make a folder for a target")?;
        let arguments = [
            corpus.display().to_string(),
            format!("-artifact_prefix={}/{name}-", found_folder.display()),
            format!("-max_total_time={}", time.as_secs()),
            format!("-seed={}", seed.max(1)),
        ];
        let mut command = Command::new(&program);
        command
            .args([self.test, "--exact", "--nocapture"])
            .current_dir(root.join(self.folder))
            .env("PL_HOST_FUZZ_ARGUMENTS", arguments.join("\n"))
            .env("TMPDIR", temporary.path());
        let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let errors = output.try_clone().context("cannot share a file with a program")?;
        let started = Instant::now();
        let mut child = command
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut cpu = 0.0;
        let status = loop {
            cpu = cpu_seconds(child.id()).unwrap_or(0.0).max(cpu);
            if let Some(status) = child.try_wait().context("cannot wait for a program")? {
                break status;
            }
            std::thread::sleep(LOOK);
        };
        let text = String::from_utf8_lossy(&fs::read(&log).unwrap_or_default()).into_owned();
        let counts = counts(&text);
        let found = if !status.success() {
            // The input is beside the log, unless a signal ended the program: then it may be among the target's files.
            let kept = temporary.keep();
            eprintln!("{}: see {}, and the target's files in {}", self.name, log.display(), kept.display());
            log.display().to_string().into()
        } else if counts.coverage.is_none() {
            bail!("{} has no test {}, or no coverage: see {}", program.display(), self.test, log.display());
        } else {
            // Only what was found is worth a look.
            let _ = fs::remove_file(&log);
            Value::Null
        };
        let tenths = |seconds: f64| (seconds * 10.0).round() / 10.0;
        Ok(json!({
            "target": self.name,
            "started": since.as_secs(),
            "seed": seed,
            "seconds": tenths(started.elapsed().as_secs_f64()),
            "cpu_seconds": tenths(cpu),
            "inputs": counts.inputs,
            "coverage": counts.coverage,
            "corpus": counts.corpus,
            "found": found,
        }))
    }
}

/// Returns the CPU time of a process so far, user and system, or `None` if it is gone.
fn cpu_seconds(process: u32) -> Option<f64> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name, in parentheses, may have spaces.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / TICKS)
}

/// Counts of a round.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    inputs: u64,
    /// Edges of the control flow that were reached.
    coverage: Option<u64>,
    /// Inputs that covered something new, those of the seeds included.
    corpus: Option<u64>,
}

/// Reads the last line with coverage, `#84 DONE cov: 12 ft: 34 corp: 5/60b …`, and the number of inputs at its start.
fn counts(text: &str) -> Counts {
    let mut counts = Counts::default();
    for line in text.lines().filter(|line| line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let number = |text: Option<&str>| -> Option<u64> { text?.split('/').next()?.parse().ok() };
        counts.inputs = number(words.next().and_then(|word| word.strip_prefix('#'))).unwrap_or(counts.inputs);
        while let Some(word) = words.next() {
            match word {
                "cov:" => counts.coverage = number(words.next()),
                "corp:" => counts.corpus = number(words.next()),
                _ => {}
            }
        }
    }
    counts
}

/// Returns the rounds of a file, in order. A missing file has none.
fn read_rounds(path: &Path) -> Result<Vec<Value>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        read => read.with_context(|| format!("cannot read {}", path.display()))?,
    };
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Adds the rounds of this machine that are not in the record yet. Inputs that were found keep only their file names.
fn merge(mut record: Vec<Value>, rounds: Vec<Value>) -> Vec<Value> {
    for mut round in rounds {
        let same = |other: &Value| ["target", "started", "seed"].iter().all(|key| other[*key] == round[*key]);
        if record.iter().any(same) {
            continue;
        }
        if let Some(name) = round["found"].as_str().and_then(|path| Path::new(path).file_name()) {
            round["found"] = name.to_string_lossy().into();
        }
        record.push(round);
    }
    record
}

/// Returns the sums of the rounds by target, as a table of Markdown.
fn table(rounds: &[Value]) -> String {
    let mut of_target: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for round in rounds {
        of_target.entry(round["target"].as_str().unwrap_or_default()).or_default().push(round);
    }
    let mut text = "| target | CPU minutes | minutes | inputs | edges covered | corpus | found |\n\
         |---|---|---|---|---|---|---|\n"
        .to_owned();
    for (target, rounds) in TARGETS.iter().filter_map(|target| of_target.get_key_value(target.name)) {
        let sum = |key: &str| rounds.iter().filter_map(|round| round[key].as_f64()).sum::<f64>();
        let most = |key: &str| {
            let most = rounds.iter().filter_map(|round| round[key].as_u64()).max();
            most.map_or(String::new(), |number| number.to_string())
        };
        let found = match rounds.iter().filter(|round| round["found"] != Value::Null).count() {
            0 => "nothing".to_owned(),
            count => count.to_string(),
        };
        let _ = writeln!(
            text,
            "| {target} | {:.1} | {:.1} | {} | {} | {} | {found} |",
            sum("cpu_seconds") / 60.0,
            sum("seconds") / 60.0,
            thousands(sum("inputs") as u64),
            most("coverage"),
            most("corpus"),
        );
    }
    text
}

/// Returns a number with commas: 1,234,567.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_from_what_targets_print() {
        let text = "INFO: seed corpus: files: 3\n#4\tINITED cov: 9 ft: 9 corp: 2/5b exec/s: 0 rss: 30Mb\n\
             #1024\tNEW    cov: 12 ft: 34 corp: 5/60b lim: 4 exec/s: 9 rss: 31Mb\n#2048\tDONE   cov: 13 ft: 35 corp: 6/61b\n";
        assert_eq!(counts(text), Counts { inputs: 2048, coverage: Some(13), corpus: Some(6) });
    }

    #[test]
    fn rounds_add_up() {
        let round = |inputs: u64, found: Value| {
            json!({ "target": "GGUF", "seconds": 90.0, "cpu_seconds": 45.0, "inputs": inputs,
                "coverage": null, "corpus": null, "found": found })
        };
        let language = json!({ "target": "language: check", "seconds": 60.0, "cpu_seconds": 60.0, "inputs": 5,
            "coverage": 70, "corpus": 8, "found": null });
        let rounds = [round(1_000_000, Value::Null), language, round(234, "found/GGUF-1.txt".into())];
        let expected = "| GGUF | 1.5 | 3.0 | 1,000,234 |  |  | 1 |\n\
             | language: check | 1.0 | 1.0 | 5 | 70 | 8 | nothing |\n";
        assert!(table(&rounds).ends_with(expected), "{}", table(&rounds));
    }

    #[test]
    fn a_round_is_recorded_once_and_without_the_machine_s_folders() {
        let round = |target: &str, started: u64, found: Value| json!({ "target": target, "started": started, "seed": 7, "found": found });
        let record = vec![round("GGUF", 5, Value::Null)];
        let found = round("GGUF", 9, "cache/found/GGUF-9.txt".into());
        let merged =
            merge(record.clone(), vec![record[0].clone(), round("config.json", 5, Value::Null), found]);
        let expected =
            [record[0].clone(), round("config.json", 5, Value::Null), round("GGUF", 9, "GGUF-9.txt".into())];
        assert_eq!(merged, expected);
        assert_eq!(merge(merged.clone(), merged.clone()), merged);
    }

    #[test]
    fn options_are_read() {
        let parse =
            |text: &str| Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        let expected = Options { time: Duration::from_secs(3600), jobs: 2, is_built: true };
        assert_eq!(parse("--minutes 60 --jobs 2 --built").unwrap(), expected);
        assert!(parse("--minutes").is_err() && parse("--hours 2").is_err());
    }

    #[test]
    fn the_time_of_a_process_is_read() {
        assert!(cpu_seconds(std::process::id()).is_some_and(|seconds| seconds < 3600.0));
        assert_eq!(cpu_seconds(u32::MAX), None);
    }
}
