//! Settings of the blocks that describe a team: policies, environment, agents, turns, reward.

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{count, number, positive, setting, word};
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

const LONG_PROMPTS: &[Choice] = &[
    word("end", "ends the episode as truncated, with the turns before trained on"),
    word("left", "leaves out tokens at the beginning, which may cut the system prompt"),
    word("middle", "leaves out tokens in the middle"),
];

use BlockKind as B;

/// Settings of these blocks, block by block.
pub(super) const TEAM: &[Setting] = &[
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
         and template. Each new version of a trained policy is loaded there before it is used: its adapter, or \
         without `lora` all weights of the model `served`. Kinds that can't do that are refused.",
    ),
    setting(
        B::Policy,
        "served",
        SettingKind::Text,
        DefaultValue::Absent(
            "the server's base model, or the policy's name for a trained policy without `lora`",
        ),
        "Name of the model on the server: of a partner with `train = false`, or of the model whose weights a trained \
         policy without `lora` replaces. Except on a hosted model it must have the tokenizer of the policy's `model`.",
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
        SettingKind::Tasks,
        DefaultValue::Absent("tasks from the environment's generator"),
        "JSONL file with one task per line, a folder of the hub's layout (`./FOLDER:SPLIT`), or `NAME:SPLIT` of a data set \
         (`pl-host data list` shows them). All tasks are read and checked before the run starts. Excludes `level` and \
         `curriculum`.",
    ),
    setting(
        B::Environment,
        "level",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(1),
        "Difficulty of generated tasks; the environment defines the meaning of each level. 1 by default, the \
         easiest level that a small model can learn from. Excludes `tasks` and `curriculum`.",
    ),
    setting(
        B::Curriculum,
        "from",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Integer(1),
        "Level of the tasks of the first step. 1 by default, like `level`.",
    ),
    setting(
        B::Curriculum,
        "to",
        SettingKind::Integer { min: 0, max: 100 },
        DefaultValue::Required,
        "Highest level, at which training stays. Evaluations without a `level` have this one throughout, so that their \
         results can be compared.",
    ),
    setting(
        B::Curriculum,
        "raise_at",
        SettingKind::Number { min: 0.0, max: 1.0, above: true },
        DefaultValue::Number(0.8),
        "Success at which the level rises by one: the mean of `rollout_success` over the last `window` steps, all with \
         tasks of the current level. 0.8 by default: a level that is nearly always solved has little left to teach. \
         Excludes `every`.",
    ),
    setting(
        B::Curriculum,
        "window",
        SettingKind::Integer { min: 1, max: 1000 },
        DefaultValue::Integer(4),
        "Number of steps whose success is averaged. 4 by default, so that one lucky step doesn't raise the level. Counts \
         steps in which the scenario had a task. Excludes `every`.",
    ),
    setting(
        B::Curriculum,
        "every",
        SettingKind::Integer { min: 1, max: 1_000_000 },
        DefaultValue::Absent("the level rises by success"),
        "Number of steps after which the level rises by one, whatever the success. Excludes `raise_at` and `window`.",
    ),
    setting(
        B::Environment,
        "corpus",
        SettingKind::CorpusNames,
        DefaultValue::Absent("the environment has nothing to search"),
        "Corpus that the environment may search, or a list such as `[wiki, papers]`: a search names one of them, or \
         means the first. Agents see of it only what the environment shows them. The setting is the program's: the plugin \
         doesn't get it.",
    ),
    setting(
        B::Environment,
        "drawings",
        SettingKind::Boolean,
        DefaultValue::Boolean(true),
        "Records the environment's drawings of its states in the traces, where `pl-host view` shows them. No effect on \
         environments that draw nothing. `false` saves disk space and a call for each step.",
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
        "Divisor of the logits before sampling, at least 0.01; 0 selects the most likely token. 1 by default: \
         training needs samples from the policy's own distribution. Don't use 0 for a trained policy: identical \
         completions carry no signal.",
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
        "grammar",
        SettingKind::Text,
        DefaultValue::Absent("any text"),
        "Grammar of the completions, in the dialect of Lark that llguidance reads, such as `\"start: /[0-9]+/\"` or \
         `file(\"answer.lark\")`. Only tokens that it allows are sampled, among which `top_k`, `top_p` and `min_p` choose; a \
         completion that nears `max_tokens` is led to a short ending. Training normalises over the same tokens, whose ids \
         it keeps: 4 bytes for each allowed token, so give long free texts a `top_k` or `min_p` too. It holds for the \
         whole completion, thoughts too; `stop` strings still end one. Servers with `kind = vllm` are sent it, others refused. \
         Excludes `json_schema`.",
    ),
    setting(
        B::Agent,
        "json_schema",
        SettingKind::Text,
        DefaultValue::Absent("any text"),
        "JSON Schema that the completions fit, as text or `file(\"answer.json\")`. Works like `grammar`, which it excludes. \
         Keys come in the order of the schema. What the schema leaves open may come up: say \
         `\"additionalProperties\": false`, and bound strings and lists.",
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
        "long_prompt",
        SettingKind::Choice(LONG_PROMPTS),
        DefaultValue::Word("end"),
        "Rule for a prompt that is too long for the model's context. `end` by default, for a prompt that leaves no room for \
         a completion: one with parts missing asks something else. If the results of tool calls make a prompt too long, the \
         completion before them is the turn's last, and the episode ends after the turn. The others cut every prompt that \
         leaves no room for `max_tokens`, of which at most half of the context counts.",
    ),
    setting(
        B::Agent,
        "tool_rounds",
        SettingKind::Integer { min: 0, max: 1000 },
        DefaultValue::Integer(8),
        "Maximum number of times that the model is asked again within a turn, each time with the results of its tool \
         calls; the completion after the last is taken as it is. 8 by default: most tasks need two or three. `0` leaves \
         all tool calls to the agent's `parse`. Every round is a prompt of its own, whose beginning is cached.",
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
        B::Scenario,
        "environment",
        SettingKind::Environment,
        DefaultValue::Required,
        "Environment that its turns are played in. Several scenarios may share one; each has its own position in the \
         tasks.",
    ),
    setting(
        B::Scenario,
        "reward",
        SettingKind::Reward,
        DefaultValue::Required,
        "Reward of its episodes. Several scenarios may share one.",
    ),
    setting(
        B::Scenario,
        "designer",
        SettingKind::Designer,
        DefaultValue::Absent("its `turns` are its team"),
        "Designer that writes the scenario's team. `turns` may be missing then: `pl-host design` looks for a team, and `run` \
         trains on the designer's teams. `evaluate` and `play` refuse the scenario, and so does a `run` that evaluates it. \
         With `turns` of its own, evaluations and `play` use them, `run` doesn't train on them, and `design` plays them first.",
    ),
];
