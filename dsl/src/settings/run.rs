//! Settings of the blocks that describe a run: sandbox, inference, training (those that all policies share), evaluations.

use std::time::Duration;

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{MAX_U32, count, number, per_policy, positive, seconds, setting, word};
use super::units::{GIB, KIB, MIB};
use crate::syntax::block_kind::BlockKind;

const BACKENDS: &[Choice] = &[
    word(
        "wasm",
        "Python in WebAssembly inside the program, with a new instance per job; needs no installation",
    ),
    word("docker", "a pool of running containers, for any language; needs a Docker engine with an image"),
];

const ISOLATIONS: &[Choice] = &[
    word("instance", "a new WebAssembly instance for each job, inside this program"),
    word(
        "process",
        "the same in processes with no files, no network and hardly any system calls, so that a hole in the \
         WebAssembly engine is not a hole in the run",
    ),
];

const FALLBACKS: &[Choice] = &[word("wasm", "the `wasm` backend, which runs only Python")];

const ROLLOUTS: &[Choice] = &[
    word(
        "tree",
        "every turn is sampled several times from the same state, and the episode continues with the best sample",
    ),
    word("flat", "every task is played several times independently"),
];

const SCHEDULES: &[Choice] = &[
    word("sync", "rollouts and updates alternate, strictly on-policy"),
    word("one_step_off", "the next step is played during the update: `async` with a staleness of 1"),
    word("async", "steps are played ahead of the update, up to `staleness`"),
];

const ORDERS: &[Choice] = &[
    word("keys", "an update trains on the tasks that were drawn for it"),
    word("arrival", "an update trains on the tasks that ended first; the order is recorded"),
];

const IN_FLIGHT: &[Choice] = &[
    word("off", "an episode ends with the weights that it began with"),
    word(
        "recompute",
        "new weights take over between the tokens of completions; they compute the keys and values of earlier tokens anew",
    ),
    word("keep", "new weights take over between the tokens of completions; earlier keys and values stay"),
];

const FAULTS: &[Choice] = &[
    word(
        "redraw",
        "the completion, or the episode of `rollout = flat`, is drawn again; three attempts at most",
    ),
    word(
        "penalize",
        "the completion is trained on with `fault_penalty`; a tree continues from the others, and a flat episode \
         ends",
    ),
];

use BlockKind as B;

/// Setting of `devices { … }`, which a policy's own `devices { … }` may also have.
const fn setting_of_devices(key: &'static str, doc: &'static str) -> Setting {
    let default = DefaultValue::Absent("all cores, or the GPU");
    Setting { per_policy: true, ..setting(B::Devices, key, SettingKind::Devices, default, doc) }
}

/// Settings of these blocks, block by block.
pub(super) const RUN: &[Setting] = &[
    setting(
        B::Sandbox,
        "backend",
        SettingKind::Choice(BACKENDS),
        DefaultValue::Word("wasm"),
        "Program that runs untrusted code. `wasm` by default: it needs no installation and starts a job in \
         milliseconds. Use `docker` for other languages and for packages that Python in WebAssembly lacks.",
    ),
    setting(
        B::Sandbox,
        "isolation",
        SettingKind::Choice(ISOLATIONS),
        DefaultValue::Word("instance"),
        "Wall around each job of the `wasm` backend. `instance` by default: the instance alone is a complete sandbox, and needs no \
         further processes. `process` adds a second wall, less than a millisecond to a job, and memory of its own for each worker. Use it \
         if many jobs run beside generation on the same cores: pages that a job writes to make Linux interrupt all threads of its \
         process (TLB shootdowns), which then are not those that generate.",
    ),
    setting(
        B::Sandbox,
        "timeout",
        SettingKind::Duration { min: Duration::from_millis(10), max: seconds(3600) },
        DefaultValue::Duration(seconds(20)),
        "Maximum time of one job. 20s is enough for slow symbolic mathematics and stops endless loops before \
         they delay a step.",
    ),
    setting(
        B::Sandbox,
        "memory",
        SettingKind::Bytes { min: 16 * MIB, max: 4 * GIB },
        DefaultValue::Bytes(256 * MIB),
        "Maximum memory of one job. 256MiB is several times what Python with sympy needs.",
    ),
    setting(
        B::Sandbox,
        "output",
        SettingKind::Bytes { min: KIB, max: 64 * MIB },
        DefaultValue::Bytes(64 * KIB),
        "Number of bytes kept of a job's stdout, and of its stderr. 64KiB is more than fits into a prompt.",
    ),
    setting(
        B::Sandbox,
        "workers",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(2),
        "Number of jobs at a time, each on its own core. 2 by default, which leaves cores for the model.",
    ),
    setting(
        B::Sandbox,
        "image",
        SettingKind::Text,
        DefaultValue::Absent("`pl-host-python`, built by `pl-host sandbox image`"),
        "Image of the containers of the `docker` backend: `name:tag`. Programs have no network and can write \
         only to their own folder and `/tmp`.",
    ),
    setting(
        B::Sandbox,
        "pids",
        SettingKind::Integer { min: 1, max: 4096 },
        DefaultValue::Integer(64),
        "Maximum number of processes and threads of one job (`docker`). 64: Python with its threads needs a \
         dozen; many more indicate a mistake or a fork bomb.",
    ),
    setting(
        B::Sandbox,
        "cpus",
        SettingKind::Number { min: 0.01, max: 1024.0, above: false },
        DefaultValue::Number(1.0),
        "Number of CPUs of one job (`docker`). 1 by default, so that as many workers as cores use the whole \
         machine.",
    ),
    setting(
        B::Sandbox,
        "runtime",
        SettingKind::Text,
        DefaultValue::Absent("the engine's default runtime"),
        "OCI runtime of the containers (`docker`), under a name that the engine knows: `runsc` for gVisor's, whose kernel \
         of its own stands between jobs and the machine's.",
    ),
    setting(
        B::Sandbox,
        "endpoints",
        SettingKind::Texts,
        DefaultValue::Absent("`$DOCKER_HOST`, or `unix:///var/run/docker.sock`"),
        "Docker engines that share the load (`docker`): `unix://PATH`, `tcp://HOST:PORT`, or \
         `https://HOST:PORT` with `certificates`. An engine that fails is skipped until it responds \
         again. The user must allow each (`--allow-net`).",
    ),
    setting(
        B::Sandbox,
        "certificates",
        SettingKind::Path,
        DefaultValue::Absent("`$DOCKER_CERT_PATH`, or `~/.docker`"),
        "Folder of `ca.pem`, `cert.pem` and `key.pem` for `https` endpoints (`docker`).",
    ),
    setting(
        B::Sandbox,
        "jobs_per_worker",
        SettingKind::Integer { min: 1, max: MAX_U32 },
        DefaultValue::Integer(1000),
        "Number of jobs after which a container is replaced (`docker`), or a worker process (`isolation = process`). A \
         new one takes up to half a second: spread over a thousand jobs, less than a millisecond each.",
    ),
    setting(
        B::Sandbox,
        "run",
        SettingKind::Texts,
        DefaultValue::Absent("the command of the language: `python3` or `sh`"),
        "Command line of programs (`docker`), such as `run = [\"node\", \"{file}\"]`. `{file}` stands for the \
         file of the program.",
    ),
    setting(
        B::Sandbox,
        "fallback",
        SettingKind::Choice(FALLBACKS),
        DefaultValue::Absent("the run doesn't start without an engine"),
        "Backend to use if no Docker engine responds, or if none has the image, when the run starts.",
    ),
    setting(
        B::Inference,
        "kv_cache",
        SettingKind::Bytes { min: MIB, max: 1024 * GIB },
        DefaultValue::Absent("1GiB on a CPU, a quarter of the memory of a GPU"),
        "Memory for the KV cache, divided evenly between the models. If it is full, completions wait; results \
         don't change. 1GiB holds 23,000 tokens of a model like SmolLM2-135M, and 9,000 of one like Qwen3-1.7B in bf16. On a \
         CPU it is allocated as needed.",
    ),
    setting(
        B::Inference,
        "slots",
        SettingKind::Integer { min: 1, max: 65_536 },
        DefaultValue::Integer(64),
        "Number of completions that are generated at a time; further ones wait. On two cores, 64 slots \
         generate a third more tokens per second than 16, while each completion takes longer. It affects \
         memory and speed, not results.",
    ),
    setting(
        B::Inference,
        "threads",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Absent("one per core"),
        "Number of threads for generation on a CPU. It affects speed, not results.",
    ),
    setting(
        B::Inference,
        "enforce_eager",
        SettingKind::Boolean,
        DefaultValue::Boolean(false),
        "On a GPU, runs every step of generation operation by operation, like vLLM's setting of this name. Off by default: \
         steps in which each completion grows by one token are recorded as CUDA graphs, one for each of a few batch sizes, \
         and replayed, because thousands of small launches take longer than their work. On, it saves the memory of the \
         graphs (`check` shows it), and shows whether they cause a problem. Log-probabilities may differ in the last bits. \
         Without an effect on a CPU.",
    ),
    setting_of_devices(
        "rollout",
        "Cores or GPU that completions are generated on. A core is `cpu:N`, several are `cpu:A-B` or a list, and `cpu` is all \
         of them, with one thread for each; a GPU is `cuda:N`. Without it, generation uses all cores (`inference.threads`). \
         Plugins and sandboxed programs run on any core. The number of threads is part of what a run's bits depend on.",
    ),
    setting_of_devices(
        "train",
        "Cores or GPU that learners update on, written like `rollout`. Without it, training uses all cores. Learners of \
         different models may have different cores; all that train on a GPU use the same one.",
    ),
    setting(
        B::Cluster,
        "nats",
        SettingKind::Addresses,
        DefaultValue::Required,
        "Address of the NATS server with JetStream, `nats://HOST:4222`, or a list of the servers of one NATS cluster. \
         `tls://HOST:4222` insists on encryption. The user must allow each (`--allow-net`). `run --nats` names another.",
    ),
    setting(
        B::Cluster,
        "credentials",
        SettingKind::Path,
        DefaultValue::Absent("the server asks for none, or for a token"),
        "File with the credentials for the NATS server: the JWT and nkey of a user (`.creds`), or an nkey alone (`.nk`), \
         which `pl-host cluster config` makes. Its key never leaves this machine: it signs what the server asks.",
    ),
    setting(
        B::Cluster,
        "token_variable",
        SettingKind::Text,
        DefaultValue::Absent("no token is sent"),
        "Environment variable with the token of a NATS server that asks for one, which the user must allow (`--allow-env`). \
         Without `tls://`, it crosses the network readably.",
    ),
    setting(
        B::Cluster,
        "authorities",
        SettingKind::Path,
        DefaultValue::Absent("those that this machine trusts"),
        "Certificates (PEM) of authorities that vouch for the NATS server, besides those that this machine trusts.",
    ),
    setting(
        B::Cluster,
        "learners",
        SettingKind::PolicyNames,
        DefaultValue::Absent("all policies are trained by `run`"),
        "Policies that `pl-host learner` trains, in a process of its own on any machine. Adapters on one model share a \
         learner, so the name of one stands for all of them.",
    ),
    setting(
        B::Cluster,
        "sandboxes",
        SettingKind::Boolean,
        DefaultValue::Boolean(false),
        "Sends the code that agents write to `pl-host sandbox serve` processes, on any number of machines, with the limits of \
         the `sandbox` block. `false` by default: each worker runs that of its own episodes. It affects speed, not results.",
    ),
    setting(
        B::Cluster,
        "lease",
        SettingKind::Duration { min: seconds(1), max: seconds(86_400) },
        DefaultValue::Duration(seconds(30)),
        "Time after which the tasks of a worker that is gone are played by another. 30s by default: a worker that plays \
         says so three times in that time, and a slow network may lose one of them. It affects speed, not results.",
    ),
    setting(
        B::Train,
        "rollout",
        SettingKind::Choice(ROLLOUTS),
        DefaultValue::Word("tree"),
        "Method that samples the completions of a group. `tree` by default: only there do all completions of \
         a group start from the same state, as their comparison assumes.",
    ),
    setting(
        B::Train,
        "samples",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(4),
        "Number of completions per group. 4 is the smallest number with a useful mean and standard deviation; \
         cost grows with it. With 1 there is nothing to compare.",
    ),
    setting(
        B::Train,
        "tasks_per_step",
        count(1),
        DefaultValue::Integer(8),
        "Number of tasks per update. 8 keeps the noise of the gradient acceptable at a cost that a small \
         machine can afford.",
    ),
    setting(
        B::Train,
        "max_refills",
        count(0),
        DefaultValue::Integer(2),
        "Limit on the rounds in which a step plays new tasks in place of those that `flat_groups = drop` left \
         without a group. 2 by default: if most tasks are too easy or too hard, another `level` helps more than \
         more rounds.",
    ),
    setting(
        B::Train,
        "faults",
        SettingKind::Choice(FAULTS),
        DefaultValue::Word("penalize"),
        "Treatment of completions that make an agent's, the environment's or the reward's plugin fail. `penalize` \
         by default: a completion that was only drawn again would be written again. Faults that no completion \
         caused are always repeated.",
    ),
    setting(
        B::Train,
        "fault_penalty",
        number(0.0, 1000.0),
        DefaultValue::Number(1.0),
        "Amount that a completion with a fault is penalised by: its reward is minus that number \
         (`faults = penalize`): for all of the turn's agents, or, if one agent's plugin failed, for that agent alone. 1 by \
         default, as far below a wrong answer as a right one is above it.",
    ),
    setting(
        B::Train,
        "steps",
        count(1),
        DefaultValue::Integer(100),
        "Total number of updates. 100 by default, enough to see if a team learns. A finished run can be \
         continued with more steps: `run --resume DIR --set train.steps=200`.",
    ),
    setting(
        B::Train,
        "schedule",
        SettingKind::Choice(SCHEDULES),
        DefaultValue::Word("sync"),
        "Order of rollouts and updates. `sync` by default: no sample is stale. The others keep the engine busy \
         while the policies are trained, which pays where rollouts and training use different devices or \
         episodes wait for something slow.",
    ),
    per_policy(
        "staleness",
        SettingKind::Integer { min: 0, max: 64 },
        DefaultValue::Absent("1 for `one_step_off`, 2 for `async`"),
        "Number of updates that the weights of a rollout are behind (`schedule = async`). The number is exact for \
         every step with that many updates before it, so results don't depend on timing; 0 is the same run as \
         `sync`. Larger numbers even out slow steps, and learn from older samples. Each needs memory for a copy \
         of the trained weights. A policy may have a staleness of its own, if all trained policies are adapters that \
         this machine generates for; the adapters of one base have the same.",
    ),
    setting(
        B::Train,
        "order",
        SettingKind::Choice(ORDERS),
        DefaultValue::Word("keys"),
        "Tasks that an update trains on (`schedule = async`). `keys` by default: results don't depend on timing. With \
         `arrival`, a slow task does not hold up an update: it is trained on by a later one, as far as `staleness` allows. \
         Half of the staleness, rounded up, is used to play ahead, the rest to wait for slow tasks. Two runs differ; \
         `run --replay-schedule RUN` repeats the order of a run.",
    ),
    setting(
        B::Train,
        "in_flight",
        SettingKind::Choice(IN_FLIGHT),
        DefaultValue::Word("off"),
        "Weights of episodes in progress when a policy was updated. `off` by default: results don't depend on timing. Otherwise \
         samples are as fresh as they can be, and rollouts of whole models don't wait for those before. `recompute` samples \
         from exactly the new weights, `keep` is faster. Two runs differ; `run --replay-schedule RUN` repeats a run.",
    ),
    setting(
        B::Train,
        "epochs",
        SettingKind::Integer { min: 1, max: 100 },
        DefaultValue::Integer(1),
        "Number of passes over the transitions of a step. 1 by default, which is strictly on-policy. More \
         passes learn more from each sample, take proportionally longer, and rely on clipping.",
    ),
    setting(
        B::Train,
        "mini_batches",
        SettingKind::Integer { min: 1, max: 4096 },
        DefaultValue::Integer(1),
        "Number of optimiser steps per pass. 1 by default, which is strictly on-policy. With more, the later \
         steps use samples of an older policy.",
    ),
    setting(
        B::Train,
        "shuffle_rewards",
        SettingKind::Boolean,
        DefaultValue::Boolean(false),
        "Permutes the returns of completions at random within their groups before training. Off by default. On, \
         the run is a control experiment without a learning signal: any remaining change is drift. Rollouts \
         and evaluations are those of any run. With `advantage = gae`, the rewards of single turns are permuted: \
         the number of turns then still has an effect.",
    ),
    setting(
        B::Train,
        "token_budget",
        SettingKind::Integer { min: 16, max: 1 << 24 },
        DefaultValue::Absent(
            "on a CPU 2048, 1024 or 512, the largest whose activations are at most 2 GiB; 4096 on a GPU",
        ),
        "Number of tokens, prompts included, in one forward pass of training; a prompt that several samples \
         share counts once. A sample that is longer shares its prompt with others all the same, up to this many tokens after \
         it. What samples of different passes have in common is fed in each of them. It affects memory and speed, and results only \
         by rounding. With 2048, training adapters on a model like SmolLM2-135M needs less than 4 GB.",
    ),
    setting(
        B::Train,
        "data_parallel",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(1),
        "Number of ranks that the work up to an optimiser step is divided among. 1 by default. Each rank runs its share of the \
         passes, and the gradients are summed in the order of ranks. The ranks are processes, each on a GPU of its own \
         (`pl-host learner --rank`, docs/cluster.md), or one process does their shares in turn, with the same bits. It affects \
         memory and speed, and results only by rounding.",
    ),
    setting(
        B::Train,
        "gradient_checkpointing",
        SettingKind::Boolean,
        DefaultValue::Boolean(false),
        "Keeps only the input of each block during training and recomputes the block in the backward pass \
         (Chen et al. 2016). Off by default. On, a pass needs about a tenth of the memory per token and about \
         a third more time.",
    ),
    setting(
        B::Train,
        "deterministic",
        SettingKind::Boolean,
        DefaultValue::Boolean(false),
        "On a GPU, chooses deterministic algorithms where an operation has one: gradients of embeddings, and of states that \
         several tokens share, are otherwise summed in the order in which threads come, and two runs differ in the last \
         bits. Off by default, because they are slower. Without an effect on a CPU, where runs repeat in any case.",
    ),
    setting(
        B::Train,
        "record_tokens",
        SettingKind::Boolean,
        DefaultValue::Boolean(true),
        "Writes what each update computed of each token to `tokens/` in the run folder: the log-probability in training, \
         the entropy, the advantage, and whether the token was clipped. `pl-host view` shows them, and the reason for \
         each token's gradient. On by default, since a run that learns the wrong thing is understood by its tokens. It \
         has no effect on results. Off, it saves about 11 bytes per token and pass.",
    ),
    setting(
        B::Train,
        "checkpoint_every",
        count(1),
        DefaultValue::Integer(10),
        "Number of steps between checkpoints. With 10, a run that is killed loses at most ten steps.",
    ),
    setting(
        B::Train,
        "keep_checkpoints",
        SettingKind::Integer { min: 1, max: 10_000 },
        DefaultValue::Integer(2),
        "Number of the newest checkpoints to keep, in addition to the best one. The best has the highest \
         success in the first `evaluate` block with `every` (the mean over its scenarios), and `checkpoints/best` links to it. If a \
         resumed run changes the `limit` of that block, the best before the change stays too. 2, so that one \
         complete checkpoint exists while the next is written.",
    ),
    setting(
        B::Train,
        "episodes",
        SettingKind::Integer { min: 1, max: 100_000 },
        DefaultValue::Integer(64),
        "Number of episodes at a time. 64 fills the batches of the model; each episode has its own copy of \
         the environment. It affects memory and speed, not results.",
    ),
    setting(
        B::Evaluate,
        "scenario",
        SettingKind::Scenario,
        DefaultValue::Absent("every scenario, each with a result of its own"),
        "Scenario that is evaluated. Without it, the block evaluates every scenario of the file, and the results are \
         named `BLOCK.SCENARIO`; with `tasks`, it is required unless all scenarios have one environment.",
    ),
    setting(
        B::Evaluate,
        "every",
        count(0),
        DefaultValue::Integer(0),
        "Number of training steps between evaluations. 0 by default: only `pl-host evaluate` runs it, because \
         evaluations take time.",
    ),
    setting(
        B::Evaluate,
        "tasks",
        SettingKind::Tasks,
        DefaultValue::Absent(
            "tasks from the environment's generator, from a split that training doesn't use",
        ),
        "JSONL file with one task per line, a folder of the hub's layout (`./FOLDER:SPLIT`), or `NAME:SPLIT` of a data set. \
         Use tasks that training doesn't.",
    ),
    setting(
        B::Evaluate,
        "level",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Absent("the environment's level, or the highest of its curriculum"),
        "Difficulty of generated tasks, for instance to measure on harder tasks than those of training. \
         Excludes `tasks`.",
    ),
    setting(
        B::Evaluate,
        "limit",
        count(1),
        DefaultValue::Integer(200),
        "Maximum number of tasks. 200 tasks distinguish success rates that differ by about seven percentage \
         points.",
    ),
    setting(
        B::Evaluate,
        "samples",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(1),
        "Number of episodes per task; with more than one, pass@k is reported too, for each power of two k up to this \
         number. 1 by default: cost grows with it, and more tasks say more than more samples.",
    ),
    setting(
        B::Evaluate,
        "temperature",
        number(0.0, 10.0),
        DefaultValue::Absent("the temperature of each agent"),
        "Temperature of all agents; 0 selects the most likely token, others are at least 0.01. With 0, completions don't \
         depend on the run's seed. What an environment draws at random still does, and is the same in every evaluation of a \
         run.",
    ),
    setting(
        B::Evaluate,
        "top_k",
        count(0),
        DefaultValue::Absent("the value of each agent"),
        "`top_k` of all agents; 0 samples among all tokens.",
    ),
    setting(
        B::Evaluate,
        "top_p",
        positive(1.0),
        DefaultValue::Absent("the value of each agent"),
        "`top_p` of all agents; 1 samples among all tokens.",
    ),
    setting(
        B::Evaluate,
        "min_p",
        number(0.0, 1.0),
        DefaultValue::Absent("the value of each agent"),
        "`min_p` of all agents; 0 samples among all tokens.",
    ),
    setting(
        B::Evaluate,
        "repetition_penalty",
        positive(100.0),
        DefaultValue::Absent("the value of each agent"),
        "`repetition_penalty` of all agents; 1 disables it. Any policy may have one, because an evaluation \
         trains nothing.",
    ),
    setting(
        B::Evaluate,
        "presence_penalty",
        number(-100.0, 100.0),
        DefaultValue::Absent("the value of each agent"),
        "`presence_penalty` of all agents; 0 disables it.",
    ),
    setting(
        B::Evaluate,
        "frequency_penalty",
        number(-100.0, 100.0),
        DefaultValue::Absent("the value of each agent"),
        "`frequency_penalty` of all agents; 0 disables it.",
    ),
];
