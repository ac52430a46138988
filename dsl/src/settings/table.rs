//! Settings of all blocks but those of the training of a policy, with their types, defaults and descriptions.

use std::time::Duration;

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{MAX_U32, count, in_head, number, positive, seconds, setting, word};
use super::units::{GIB, KIB, MIB};
use crate::syntax::block_kind::BlockKind;

/// Words of `lora { targets = … }`.
pub const TARGETS: &[Choice] = &[
    word("q", "query projection"),
    word("k", "key projection"),
    word("v", "value projection"),
    word("o", "output projection of the attention"),
    word("gate", "gate projection of the feed-forward part"),
    word("up", "up projection of the feed-forward part"),
    word("down", "down projection of the feed-forward part"),
];

/// Words of `layout = …`.
pub const LAYOUTS: &[Choice] = &[
    word("L0", "one agent"),
    word("L1", "several agents on one policy"),
    word("L2", "one base model with an adapter per policy"),
    word("L3", "one base model per policy"),
    word("mixed", "some policies share a base model, others don't"),
];

const BACKENDS: &[Choice] = &[
    word(
        "wasm",
        "Python in WebAssembly inside the program, with a new instance per job; needs no installation",
    ),
    word("docker", "a pool of running containers, for any language; needs a Docker engine with an image"),
];

const FALLBACKS: &[Choice] = &[word("wasm", "the `wasm` backend, which runs only Python")];

const DTYPES: &[Choice] = &[
    word("f32", "32 bits"),
    word("f16", "16 bits with a mantissa of 10 bits"),
    word("bf16", "16 bits with a mantissa of 7 bits and the range of f32"),
];

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

const SERVER_KINDS: &[Choice] = &[
    word(
        "vllm",
        "vLLM, or another `pl-host serve`: token ids over `/inference/v1/generate`, adapters loaded at run time",
    ),
    word("llamacpp", "llama.cpp's `llama-server`: for policies that are not trained"),
];

use BlockKind as B;

/// Settings block by block.
pub(super) const SETTINGS: &[Setting] = &[
    in_head(
        B::Plugin,
        "path",
        SettingKind::Path,
        "Path of the WebAssembly component, relative to the workflow file.",
    ),
    in_head(
        B::Model,
        "source",
        SettingKind::Source,
        "Name of a built-in model (`smollm2-135m`), `hf:ORGANISATION/NAME`, or the path of a Hugging Face \
         folder or a GGUF file.",
    ),
    setting(
        B::Model,
        "dtype",
        SettingKind::Choice(DTYPES),
        DefaultValue::Absent("`f32` on a CPU, `bf16` on a GPU"),
        "Number format of the weight matrices. Norms, biases, adapters and all sums stay f32. With 16 bits, \
         generation reads half as much memory and is faster. Training computes with the same rounded weights; \
         a policy that is trained without an adapter keeps f32 master weights. On a CPU, f16 is more precise; \
         GPUs compute in bf16.",
    ),
    in_head(
        B::Server,
        "addresses",
        SettingKind::Addresses,
        "Address of the server, or a list of several that serve the same models. Requests go to the server that \
         had a prompt with the same beginning last, unless it has much more to do than another.",
    ),
    setting(
        B::Server,
        "kind",
        SettingKind::Choice(SERVER_KINDS),
        DefaultValue::Word("vllm"),
        "API of the servers. `vllm` by default: only its adapters can be replaced during a run.",
    ),
    setting(
        B::Server,
        "key_variable",
        SettingKind::Text,
        DefaultValue::Absent("no key is sent"),
        "Environment variable with the key that requests carry. The key itself never stands in a file. Without \
         `https`, it crosses the network readably.",
    ),
    setting(
        B::Server,
        "timeout",
        SettingKind::Duration { min: seconds(1), max: seconds(86_400) },
        DefaultValue::Duration(seconds(300)),
        "Maximum time of one request, from sending it to the end of its answer. 300s is enough for thousands of \
         tokens on a busy server. A request that takes longer is sent to another server.",
    ),
    setting(
        B::Server,
        "connections",
        SettingKind::Integer { min: 1, max: 65_536 },
        DefaultValue::Integer(100),
        "Maximum number of requests in progress per server; further ones wait here. 100 fills the batch of a \
         server with one GPU. It affects speed, not results.",
    ),
    setting(
        B::Server,
        "retries",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(3),
        "Number of times that a request is sent again after a wrong answer, an error or a timeout of a server, before \
         its episode fails. Servers that can't be reached or are busy don't count: requests wait for them.",
    ),
    setting(
        B::Plugin,
        "memory",
        SettingKind::Bytes { min: 64 * KIB, max: 4 * GIB },
        DefaultValue::Bytes(64 * MIB),
        "Maximum linear memory of one instance. 64MiB holds the state of any text environment; an interpreter \
         inside a plugin may need more. If a plugin requests more, its episode fails.",
    ),
    setting(
        B::Plugin,
        "fuel",
        SettingKind::Integer { min: 10_000, max: i64::MAX },
        DefaultValue::Integer(2_000_000_000),
        "Maximum work of one call, about one unit per instruction. 2e9 units take about a second: far more \
         than a normal call needs, and short enough to stop an endless loop. Fuel is counted, not timed, so \
         the limit is the same on every machine.",
    ),
    setting(
        B::Plugin,
        "timeout",
        SettingKind::Duration { min: Duration::from_millis(10), max: seconds(3600) },
        DefaultValue::Duration(seconds(10)),
        "Maximum wall-clock time of one call, as a safety net if fuel doesn't stop it. 10s is several times \
         what the default fuel takes. If the timeout strikes, the run is marked as not reproducible.",
    ),
    setting(
        B::Grant,
        "read",
        SettingKind::Texts,
        DefaultValue::Absent("no folder"),
        "Folders that the plugin may read, relative to the workflow file. The plugin sees the folder \
         `data/tables` as `/tables`. The files are read once, when the plugin is loaded, and `lock.json` \
         records their hashes.",
    ),
    setting(
        B::Grant,
        "http",
        SettingKind::Texts,
        DefaultValue::Absent("no host"),
        "Hosts that the plugin may contact over HTTP: `api.example.org` (HTTPS on port 443), or \
         `localhost:8080` for that port, encrypted or not. A name that leads to a private address is refused \
         unless the grant has that address itself. An episode that contacts a host is not \
         reproducible and is marked so; `replay` gives it the recorded responses.",
    ),
    setting(
        B::Policy,
        "model",
        SettingKind::Model,
        DefaultValue::Required,
        "Model that the policy starts from. Policies with `lora` on the same model share its weights; each \
         policy without `lora` needs memory for a copy of the whole model.",
    ),
    setting(
        B::Policy,
        "train",
        SettingKind::Boolean,
        DefaultValue::Boolean(true),
        "Trains the policy. On by default; turn it off for a partner that should not change. A block \
         `train { … }` in a policy has the settings of its training that differ from those of the file.",
    ),
    setting(
        B::Policy,
        "from",
        SettingKind::Path,
        DefaultValue::Absent("the model as it is, and a fresh adapter"),
        "Adapter folder (PEFT) to start from, or a model folder for a policy without `lora`. Use it to build \
         on an earlier run; to continue a run, use `run --resume`.",
    ),
    setting(
        B::Policy,
        "server",
        SettingKind::Server,
        DefaultValue::Absent("the policy is served by this program"),
        "Server that generates the policy's completions; prompts are still made here, with the model's tokenizer \
         and template. A policy that is trained must have `lora` and a server of kind `vllm`: each new version of \
         its adapter is loaded there before it is used.",
    ),
    setting(
        B::Policy,
        "served",
        SettingKind::Text,
        DefaultValue::Absent("the server's base model"),
        "Name of the model on the server, for a policy with `train = false`, such as a judge. It must have the \
         tokenizer of the policy's `model`.",
    ),
    setting(
        B::Lora,
        "rank",
        SettingKind::Integer { min: 1, max: 1024 },
        DefaultValue::Integer(16),
        "Rank of the adapter. 16 is a common middle value: a smaller rank saves little memory, a larger one \
         is seldom better.",
    ),
    setting(
        B::Lora,
        "alpha",
        positive(65536.0),
        DefaultValue::Number(32.0),
        "Scale of the adapter: its output is multiplied by alpha / rank. 32 gives the common factor of 2 at \
         the default rank.",
    ),
    setting(
        B::Lora,
        "targets",
        SettingKind::Choices(TARGETS),
        DefaultValue::AllWords,
        "Projections that get an adapter. All seven by default, which is closest to training the whole model.",
    ),
    setting(
        B::Environment,
        "tasks",
        SettingKind::Path,
        DefaultValue::Absent("tasks from the environment's generator"),
        "JSONL file with one task per line. The whole file is read and checked before the run starts. \
         Excludes `level`.",
    ),
    setting(
        B::Environment,
        "level",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(1),
        "Difficulty of generated tasks; the environment defines the meaning of each level. 1 by default, the \
         easiest level that a small model can learn from. Excludes `tasks`.",
    ),
    setting(
        B::Agent,
        "policy",
        SettingKind::Policy,
        DefaultValue::Required,
        "Policy that generates the agent's completions. Agents that share a policy learn from each other's \
         tokens and need memory for one policy only.",
    ),
    setting(
        B::Agent,
        "temperature",
        number(0.0, 10.0),
        DefaultValue::Number(1.0),
        "Divisor of the logits before sampling; 0 selects the most likely token. 1 by default: training needs \
         samples from the policy's own distribution. Don't use 0 for a trained policy: identical completions \
         carry no signal.",
    ),
    setting(
        B::Agent,
        "top_k",
        count(0),
        DefaultValue::Integer(0),
        "Samples among this many of the most likely tokens (Fan et al. 2018). 0 by default: among all tokens. \
         Training normalises probabilities over the same tokens, so that it uses the distribution that was \
         sampled. Excluded tokens are never explored, so leave it off in training unless you need it.",
    ),
    setting(
        B::Agent,
        "top_p",
        positive(1.0),
        DefaultValue::Number(1.0),
        "Samples among the smallest set of most likely tokens whose probabilities reach this sum (Holtzman et \
         al. 2019). 1 by default: among all tokens. Training accounts for it as for `top_k`.",
    ),
    setting(
        B::Agent,
        "min_p",
        number(0.0, 1.0),
        DefaultValue::Number(0.0),
        "Samples among tokens that are at least this fraction as likely as the most likely one (Nguyen et al. \
         2024). 0 by default: among all tokens. Training accounts for it as for `top_k`.",
    ),
    setting(
        B::Agent,
        "repetition_penalty",
        positive(100.0),
        DefaultValue::Number(1.0),
        "Makes tokens of the prompt and the completion less likely (Keskar et al. 2019): positive logits are \
         divided by it, negative ones multiplied. 1 by default, which changes nothing. Not allowed for a \
         trained policy, because training doesn't account for it.",
    ),
    setting(
        B::Agent,
        "presence_penalty",
        number(-100.0, 100.0),
        DefaultValue::Number(0.0),
        "Subtracted from the logit of every token that the completion already contains. 0 by default. Not \
         allowed for a trained policy.",
    ),
    setting(
        B::Agent,
        "frequency_penalty",
        number(-100.0, 100.0),
        DefaultValue::Number(0.0),
        "Subtracted from the logit of a token once per occurrence in the completion. 0 by default. Not \
         allowed for a trained policy.",
    ),
    setting(
        B::Agent,
        "stop",
        SettingKind::Texts,
        DefaultValue::Absent("only the strings of the agent's item"),
        "Strings that end a completion, in addition to those of the agent's item. They are not part of the \
         text. Don't use strings that a good answer may contain.",
    ),
    setting(
        B::Agent,
        "thinking",
        SettingKind::Boolean,
        DefaultValue::Absent("the default of the model's chat template"),
        "Lets the model think before it answers, for models whose chat template has this switch (Qwen3). \
         Thoughts count towards `max_tokens`, so don't combine it with a small limit.",
    ),
    setting(
        B::Agent,
        "max_tokens",
        count(1),
        DefaultValue::Integer(256),
        "Maximum number of tokens of one completion; a longer one is cut off. 256 has room for a short \
         program or a few steps of reasoning. Time and memory grow with it.",
    ),
    setting(
        B::Turns,
        "max",
        count(1),
        DefaultValue::Integer(4),
        "Maximum number of visits of one agent in an episode; one more visit ends the episode. 4 by default: \
         a limit for loops that short tasks don't reach.",
    ),
    setting(
        B::Reward,
        "team",
        number(-1000.0, 1000.0),
        DefaultValue::Number(1.0),
        "Weight of the part of the reward that all agents share. 1 by default, like `local`, so that both \
         count equally. 0 disables it. On its own, it can't tell which agent did well.",
    ),
    setting(
        B::Reward,
        "local",
        number(-1000.0, 1000.0),
        DefaultValue::Number(1.0),
        "Weight of each agent's own part of the reward. 1 by default, like `team`, so that both count \
         equally. 0 disables it. On its own, it doesn't reward the success of the team.",
    ),
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
        "endpoints",
        SettingKind::Texts,
        DefaultValue::Absent("`$DOCKER_HOST`, or `unix:///var/run/docker.sock`"),
        "Docker engines that share the load (`docker`): `unix://PATH`, `tcp://HOST:PORT`, or \
         `https://HOST:PORT` with `certificates`. An engine that fails is skipped until it responds again.",
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
        "Number of jobs after which a container is replaced (`docker`). A new container takes half a second: \
         spread over a thousand jobs, less than a millisecond each.",
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
        DefaultValue::Bytes(GIB),
        "Memory for the KV cache, divided evenly between the models. If it is full, completions wait; results \
         don't change. 1GiB holds 23,000 tokens of a model like SmolLM2-135M, and is allocated as needed.",
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
        "Amount that a completion with a fault is penalised by: its reward is minus that number, for all of the \
         turn's agents (`faults = penalize`). 1 by default, as far below a wrong answer as a right one is above it.",
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
    setting(
        B::Train,
        "staleness",
        SettingKind::Integer { min: 0, max: 64 },
        DefaultValue::Absent("1 for `one_step_off`, 2 for `async`"),
        "Number of updates that the weights of a rollout may lack (`schedule = async`). Each step is played with \
         the weights of exactly so many updates before, so results don't depend on timing; 0 is the same run as \
         `sync`. Larger numbers even out slow steps, and learn from older samples. Each needs memory for a copy \
         of the trained weights.",
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
        DefaultValue::Integer(512),
        "Number of tokens, prompts included, in one forward pass of training; a prompt that several samples \
         share counts once. It affects memory and speed, and results only by rounding. With 512, training a \
         model like SmolLM2-135M needs less than 4 GB.",
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
         success in the first `evaluate` block with `every`, and `checkpoints/best` links to it. 2, so that one \
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
        "every",
        count(0),
        DefaultValue::Integer(0),
        "Number of training steps between evaluations. 0 by default: only `pl-host evaluate` runs it, because \
         evaluations take time.",
    ),
    setting(
        B::Evaluate,
        "tasks",
        SettingKind::Path,
        DefaultValue::Absent(
            "tasks from the environment's generator, from a split that training doesn't use",
        ),
        "JSONL file with one task per line. Use a file that training doesn't read.",
    ),
    setting(
        B::Evaluate,
        "level",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Absent("the environment's level"),
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
        "Number of episodes per task; with more than one, pass@k is reported too. 1 by default: cost grows \
         with it, and more tasks say more than more samples.",
    ),
    setting(
        B::Evaluate,
        "temperature",
        number(0.0, 10.0),
        DefaultValue::Absent("the temperature of each agent"),
        "Temperature of all agents. With 0, the evaluation gives the same result for every seed.",
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
