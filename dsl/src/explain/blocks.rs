//! Descriptions of the blocks.

use crate::syntax::block_kind::BlockKind;

impl BlockKind {
    /// Short description of an inner block.
    pub fn purpose(self) -> &'static str {
        match self {
            BlockKind::Lora => "a trainable adapter; without it, the whole model is trained",
            BlockKind::PolicyTrain => "settings of its training that differ from those of the file",
            BlockKind::Critic => "the critic of `advantage = gae`, if it differs from the defaults",
            BlockKind::PolicyDevices => "devices of the policy that differ from those of the file",
            BlockKind::Roles => "agents that use other policies in this evaluation",
            BlockKind::Grant => "access to folders and hosts; without it, the plugin has none",
            BlockKind::Palette => "what its designs may use; required",
            BlockKind::Turns => "the order in which agents act; required without `designer`",
            BlockKind::Curriculum => "a level of generated tasks that rises during training",
            _ => "",
        }
    }

    /// Description of the block.
    pub fn doc(self) -> &'static str {
        match self {
            BlockKind::Workflow => {
                "Name of the workflow, which is also used for its run folder. Required exactly once in a file that is \
                 run."
            }
            BlockKind::Include => {
                "Inserts the blocks of another file. The path is relative to the file that contains the statement. \
                 Use it for blocks that several workflows have in common; `use` takes single parts of a file."
            }
            BlockKind::Use => {
                "Makes the params, plugins, models, servers, corpora, policies, agents and templates of another file available \
                 as `NAME.THEIRS`. Parts that are not used are neither checked nor loaded, so the other file may be a \
                 complete workflow."
            }
            BlockKind::Param => {
                "A named value with a type, which can be set from outside (`--set NAME=VALUE`). The types are `int`, \
                 `float`, `bool`, `string`, `size`, `duration` and `list(TYPE)`; `in 1..64` or `in [\"a\", \"b\"]` \
                 restricts the values. Without `= VALUE`, the value is required from outside."
            }
            BlockKind::Plugin => {
                "A WebAssembly component that provides environments, agents and rewards. It has no clock, and no \
                 files or network except through `grant`. These settings limit every call. The plugin `std` is always \
                 available."
            }
            BlockKind::Model => {
                "A source of weights. Policies start from it; the model itself never changes."
            }
            BlockKind::Server => {
                "Servers that generate the completions of policies in place of this program: one address, or several of \
                 servers with the same models. Policies that name it are still trained here."
            }
            BlockKind::Corpus => {
                "Passages that an environment searches: a file, or a retrieval server of one's own. A file is JSONL, or one \
                 JSON object of titles and sentences; its index (BM25) is built once and cached. An environment that \
                 names the corpus may search it; other parts of the team see only what the environment shows."
            }
            BlockKind::Template => {
                "An agent or a policy with parameters: `agent NAME = TEMPLATE(…)` creates an instance. A parameter \
                 has the type of a param, or `policy` or `model`, and may have a default. A block that is created \
                 from a template may have settings of its own, which override those of the template."
            }
            BlockKind::Policy => {
                "The weights that generate the completions of agents and that training updates: an adapter on a model \
                 (`lora { … }`), or without it a copy of the whole model."
            }
            BlockKind::Environment => {
                "The source of tasks, of the views of agents, and of the effects of their actions: an item of a \
                 plugin. Required exactly once in a file without scenarios. Further settings are declared by the item."
            }
            BlockKind::Agent => {
                "A member of the team: an item of a plugin that builds prompts and parses completions, the policy \
                 that generates them, and the sampling settings. Further settings are declared by the item."
            }
            BlockKind::Turns => {
                "The order in which agents act: edges from `start` to `end`, tried in the order in which they are \
                 written. `a -> b` leads from one agent to the next, the agents of `[a, b]` act in parallel on the \
                 same view, and `when` adds a condition on `env.FACT`, `turn`, `reward.PART` and params. \
                 Required exactly once: in the file, or in each scenario."
            }
            BlockKind::Reward => {
                "The score of an episode: an item of a plugin that scores the team and each agent, and the weights of \
                 both parts. Required exactly once in a file without scenarios. Further settings are declared by the item."
            }
            BlockKind::Designer => {
                "A model that writes teams: agents and turns in this language, from a palette. `pl-host design` lets it propose \
                 designs for the scenarios that name it, plays them, shows it the results and asks again. A design has no \
                 plugins, models, paths or grants, and is checked like any workflow before it is played."
            }
            BlockKind::Scenario => {
                "An environment, the turns that agents play in it, and their reward. A file with `scenario` blocks may have \
                 several environments and rewards; a file without them has one of each, and its `turns` outside. All \
                 scenarios of a file are trained together and evaluated apart."
            }
            BlockKind::Mix => {
                "Weights of the scenarios, by their names. Each step's `tasks_per_step` tasks are split among the scenarios \
                 so that their shares of all tasks so far are as close to the weights as whole numbers allow. Without \
                 the block, all weights are equal. With it, every scenario has one; 0 leaves a scenario to evaluations."
            }
            BlockKind::Sandbox => {
                "The backend that runs code written by models, and its limits. Optional; the defaults apply without \
                 it."
            }
            BlockKind::Inference => {
                "Generation of completions. Optional; the defaults apply without it. It affects memory and speed, not \
                 results."
            }
            BlockKind::Devices => {
                "Devices that policies are generated for and trained on: cores of the CPU, or a GPU. Optional; without it, \
                 both use the whole machine. Rollouts and training that overlap (`schedule = one_step_off`, `async`) then \
                 don't take each other's time. A policy may have others in a `devices { … }` of its own."
            }
            BlockKind::Cluster => {
                "The NATS server through which other machines play the episodes of `run`: each runs `pl-host worker`. \
                 Optional; without it, one process does everything. Results don't depend on it. `run --nats`, \
                 `--local-cluster` and `--no-cluster` take precedence; commands other than `run` and `sweep` ignore it."
            }
            BlockKind::Train => {
                "Training of the policies. A file without it can be played and evaluated. The settings of the \
                 objective and of the optimiser are defaults: a policy may have others in a `train { … }` of its own."
            }
            BlockKind::Evaluate => {
                "A measurement on tasks that training doesn't use, at regular intervals or on demand with \
                 `pl-host evaluate`. A file may have several."
            }
            BlockKind::Lora => {
                "Written inside a policy: trains a small adapter (low-rank adaptation, Hu et al. 2021) instead of the \
                 whole model. It needs far less memory, and policies can share one model."
            }
            BlockKind::PolicyTrain => {
                "Written inside a policy: settings of its training that differ from those of the file's `train`, such as \
                 `train { learning_rate = 1e-5; kl = 0.01 }`. Allowed are the settings of the objective and of the \
                 optimiser, `freeze`, `update_every` and `tasks_per_update`. `--set coder.train.kl=0.01` adds the block \
                 if the policy has none. An `algorithm` in it also replaces the choices that the file's `train` has written for its own."
            }
            BlockKind::Critic => {
                "Written inside a policy with `advantage = gae`: a value head that estimates the return from each token \
                 on. It reads the hidden states of the policy, of an adapter of its own or of a model of its own. \
                 Without the block, the policy has a critic with the defaults."
            }
            BlockKind::PolicyDevices => {
                "Written inside a policy: devices that differ from those of the file's `devices`. Policies with the same \
                 `rollout` share a pool; others get an engine of their own, with a copy of their model. The adapters of one \
                 model are trained together, so they have the same `train`."
            }
            BlockKind::Curriculum => {
                "Written inside an environment, in place of `level`: the level of generated tasks begins at `from` and rises \
                 by one up to `to`, when the success of `window` steps reaches `raise_at`, or after `every` steps. Each \
                 scenario has a level of its own, which checkpoints keep. Evaluations stay at one level."
            }
            BlockKind::Roles => {
                "Written inside an evaluation: maps agents to policies other than their own, such as \
                 `roles { tool = reasoner; reason = plain }`, to swap roles or to measure with an untrained partner. \
                 Agents that are not mentioned keep their policy. Training is not affected."
            }
            BlockKind::Palette => {
                "Written inside a designer: the items and policies that its designs may use, and the bounds within which they \
                 stay. A design beyond them is not played."
            }
            BlockKind::Grant => {
                "Written inside a plugin: access to folders and to hosts over HTTP. Without it, a plugin has no \
                 access. `plan` shows the grants, and the run's `lock.json` records them."
            }
        }
    }
}
