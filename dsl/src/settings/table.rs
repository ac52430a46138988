//! The table of settings: every key, what it defaults to and why.

use std::time::Duration;

use super::{Choice, Default, GIB, KIB, Kind, MIB, Setting};
use crate::syntax::BlockKind;

const MOST: i64 = u32::MAX as i64;

/// The first version of the language.
const FIRST: &str = "0.1";

const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

const fn count(min: i64) -> Kind {
    Kind::Integer { min, max: MOST }
}

const fn number(min: f64, max: f64) -> Kind {
    Kind::Number { min, max, above: false }
}

const fn positive(max: f64) -> Kind {
    Kind::Number { min: 0.0, max, above: true }
}

const fn row(
    block: BlockKind,
    key: &'static str,
    kind: Kind,
    default: Default,
    doc: &'static str,
) -> Setting {
    Setting { block, key, kind, default, doc, since: FIRST, supported: true, in_head: false }
}

const fn later(block: BlockKind, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    let default = Default::Absent("not set");
    Setting { block, key, kind, default, doc, since: FIRST, supported: false, in_head: false }
}

const fn head(block: BlockKind, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting {
        block,
        key,
        kind,
        default: Default::Required,
        doc,
        since: FIRST,
        supported: true,
        in_head: true,
    }
}

const fn word(word: &'static str, doc: &'static str) -> Choice {
    Choice { word, doc, supported: true }
}

const fn later_word(word: &'static str, doc: &'static str) -> Choice {
    Choice { word, doc, supported: false }
}

/// What `lora { targets = … }` knows.
pub const TARGETS: &[Choice] = &[
    word("q", "query projection"),
    word("k", "key projection"),
    word("v", "value projection"),
    word("o", "output projection of the attention"),
    word("gate", "gate projection of the feed-forward part"),
    word("up", "up projection of the feed-forward part"),
    word("down", "down projection of the feed-forward part"),
];

/// What `layout = …` knows.
pub const LAYOUTS: &[Choice] = &[
    word("L0", "one agent"),
    word("L1", "several agents on one policy"),
    word("L2", "one base model, an adapter per policy"),
    word("L3", "a base model per policy"),
    word("mixed", "some policies share a base model and some do not"),
];

const BACKENDS: &[Choice] = &[
    word("wasm", "Python inside the program, a fresh instance per job; needs nothing installed"),
    word("docker", "a pool of warm containers; any language, and needs a Docker engine with an image"),
];

const FALLBACKS: &[Choice] = &[word("wasm", "the `wasm` backend, which runs Python alone")];

const DTYPES: &[Choice] = &[
    word("f32", "32 bits"),
    word("f16", "16 bits, 10 of them mantissa"),
    word("bf16", "16 bits, 7 of them mantissa: the range of f32"),
];

const ALGORITHMS: &[Choice] = &[
    word("at_grpo", "advantages within groups of one agent and turn"),
    later_word("ppo", "advantages from a critic"),
];

const ROLLOUTS: &[Choice] = &[
    word("tree", "every turn is sampled several times from one state, and the best goes on"),
    word("flat", "every task is played several times, each on its own"),
];

const SCHEDULES: &[Choice] = &[
    word("sync", "strictly on-policy: rollout and update take turns"),
    later_word("one_step_off", "the next step's rollout runs during the update"),
    later_word("async", "rollout and update overlap, up to a staleness limit"),
];

const LR_SCHEDULES: &[Choice] = &[
    word("constant", "the same in every step after the warm-up"),
    word("cosine", "falls to zero along half a cosine over the steps after the warm-up"),
];

use BlockKind as B;

/// Every setting, block by block.
pub const SETTINGS: &[Setting] = &[
    head(B::Plugin, "path", Kind::Path, "The WebAssembly component, relative to the workflow file."),
    head(
        B::Model,
        "source",
        Kind::Source,
        "A known model's name (`smollm2-135m`), `hf:ORGANISATION/NAME`, or the path of a Hugging Face folder or \
         a GGUF file.",
    ),
    row(
        B::Model,
        "dtype",
        Kind::Choice(DTYPES),
        Default::Absent("`f32` on a processor, `bf16` on a GPU"),
        "Number format of the matrices; norms, biases, adapters and all sums stay f32. With 16 bits generation reads \
         half as much memory and is faster; training computes with the same rounded weights, and a policy that is \
         trained whole keeps f32 masters of them. f16 is the closer one on a processor, bf16 what GPUs compute in.",
    ),
    row(
        B::Plugin,
        "memory",
        Kind::Bytes { min: 64 * KIB, max: 4 * GIB },
        Default::Bytes(64 * MIB),
        "Linear memory of one instance, at most. 64MiB holds any state that a text environment has; an \
         interpreter inside a plugin wants more. A plugin that asks for more loses its episode.",
    ),
    row(
        B::Plugin,
        "fuel",
        Kind::Integer { min: 10_000, max: i64::MAX },
        Default::Integer(2_000_000_000),
        "Work of one call, at most, about one per instruction. 2e9 is about a second: far beyond any honest \
         call, and soon enough to stop a loop. It is counted, not timed, so it decides the same everywhere.",
    ),
    row(
        B::Plugin,
        "timeout",
        Kind::Duration { min: Duration::from_millis(10), max: seconds(3600) },
        Default::Duration(seconds(10)),
        "Wall-clock backstop of one call, in case that fuel does not end it. 10s is several times what the \
         default fuel takes. When it fires, the run is not reproducible and says so.",
    ),
    row(
        B::Grant,
        "read",
        Kind::Texts,
        Default::Absent("no folder"),
        "Folders that the plugin may read, relative to the workflow file; it finds the folder `data/tables` as `/tables`. \
         What they hold is read once, when the plugin is loaded, and is part of what the run was made of.",
    ),
    row(
        B::Grant,
        "http",
        Kind::Texts,
        Default::Absent("no host"),
        "Hosts that the plugin may ask over HTTP: `api.example.org` (HTTPS on port 443), or `localhost:8080` for that \
         port, encrypted or not. An episode that asks one is not reproducible, and the run says so; `replay` gives it \
         the recorded answers.",
    ),
    row(
        B::Policy,
        "model",
        Kind::Model,
        Default::Required,
        "The model that the policy starts from. Policies with `lora` on one model share its weights; each without \
         `lora` takes the memory of the whole model again.",
    ),
    row(
        B::Policy,
        "train",
        Kind::Boolean,
        Default::Boolean(true),
        "Whether training changes the policy. On by default, since policies are there to be trained; off for \
         a partner that stays as it is.",
    ),
    row(
        B::Policy,
        "from",
        Kind::Path,
        Default::Absent("the model as it is, and a fresh adapter"),
        "An adapter folder (PEFT) to start from, or a model folder for a policy without `lora`. For building on an \
         earlier run; to go on with one there is `run --resume`.",
    ),
    later(B::Policy, "server", Kind::Text, "Address of an OpenAI-compatible server that serves the policy."),
    row(
        B::Lora,
        "rank",
        Kind::Integer { min: 1, max: 1024 },
        Default::Integer(16),
        "Rank of the adapter. 16 is the usual middle: less saves little memory, more is seldom better.",
    ),
    row(
        B::Lora,
        "alpha",
        positive(65536.0),
        Default::Number(32.0),
        "Scale of the adapter: its part is multiplied by alpha / rank. 32 gives the usual factor of 2 at the \
         default rank.",
    ),
    row(
        B::Lora,
        "targets",
        Kind::Choices(TARGETS),
        Default::AllWords,
        "The projections that get an adapter. All seven by default, as this comes closest to training the \
         whole model.",
    ),
    row(
        B::Environment,
        "tasks",
        Kind::Path,
        Default::Absent("tasks from the environment's own generator"),
        "A JSONL file with one task per line. It is read and checked whole before the run starts. Not together with \
         `level`.",
    ),
    row(
        B::Environment,
        "level",
        Kind::Integer { min: 0, max: 100 },
        Default::Integer(1),
        "Difficulty of generated tasks; what a level means is the environment's own. 1 by default, the \
         easiest that a small model can learn from. Not together with `tasks`.",
    ),
    row(
        B::Agent,
        "policy",
        Kind::Policy,
        Default::Required,
        "The policy that speaks for the agent. Agents may share one: they then learn from each other's tokens, and \
         take the memory of one.",
    ),
    row(
        B::Agent,
        "temperature",
        number(0.0, 10.0),
        Default::Number(1.0),
        "Divides the logits before sampling; 0 takes the likeliest token. 1 by default: training wants samples of \
         exactly the policy's own distribution. Not 0 where the policy is trained: equal completions teach nothing.",
    ),
    row(
        B::Agent,
        "top_k",
        count(0),
        Default::Integer(0),
        "Draws among so many likeliest tokens (Fan et al. 2018). 0 by default: among all. Training divides by the \
         same tokens' probabilities, so that what was sampled is what is trained on. What is left out is never \
         explored, so not without need in training.",
    ),
    row(
        B::Agent,
        "top_p",
        positive(1.0),
        Default::Number(1.0),
        "Draws among the fewest likeliest tokens whose probabilities reach this sum (Holtzman et al. 2019). 1 by \
         default: among all. Trained on like `top_k`.",
    ),
    row(
        B::Agent,
        "min_p",
        number(0.0, 1.0),
        Default::Number(0.0),
        "Draws among tokens at least this fraction as likely as the likeliest (Nguyen et al. 2024). 0 by default: \
         among all. Trained on like `top_k`.",
    ),
    row(
        B::Agent,
        "repetition_penalty",
        positive(100.0),
        Default::Number(1.0),
        "Makes tokens of the prompt and the completion less likely (Keskar et al. 2019): divides their positive \
         logits and multiplies negative ones. 1 by default, which changes nothing. Not on a policy that is trained: \
         training would not know of it.",
    ),
    row(
        B::Agent,
        "presence_penalty",
        number(-100.0, 100.0),
        Default::Number(0.0),
        "Taken off the logits of tokens that the completion holds. 0 by default. Not on a policy that is trained.",
    ),
    row(
        B::Agent,
        "frequency_penalty",
        number(-100.0, 100.0),
        Default::Number(0.0),
        "Taken off the logits once for every time that the completion holds the token. 0 by default. Not on a \
         policy that is trained.",
    ),
    row(
        B::Agent,
        "stop",
        Kind::Texts,
        Default::Absent("the strings that the agent's item asks for alone"),
        "Strings that end a completion and are no part of its text, beside those that the agent's item asks for. Not \
         what a good answer may hold.",
    ),
    row(
        B::Agent,
        "thinking",
        Kind::Boolean,
        Default::Absent("what the model's chat template does by itself"),
        "Whether the model may think before it answers, for models whose chat template has the switch (Qwen3). \
         Thoughts count towards `max_tokens`: not with a small one.",
    ),
    row(
        B::Agent,
        "max_tokens",
        count(1),
        Default::Integer(256),
        "Tokens of one completion, at most; a longer one is cut. 256 is room for a short program or a few steps of \
         reasoning; time and memory grow with it.",
    ),
    row(
        B::Turns,
        "max",
        count(1),
        Default::Integer(4),
        "Visits of one agent in an episode; one more and the episode is cut short. 4 by default: a bound for \
         loops, beyond what short tasks need.",
    ),
    row(
        B::Reward,
        "team",
        number(-1000.0, 1000.0),
        Default::Number(1.0),
        "Weight of the part that all agents share. 1 by default, as `local`: both count alike. 0 leaves it out; \
         alone, it can't tell who in the team did well.",
    ),
    row(
        B::Reward,
        "local",
        number(-1000.0, 1000.0),
        Default::Number(1.0),
        "Weight of each agent's own part. 1 by default, as `team`: both count alike. 0 leaves it out; alone, it \
         rewards nobody for the team's success.",
    ),
    row(
        B::Sandbox,
        "backend",
        Kind::Choice(BACKENDS),
        Default::Word("wasm"),
        "What runs untrusted code. `wasm` by default, as it needs nothing installed and starts a job in \
         milliseconds; `docker` for other languages and for packages that Python in WebAssembly does not have.",
    ),
    row(
        B::Sandbox,
        "timeout",
        Kind::Duration { min: Duration::from_millis(10), max: seconds(3600) },
        Default::Duration(seconds(20)),
        "Time of one job. 20s lets slow symbolic mathematics finish and stops endless loops before they cost \
         a step.",
    ),
    row(
        B::Sandbox,
        "memory",
        Kind::Bytes { min: 16 * MIB, max: 4 * GIB },
        Default::Bytes(256 * MIB),
        "Memory of one job. 256MiB is several times what Python with sympy takes.",
    ),
    row(
        B::Sandbox,
        "output",
        Kind::Bytes { min: KIB, max: 64 * MIB },
        Default::Bytes(64 * KIB),
        "Kept of each of a job's stdout and stderr. 64KiB is more than any prompt has room for.",
    ),
    row(
        B::Sandbox,
        "workers",
        Kind::Integer { min: 1, max: 1024 },
        Default::Integer(2),
        "Jobs at a time, each on a core of its own. 2 by default, so that jobs leave the model its cores.",
    ),
    row(
        B::Sandbox,
        "image",
        Kind::Text,
        Default::Absent("`pl-host-python`, which `pl-host sandbox image` makes"),
        "The image of the `docker` backend's containers: `name:tag`. Programs run in it as they are, with no network \
         and nothing to write to but their own folder and `/tmp`.",
    ),
    row(
        B::Sandbox,
        "pids",
        Kind::Integer { min: 1, max: 4096 },
        Default::Integer(64),
        "Processes and threads of one job (`docker`). 64: Python with its threads takes a dozen, and more are a \
         mistake or a bomb.",
    ),
    row(
        B::Sandbox,
        "cpus",
        Kind::Number { min: 0.01, max: 1024.0, above: false },
        Default::Number(1.0),
        "Processors of one job (`docker`). 1, so that as many workers as cores fill the machine.",
    ),
    row(
        B::Sandbox,
        "endpoints",
        Kind::Texts,
        Default::Absent("`$DOCKER_HOST`, or `unix:///var/run/docker.sock`"),
        "The Docker engines that share the load (`docker`): `unix://PATH`, `tcp://HOST:PORT`, or `https://HOST:PORT` \
         with `certificates`. One that fails is left out until it answers again.",
    ),
    row(
        B::Sandbox,
        "certificates",
        Kind::Path,
        Default::Absent("`$DOCKER_CERT_PATH`, or `~/.docker`"),
        "The folder of `ca.pem`, `cert.pem` and `key.pem` for `https` endpoints (`docker`).",
    ),
    row(
        B::Sandbox,
        "jobs_per_worker",
        Kind::Integer { min: 1, max: MOST },
        Default::Integer(1000),
        "A container is replaced after so many jobs (`docker`). A fresh one takes half a second, under a millisecond \
         for each of a thousand jobs.",
    ),
    row(
        B::Sandbox,
        "run",
        Kind::Texts,
        Default::Absent("the language's: `python3` or `sh`"),
        "The command line of programs (`docker`), as in `run = [\"node\", \"{file}\"]`. `{file}` stands for the \
         program's file.",
    ),
    row(
        B::Sandbox,
        "fallback",
        Kind::Choice(FALLBACKS),
        Default::Absent("a run without an engine does not start"),
        "What runs the jobs where no Docker engine answers or none has the image when the run starts.",
    ),
    row(
        B::Inference,
        "kv_cache",
        Kind::Bytes { min: MIB, max: 1024 * GIB },
        Default::Bytes(GIB),
        "Memory for keys and values, shared evenly by the models' weights. Where it runs out, completions wait; none \
         fails or comes out differently. 1GiB holds 23,000 tokens of a model like SmolLM2-135M, and is taken as it \
         is needed.",
    ),
    row(
        B::Inference,
        "slots",
        Kind::Integer { min: 1, max: 65_536 },
        Default::Integer(64),
        "Completions generated at a time; more wait. On two cores 64 bring a third more tokens a second than 16, and \
         each single completion takes longer. It changes memory and speed, not results.",
    ),
    row(
        B::Inference,
        "threads",
        Kind::Integer { min: 1, max: 1024 },
        Default::Absent("one per core"),
        "Threads of generation on a processor. It changes speed, not results.",
    ),
    row(
        B::Train,
        "algorithm",
        Kind::Choice(ALGORITHMS),
        Default::Word("at_grpo"),
        "How rewards become advantages. `at_grpo` by default: it needs no critic and keeps agents and turns \
         apart.",
    ),
    row(
        B::Train,
        "rollout",
        Kind::Choice(ROLLOUTS),
        Default::Word("tree"),
        "How the completions of a group are drawn. `tree` by default: only there do all of a group start from \
         one state, which is what comparing them assumes.",
    ),
    row(
        B::Train,
        "samples",
        Kind::Integer { min: 1, max: 1024 },
        Default::Integer(4),
        "Completions per group. 4 is the fewest with a useful mean and spread; cost grows with it. Not 1: there is \
         nothing to compare then.",
    ),
    row(
        B::Train,
        "tasks_per_step",
        count(1),
        Default::Integer(8),
        "Tasks played for one update. 8 keeps the gradient's noise bearable at a cost that a small machine \
         can pay.",
    ),
    row(
        B::Train,
        "steps",
        count(1),
        Default::Integer(100),
        "Updates in all. 100 by default, enough to see whether a team learns.",
    ),
    row(
        B::Train,
        "schedule",
        Kind::Choice(SCHEDULES),
        Default::Word("sync"),
        "How rollout and update share time. `sync` by default, as nothing is stale then.",
    ),
    row(
        B::Train,
        "learning_rate",
        positive(1.0),
        Default::Number(5e-6),
        "Step size of the optimiser (AdamW). 5e-6 is safe for a whole model; adapters usually take ten times \
         as much and more.",
    ),
    row(
        B::Train,
        "lr_schedule",
        Kind::Choice(LR_SCHEDULES),
        Default::Word("constant"),
        "How the learning rate changes over the steps. `constant` by default: a run can then be prolonged. `cosine` \
         for a run whose length is settled.",
    ),
    row(
        B::Train,
        "warmup",
        count(0),
        Default::Integer(0),
        "Steps over which the learning rate rises from zero. None by default; small learning rates need none.",
    ),
    row(
        B::Train,
        "weight_decay",
        number(0.0, 1.0),
        Default::Number(0.0),
        "Decoupled weight decay of the optimiser. None by default: a short run should not forget.",
    ),
    row(
        B::Train,
        "max_grad_norm",
        positive(1e6),
        Default::Number(1.0),
        "Largest norm of a policy's gradient; a larger one is scaled down. 1 is the usual guard against a \
         single bad batch.",
    ),
    row(
        B::Train,
        "epochs",
        Kind::Integer { min: 1, max: 100 },
        Default::Integer(1),
        "Passes over a step's transitions. 1 by default, which is strictly on-policy; more draw more from each \
         sample, take as many times longer to train, and lean on the clip.",
    ),
    row(
        B::Train,
        "mini_batches",
        Kind::Integer { min: 1, max: 4096 },
        Default::Integer(1),
        "Optimiser steps per pass. 1 by default, which is strictly on-policy; more go further with each step's \
         samples, the later ones on samples of an older policy.",
    ),
    row(
        B::Train,
        "clip_low",
        number(0.0, 1.0),
        Default::Number(0.2),
        "Ratios below 1 - this gain nothing more. 0.2 as in PPO (Schulman et al. 2017).",
    ),
    row(
        B::Train,
        "clip_high",
        number(0.0, 100.0),
        Default::Number(0.28),
        "Ratios above 1 + this gain nothing more. 0.28, wider than below, keeps rare tokens alive (clip-higher, \
         Yu et al. 2025).",
    ),
    row(
        B::Train,
        "dual_clip",
        number(0.0, 1000.0),
        Default::Number(3.0),
        "Bound on the loss of a negative advantage, in advantages (Ye et al. 2020); 0 turns it off, and other \
         values up to 1 bind too early. 3 as in the paper.",
    ),
    row(
        B::Train,
        "normalize",
        Kind::Boolean,
        Default::Boolean(true),
        "Whether advantages are divided by their group's standard deviation. On by default, as in GRPO; off, \
         as Dr. GRPO has it, easy and hard tasks are no longer weighted up.",
    ),
    row(
        B::Train,
        "shuffle_rewards",
        Kind::Boolean,
        Default::Boolean(false),
        "Whether rewards change places at random within their groups before training. Off; on, the run is a \
         control that has nothing to learn from: what still moves is drift, not learning.",
    ),
    row(
        B::Train,
        "token_budget",
        Kind::Integer { min: 16, max: 1 << 24 },
        Default::Integer(512),
        "Tokens, prompts included, in one forward pass of training; a prompt that samples share counts once. It \
         changes memory and speed, and results by rounding alone. 512 keeps the training of a model like \
         SmolLM2-135M under 4 GB.",
    ),
    row(
        B::Train,
        "gradient_checkpointing",
        Kind::Boolean,
        Default::Boolean(false),
        "Whether training keeps only each block's input and runs the block again on its way back (Chen et al. \
         2016). Off; on, a pass needs about a tenth of the memory per token and about a third more time.",
    ),
    row(
        B::Train,
        "checkpoint_every",
        count(1),
        Default::Integer(10),
        "Steps between checkpoints. With 10, a run that was killed loses at most ten steps.",
    ),
    row(
        B::Train,
        "keep_checkpoints",
        Kind::Integer { min: 1, max: 10_000 },
        Default::Integer(2),
        "Newest checkpoints kept; the best is kept besides. 2, so that one whole checkpoint outlives the \
         writing of the next.",
    ),
    row(
        B::Train,
        "episodes",
        Kind::Integer { min: 1, max: 100_000 },
        Default::Integer(64),
        "Episodes in flight. 64 fills the model's batches; each holds a copy of the environment. It changes \
         memory and speed, not results.",
    ),
    row(
        B::Evaluate,
        "every",
        count(0),
        Default::Integer(0),
        "Training steps between evaluations. 0 by default: only when asked for, as evaluations cost time.",
    ),
    row(
        B::Evaluate,
        "tasks",
        Kind::Path,
        Default::Absent("tasks from the environment's own generator, of a split kept apart from training"),
        "A JSONL file with one task per line. Use one that training does not read.",
    ),
    row(
        B::Evaluate,
        "level",
        Kind::Integer { min: 0, max: 100 },
        Default::Absent("the environment's level"),
        "Difficulty of generated tasks; to measure on harder tasks than are trained on. Not together with `tasks`.",
    ),
    row(
        B::Evaluate,
        "limit",
        count(1),
        Default::Integer(200),
        "Tasks, at most. 200 tell success rates about seven points apart.",
    ),
    row(
        B::Evaluate,
        "samples",
        Kind::Integer { min: 1, max: 1024 },
        Default::Integer(1),
        "Episodes per task; with more than one, pass@k is reported too. 1 by default: cost grows with it, and more \
         tasks tell more than more samples.",
    ),
    row(
        B::Evaluate,
        "temperature",
        number(0.0, 10.0),
        Default::Absent("the agents' own temperature"),
        "Temperature of all agents; 0 makes the evaluation repeatable for any seed.",
    ),
    row(
        B::Evaluate,
        "top_k",
        count(0),
        Default::Absent("the agents' own"),
        "`top_k` of all agents; 0 draws among all tokens.",
    ),
    row(
        B::Evaluate,
        "top_p",
        positive(1.0),
        Default::Absent("the agents' own"),
        "`top_p` of all agents; 1 draws among all tokens.",
    ),
    row(
        B::Evaluate,
        "min_p",
        number(0.0, 1.0),
        Default::Absent("the agents' own"),
        "`min_p` of all agents; 0 draws among all tokens.",
    ),
    row(
        B::Evaluate,
        "repetition_penalty",
        positive(100.0),
        Default::Absent("the agents' own"),
        "`repetition_penalty` of all agents; 1 is none. Nothing is trained here, so any policy may have one.",
    ),
    row(
        B::Evaluate,
        "presence_penalty",
        number(-100.0, 100.0),
        Default::Absent("the agents' own"),
        "`presence_penalty` of all agents; 0 is none.",
    ),
    row(
        B::Evaluate,
        "frequency_penalty",
        number(-100.0, 100.0),
        Default::Absent("the agents' own"),
        "`frequency_penalty` of all agents; 0 is none.",
    ),
];
