//! `pl-host run`: trains the policies of a workflow.

use std::io::Write;
use std::path::{Path, PathBuf};

use pl_dsl::workflow::{Train, Workflow};
use pl_record::{Lock, RunFolder, hash_file};
use pl_trainer::Trainer;
use pl_trainer::checkpoint::Checkpoints;
use pl_trainer::schedule::{self, Ending, State};
use tch::Device;
use tokio::runtime::Runtime;

use crate::arguments::Run;
use crate::checkpoints::newest;
use crate::exit::{Outcome, Stop};
use crate::interrupt::Interrupt;
use crate::memory::Estimate;
use crate::session::{Loaded, Located, Team, device};
use crate::stage::Players;
use crate::stored::Stored;

/// A run that is ready to begin or to go on.
struct Prepared<'a> {
    train: Train,
    trainer: Trainer,
    players: Players<'a>,
    folder: RunFolder,
    state: State,
    seed: u64,
    memory: Estimate,
}

pub fn run(options: &Run) -> Outcome {
    let runtime = Runtime::new().map_err(Stop::failed)?;
    let interrupt = Interrupt::listen(&runtime);
    let device = device(options.device)?;
    let mut run = match (&options.resume, &options.file) {
        (Some(folder), _) => resume(&runtime, folder, device, interrupt)?,
        (None, Some(file)) => begin(&runtime, file, options, device, interrupt)?,
        (None, None) => return Err(Stop::input("give a workflow, or --resume DIR")),
    };
    let root = run.folder.root().to_path_buf();
    let checkpoints = Checkpoints::new(RunFolder::checkpoints(&root), run.train.keep_checkpoints);
    eprintln!("run folder {}", root.display());
    eprint!("{}", run.memory);
    let ending = schedule::sync(
        &mut run.players,
        &mut run.trainer,
        &mut run.folder,
        &checkpoints,
        &run.train,
        run.seed,
        run.state,
    )?;
    match ending {
        Ending::Done => {
            writeln!(std::io::stdout(), "{}", root.display())?;
            Ok(())
        }
        Ending::Interrupted => Err(Stop::Interrupted(format!(
            "stopped after a checkpoint; go on with: pl-host run --resume {}",
            root.display()
        ))),
    }
}

fn train(workflow: &Workflow) -> Result<&Train, Stop> {
    workflow.train.as_ref().ok_or_else(|| {
        Stop::input(format!(
            "workflow {} has no `train` block: add one, or use `play` or `evaluate`",
            workflow.name
        ))
    })
}

fn begin<'a>(
    runtime: &'a Runtime,
    file: &Path,
    options: &Run,
    device: Device,
    interrupt: Interrupt,
) -> Result<Prepared<'a>, Stop> {
    let loaded = Loaded::open(runtime, file, &options.given.all()?)?;
    let train = train(&loaded.workflow)?.clone();
    let root = match &options.out {
        Some(out) if out.join("workflow.json").exists() => {
            return Err(Stop::input(pl_record::Error::Occupied { path: out.clone() }));
        }
        Some(out) => out.clone(),
        None => free_folder(&loaded.workflow.name),
    };
    let seed = options.seed.unwrap_or(0);
    let team = Team::assemble(&loaded, Located::find(&loaded, device)?, seed)?;
    let lock = lock(&loaded, &team, seed, device)?;
    let mut players = Players::new(&loaded, &team, runtime, interrupt, seed)?;
    // Everything that can be wrong with the input has been found by now: nothing is left half-written.
    let folder =
        RunFolder::create(&root, &loaded.text, &Stored::of(&loaded, &team), &lock).map_err(Stop::failed)?;
    players.keep_traces(folder.traces());
    let (trainer, memory) = (team.trainer, team.memory);
    Ok(Prepared { train, trainer, players, folder, state: State::default(), seed, memory })
}

fn resume<'a>(
    runtime: &'a Runtime,
    root: &Path,
    device: Device,
    interrupt: Interrupt,
) -> Result<Prepared<'a>, Stop> {
    let lock: Lock = RunFolder::read_json(root, "lock.json").map_err(Stop::input)?;
    let loaded = Stored::read(root)?.load(runtime, root)?;
    let train = train(&loaded.workflow)?.clone();
    let mut team = Team::assemble(&loaded, Located::find(&loaded, device)?, lock.seed)?;
    let now = self::lock(&loaded, &team, lock.seed, device)?;
    let differences = lock.differences(&now);
    if !differences.is_empty() {
        return Err(Stop::input(format!(
            "{} can't go on as it began:\n  {}",
            root.display(),
            differences.join("\n  ")
        )));
    }
    let state: State = match newest(&RunFolder::checkpoints(root))? {
        None => State::default(),
        Some(checkpoint) => {
            let restored = team.trainer.load(&checkpoint).map_err(Stop::input)?;
            serde_json::from_value(restored.state).map_err(|e| {
                Stop::input(format!("{}: the state of the run can't be read: {e}", checkpoint.display()))
            })?
        }
    };
    let mut players = Players::new(&loaded, &team, runtime, interrupt, lock.seed)?;
    let folder = RunFolder::resume(root, state.step, state.lengths).map_err(Stop::input)?;
    players.keep_traces(folder.traces());
    eprintln!("going on after step {}", state.step);
    let (trainer, memory) = (team.trainer, team.memory);
    Ok(Prepared { train, trainer, players, folder, state, seed: lock.seed, memory })
}

/// runs/NAME, or the first of runs/NAME-2, runs/NAME-3, … that is free.
pub fn free_folder(name: &str) -> PathBuf {
    let numbered = (2u32..).map(|n| PathBuf::from(format!("runs/{name}-{n}")));
    std::iter::once(PathBuf::from(format!("runs/{name}")))
        .chain(numbered)
        .find(|folder| !folder.exists())
        .unwrap_or_else(|| PathBuf::from("runs").join(name))
}

fn lock(loaded: &Loaded, team: &Team, seed: u64, device: Device) -> Result<Lock, Stop> {
    let data = loaded
        .task_files()
        .into_iter()
        .map(|(name, path)| Ok((name, hash_file(&path).map_err(Stop::input)?)))
        .collect::<Result<_, Stop>>()?;
    Ok(Lock {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        contract: "0.1".to_owned(),
        seed,
        device: format!("{device:?}").to_lowercase(),
        threads: tch::get_num_threads(),
        plugins: loaded.plugins.hashes(),
        grants: loaded.plugins.grants(&loaded.workflow.plugins),
        models: team.model_hashes.clone(),
        dtypes: team.model_dtypes.clone(),
        data,
    })
}
