//! What each block is for.

use crate::syntax::BlockKind;

impl BlockKind {
    /// What a block that stands inside another is, in a few words.
    pub fn purpose(self) -> &'static str {
        match self {
            BlockKind::Lora => "an adapter; without it the whole model is trained",
            BlockKind::Grant => "what the plugin may reach; nothing without it",
            _ => "",
        }
    }

    /// What the block is for, in a few sentences.
    pub fn doc(self) -> &'static str {
        match self {
            BlockKind::Workflow => {
                "Names the workflow; its run folder is called after it. It stands once in every file that is run."
            }
            BlockKind::Include => {
                "Puts the blocks of another file in its place, as if they stood here. The path is relative to the file \
                 that names it. For what several workflows have in common; to take a part alone there is `use`."
            }
            BlockKind::Use => {
                "Makes the params, plugins, models, policies, agents and templates of another file known as \
                 `NAME.THEIRS`. What nothing here uses is neither checked nor loaded, and the other file may be a whole \
                 workflow of its own."
            }
            BlockKind::Param => {
                "A value with a name and a type, to be given from outside (`--set NAME=VALUE`). The types are `int`, \
                 `float`, `bool`, `string`, `size`, `duration` and `list(TYPE)`; `in 1..64` or `in [\"a\", \"b\"]` bounds \
                 what it may be. Without `= VALUE` it must be given."
            }
            BlockKind::Plugin => {
                "A WebAssembly component that brings environments, agents and rewards. It has no files, no network and \
                 no clock, and each call is bounded by these settings. The plugin `std` is always there."
            }
            BlockKind::Model => {
                "A source of weights. Policies start from it; a model by itself is never changed."
            }
            BlockKind::Template => {
                "An agent or a policy with parameters, from which others are made: `agent NAME = TEMPLATE(…)`. A \
                 parameter has a type, of a param or `policy` or `model`, and may have a default. A block that is made \
                 from one may have settings of its own, which go before the template's."
            }
            BlockKind::Policy => {
                "What speaks for agents, and what training changes: an adapter on a model (`lora { … }`), or without \
                 one a copy of the whole model."
            }
            BlockKind::Environment => {
                "Where tasks come from, what agents see, and what their actions do: an item of a plugin. It stands once. \
                 Settings that are not listed here are the item's own."
            }
            BlockKind::Agent => {
                "One member of the team: an item of a plugin that makes prompts and reads answers, a policy that speaks \
                 for it, and how its tokens are drawn. Settings that are not listed here are the item's own."
            }
            BlockKind::Turns => {
                "Who speaks when: edges from `start` to `end`, tried in order of writing. `a -> b` leads on, `[a, b]` \
                 act side by side on one view, `when` asks for a condition over `env.FACT`, `turn`, `reward.PART` and \
                 params. It stands once."
            }
            BlockKind::Reward => {
                "What an episode is worth: an item of a plugin that scores the team and each agent, and the weights of \
                 both. It stands once. Settings that are not listed here are the item's own."
            }
            BlockKind::Sandbox => {
                "Where code that models write is run, and within which bounds. It is there with its defaults where it is \
                 not written."
            }
            BlockKind::Inference => {
                "How completions are generated. It is there with its defaults where it is not written; it changes memory \
                 and speed, not results."
            }
            BlockKind::Train => "How policies are trained. A file without it can be played and evaluated.",
            BlockKind::Evaluate => {
                "A measurement on tasks kept apart from training: every so many steps, or when `pl-host evaluate` asks \
                 for it. A file may have several."
            }
            BlockKind::Lora => {
                "Stands inside a policy: it trains a small adapter (low-rank adaptation, Hu et al. 2021) instead of the \
                 whole model, which takes far less memory and lets policies share one model."
            }
            BlockKind::Grant => {
                "Stands inside a plugin and opens single doors to it, which are all closed without: folders to read, \
                 and hosts to ask over HTTP. `plan` shows what is open, and the run's `lock.json` keeps it."
            }
        }
    }
}
