//! Settings of the blocks that describe designers: the designer and its palette.

use super::kind::{Choice, DefaultValue, Setting, SettingKind};
use super::rows::{count, number, positive, setting, word};
use crate::syntax::block_kind::BlockKind as B;

/// Teams that people have written, which a search begins with.
pub const PATTERNS: &[Choice] = &[
    word("single", "one agent answers once"),
    word("reflection", "one agent answers, a second one criticises, and the first answers again"),
    word("debate", "two agents answer in turn, for two rounds"),
    word("ensemble", "three agents answer side by side, and a fourth decides"),
    word("router", "one agent answers; unless a fact says that it did, a more careful one follows"),
    word("planner", "a planner writes a plan, a worker follows it, and another one finishes"),
];

const EXECUTOR_GROUPS: &[Choice] = &[
    word("design", "the executions of one design"),
    word(
        "role",
        "all agents of a task that are made of the same item with the same policy, whatever their design",
    ),
];

/// Settings of these blocks, block by block.
pub(super) const DESIGNS: &[Setting] = &[
    setting(
        B::Designer,
        "policy",
        SettingKind::Policy,
        DefaultValue::Required,
        "Policy that writes the designs. A stronger model than those of the palette is common: it writes few tokens.",
    ),
    setting(
        B::Designer,
        "designs",
        SettingKind::Integer { min: 1, max: 1000 },
        DefaultValue::Integer(4),
        "Number of designs that it proposes per round of a search, or per task of a run, all from the same prompt. 4 by \
         default, like AutoEvol's.",
    ),
    setting(
        B::Designer,
        "executions",
        SettingKind::Integer { min: 1, max: 100_000 },
        DefaultValue::Integer(4),
        "Number of episodes that a design plays: in a search, one on each of the scenario's first tasks of training, the \
         same for all designs; in a run, all on the task that it was written for. 4 by default, which tells good from bad; \
         to tell good from better, take 32 or more.",
    ),
    setting(
        B::Designer,
        "executor_groups",
        SettingKind::Choice(EXECUTOR_GROUPS),
        DefaultValue::Word("design"),
        "Completions that a run compares with each other for the advantages of the agents that designs are made of. `design` \
         by default: the same agent in the same turn of the same team. `role` compares across the designs of a task: \
         larger groups, but a good completion in a bad team then counts as a bad one.",
    ),
    setting(
        B::Designer,
        "alternate",
        count(0),
        DefaultValue::Integer(0),
        "Number of steps in a row that the agents of its designs learn in a run, then the designer, and so on by turns. 0 by \
         default: both learn in every step. With turns, a change of the rewards has one cause: new teams, or better agents. \
         The agents are first, since nothing tells designs apart while no agent can play them.",
    ),
    setting(
        B::Designer,
        "patterns",
        SettingKind::Choices(PATTERNS),
        DefaultValue::AllWords,
        "Hand-made teams that are played before the first round, as far as the palette has room for them. \
         The designer sees their text and results. All by default: their cost is that of as many designs.",
    ),
    setting(
        B::Designer,
        "instructions",
        SettingKind::Text,
        DefaultValue::Absent("the description of the language, the palette and the task alone"),
        "Text at the end of the designer's prompt, such as what good teams for these tasks have in common.",
    ),
    setting(
        B::Designer,
        "constrained",
        SettingKind::Boolean,
        DefaultValue::Boolean(true),
        "Samples designs from the grammar of the palette, so that each one parses and names only what the palette has. On by \
         default; it applies to policies on this machine and on servers with `kind = vllm`. Turn it off to see what a model writes on its own.",
    ),
    setting(
        B::Designer,
        "guided",
        SettingKind::Integer { min: 0, max: 1000 },
        DefaultValue::Integer(0),
        "With `constrained = false`: number of a task's designs that a run samples from the grammar all the same. The designer \
         learns from them as if it had written them on its own, so that one whose own designs never parse finds out what \
         they should look like. 0 by default. Its policy needs `old_logprobs = recompute`, or `ratio = none`.",
    ),
    setting(
        B::Designer,
        "temperature",
        number(0.0, 10.0),
        DefaultValue::Number(1.0),
        "Divisor of the logits before sampling: 0, or at least 0.01. 1 by default, so that the designs of a round differ.",
    ),
    setting(
        B::Designer,
        "top_k",
        count(0),
        DefaultValue::Integer(0),
        "Samples among this many of the most likely tokens. 0 by default: among all tokens.",
    ),
    setting(
        B::Designer,
        "top_p",
        positive(1.0),
        DefaultValue::Number(1.0),
        "Samples among the smallest set of most likely tokens whose probabilities reach this sum. 1 by default: among all \
         tokens. Small models write better designs with 0.9.",
    ),
    setting(
        B::Designer,
        "min_p",
        number(0.0, 1.0),
        DefaultValue::Number(0.0),
        "Samples among tokens that are at least this fraction as likely as the most likely one. 0 by default: among all \
         tokens.",
    ),
    setting(
        B::Designer,
        "max_tokens",
        count(1),
        DefaultValue::Integer(1024),
        "Maximum number of tokens of one design. 1024 has room for five agents with prompts of a few sentences. A \
         constrained design is led to its end before the limit.",
    ),
    setting(
        B::Palette,
        "agents",
        SettingKind::Items,
        DefaultValue::Required,
        "Items that its agents may be made of, such as `[std.chat, maths.tool]`. A design may set what the items declare, \
         written out, and an agent's `policy`, `temperature`, `top_k`, `top_p`, `min_p` and `max_tokens`.",
    ),
    setting(
        B::Palette,
        "policies",
        SettingKind::PolicyNames,
        DefaultValue::Required,
        "Policies that its agents may use.",
    ),
    setting(
        B::Palette,
        "max_agents",
        SettingKind::Integer { min: 1, max: 64 },
        DefaultValue::Integer(5),
        "Largest number of agents of a design. 5 by default: larger teams seldom pay for their tokens.",
    ),
    setting(
        B::Palette,
        "max_visits",
        SettingKind::Integer { min: 1, max: 1000 },
        DefaultValue::Integer(4),
        "Largest `max` of a design's turns: the visits of one agent in an episode. 4 by default, which is also the default \
         of `max`.",
    ),
    setting(
        B::Palette,
        "max_tokens",
        count(1),
        DefaultValue::Integer(16_384),
        "Largest number of tokens that an episode of a design may sample, by the bound that `plan` shows. A design with a \
         higher bound is not played. 16384 has room for 16 answers of 1024 tokens.",
    ),
];
