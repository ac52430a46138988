//! The experiments: which workflows are trained how, and what they are compared with.

use super::clusters::ClusterKey;
use super::rooms::room;

/// An experiment: arms that are compared with one of them.
#[derive(Clone, Copy)]
pub struct Experiment {
    pub name: &'static str,
    /// Training steps of each run.
    pub steps: u32,
    /// Settings of all arms besides the number of steps.
    pub settings: &'static [&'static str],
    /// True if the questions of all arms are made from a corpus, which `--corpus` names.
    pub needs_corpus: bool,
    pub arms: &'static [Arm],
    /// The arm whose agents exchange their policies once it is trained.
    pub swapped: Option<Swapped>,
    /// Clusters of the tasks of the evaluation. `None` if they are different tasks that share nothing.
    pub cluster: Option<ClusterKey>,
}

/// A workflow trained in one way.
#[derive(Clone, Copy)]
pub struct Arm {
    pub name: &'static str,
    /// Workflow file below `examples/`.
    pub file: &'static str,
    /// Settings besides those of all arms.
    pub settings: &'static [&'static str],
    /// Name of the arm that it is compared with. `None` for that arm itself.
    pub control: Option<&'static str>,
}

/// Exchange of policies: what is lost by it shows how different the agents have become.
#[derive(Clone, Copy)]
pub struct Swapped {
    /// Name of the arm.
    pub arm: &'static str,
    /// Settings that give each agent the other's policy.
    pub settings: &'static [&'static str],
}

const fn arm(name: &'static str, file: &'static str) -> Arm {
    Arm { name, file, settings: &[], control: Some("control") }
}

/// Permutes rewards within their groups.
const SHUFFLED: &str = "train.shuffle_rewards=true";

/// The arm whose rewards are permuted.
const fn control(file: &'static str) -> Arm {
    Arm { name: "control", file, settings: &[SHUFFLED], control: None }
}

const fn experiment(name: &'static str, steps: u32, arms: &'static [Arm]) -> Experiment {
    Experiment { name, steps, settings: &[], needs_corpus: false, arms, swapped: None, cluster: None }
}

const RECOMPUTED: &str = "train.old_logprobs=recompute";
const TRUNCATED: &str = "train.correction=tis";

/// The maths team under a staleness, compared with the one that waits for each update.
const fn stale(name: &'static str, settings: &'static [&'static str]) -> Arm {
    Arm { name, file: "math.mas", settings, control: Some("0") }
}

/// One policy with an adapter, as those of math.mas.
const ADAPTER_L1: &[&str] = &["shared.lora.rank=16", "shared.lora.alpha=32", "train.learning_rate=2e-4"];

/// One agent with an adapter and plain GRPO, and as many tokens in a step as the team of math.mas.
const ALONE: &[&str] = &[
    "reasoner.lora.rank=16",
    "reasoner.lora.alpha=32",
    "reason.max_tokens=48",
    "samples=12",
    "train.algorithm=grpo",
    "train.rollout=flat",
    "train.tasks_per_step=4",
    "train.learning_rate=2e-4",
];

/// Varied and longer programs of the tool.
const HOT: &str = "tool.temperature=1";
const LONG: &str = "tool.max_tokens=160";

/// Agents of plan-path.mas that exchange their policies.
const SWAPPED_GRIDS: Option<Swapped> =
    Some(Swapped { arm: "L2", settings: &["tool.policy=walker", "plan.policy=coder"] });

impl Experiment {
    /// Returns the arm of a name.
    pub fn arm(&self, name: &str) -> Option<&'static Arm> {
        self.arms.iter().find(|arm| arm.name == name)
    }
}

pub const EXPERIMENTS: &[Experiment] = &[
    experiment(
        "objectives",
        10,
        &[
            arm("at_grpo", "math.mas"),
            arm("ppo", "algorithms/ppo.mas"),
            arm("rloo", "algorithms/rloo.mas"),
            arm("gspo", "algorithms/gspo.mas"),
            arm("cispo", "algorithms/cispo.mas"),
            arm("dr_grpo", "algorithms/dr_grpo.mas"),
            arm("dapo", "algorithms/dapo.mas"),
            control("math.mas"),
        ],
    ),
    Experiment {
        settings: &["test.limit=100"],
        swapped: Some(Swapped { arm: "L2", settings: &["tool.policy=reasoner", "reason.policy=coder"] }),
        ..experiment(
            "math",
            10,
            &[
                arm("L2", "math.mas"),
                Arm { settings: ADAPTER_L1, ..arm("L1", "math-l1.mas") },
                Arm { settings: ALONE, ..arm("single", "math-l0.mas") },
                control("math.mas"),
            ],
        )
    },
    experiment("math-l1", 10, &[arm("L1", "math-l1.mas"), control("math-l1.mas")]),
    experiment("math-l3", 10, &[arm("L3", "math-l3.mas"), control("math-l3.mas")]),
    Experiment {
        // Grids of 5 x 5 with walls: the untrained team finds one way in ten.
        settings: &["maze.level=3", "train.scale=batch", "test.every=10", "test.limit=100"],
        swapped: SWAPPED_GRIDS,
        ..experiment(
            "plan-path",
            20,
            &[
                arm("L2", "plan-path.mas"),
                arm("L1", "plan-path-l1.mas"),
                arm("single", "plan-path-l0.mas"),
                control("plan-path.mas"),
            ],
        )
    },
    Experiment {
        swapped: Some(Swapped {
            arm: "L2",
            settings: &["rows.policy=horizontal", "columns.policy=vertical"],
        }),
        ..experiment(
            "walk",
            20,
            &[
                arm("L2", "walk.mas"),
                arm("L1", "walk-l1.mas"),
                arm("single", "walk-l0.mas"),
                control("walk.mas"),
            ],
        )
    },
    Experiment {
        // Rooms of 3 x 3 cells and one or two pushes: the untrained team solves one in six. Divided by the deviation of its
        // own group, the cost of a move would count as much in a group without a solution as the goal does in others.
        settings: &["rooms.level=1", "train.scale=batch", "test.every=20", "test.limit=100"],
        swapped: Some(Swapped { arm: "L2", settings: &["tool.policy=pusher", "push.policy=coder"] }),
        // There are few rooms of this size: tasks repeat, and many are in the same room.
        cluster: Some(room),
        ..experiment(
            "sokoban",
            20,
            &[
                arm("L2", "sokoban.mas"),
                arm("L1", "sokoban-l1.mas"),
                arm("single", "sokoban-l0.mas"),
                control("sokoban.mas"),
            ],
        )
    },
    Experiment {
        // A better model on larger grids, for a card: `--device cuda`.
        settings: &[
            "base.source=qwen2.5-coder-1.5b",
            "maze.level=6",
            "plan.temperature=1",
            "plan.max_tokens=64",
            "train.tasks_per_step=8",
            "train.learning_rate=1e-4",
            "test.every=20",
            "test.limit=100",
        ],
        swapped: SWAPPED_GRIDS,
        ..experiment(
            "plan-path-qwen",
            20,
            &[
                Arm { settings: &["samples=8", HOT, LONG], ..arm("L2", "plan-path.mas") },
                Arm { settings: &["samples=8", HOT, LONG], ..arm("L1", "plan-path-l1.mas") },
                Arm { settings: &["samples=16"], ..arm("single", "plan-path-l0.mas") },
                Arm { settings: &["samples=8", HOT, LONG, SHUFFLED], ..control("plan-path.mas") },
            ],
        )
    },
    Experiment {
        // Agents see the beginnings of the two passages that the newest search has found.
        settings: &[
            "questions.passages=2",
            "questions.shown=2",
            "samples=6",
            "train.tasks_per_step=8",
            "test.every=20",
            "test.limit=100",
        ],
        needs_corpus: true,
        swapped: Some(Swapped { arm: "L2", settings: &["find.policy=reasoner", "reason.policy=searcher"] }),
        ..experiment(
            "search",
            20,
            &[
                arm("L2", "search.mas"),
                arm("L1", "search-l1.mas"),
                arm("single", "search-l0.mas"),
                control("search.mas"),
            ],
        )
    },
    experiment(
        "staleness",
        20,
        &[
            Arm { name: "0", file: "math.mas", settings: &[], control: None },
            stale("1", &["train.schedule=async", "train.staleness=1"]),
            stale("4", &["train.schedule=async", "train.staleness=4"]),
            stale("8", &["train.schedule=async", "train.staleness=8"]),
            stale("4-corrected", &["train.schedule=async", "train.staleness=4", RECOMPUTED, TRUNCATED]),
            stale("8-corrected", &["train.schedule=async", "train.staleness=8", RECOMPUTED, TRUNCATED]),
        ],
    ),
    Experiment {
        settings: &["test.limit=100"],
        ..experiment(
            "q8",
            10,
            &[
                Arm { name: "f32", file: "math.mas", settings: &["base.dtype=f32"], control: None },
                Arm { name: "q8", file: "math.mas", settings: &["base.dtype=q8"], control: Some("f32") },
            ],
        )
    },
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn every_workflow_of_an_experiment_exists_and_has_its_control() {
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples");
        for Experiment { name, arms, swapped, .. } in EXPERIMENTS {
            assert!(arms.iter().all(|arm| examples.join(arm.file).is_file()), "{name}");
            let names: Vec<&str> = arms.iter().map(|arm| arm.name).collect();
            assert!(arms.iter().filter_map(|arm| arm.control).all(|own| names.contains(&own)), "{name}");
            assert!(swapped.is_none_or(|swapped| names.contains(&swapped.arm)), "{name}");
        }
    }
}
