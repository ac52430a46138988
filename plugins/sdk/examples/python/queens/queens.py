"""N Queens as a whole domain: the environment, the agent that plans, and the reward.

The rules, prompts and values are those of `planning.queens`, the environment of pl-host's own planning games: an agent
of either plugin plays in the environment of the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import plans
import puzzles
from board import Board
from pl_sdk import (
    Action,
    Agent,
    AgentScore,
    Completion,
    DrawingForm,
    Environment,
    NoSettings,
    Outcome,
    Plugin,
    Refusal,
    Request,
    Reward,
    Scores,
    SettingsError,
    Task,
    TaskError,
    TaskRequest,
    Transition,
    Turn,
    fact,
    setting,
)

# Cost of a board, and value of a list that is no board or moves a given queen.
STEP = -0.01
INVALID = -1.0

# Value of an answer without a plan.
NO_PLAN = -1.0

# Value of a solution, and the addition for one within as many boards as there are rows.
GOAL = 2.0
BONUS = 0.5

# Boards for each row after which the episode is truncated.
HORIZON = 4

# Characters shown of a plan.
MAX_PLAN = 500


@dataclass
class Settings:
    seed: int = setting(
        0, "Number of the set of generated puzzles. Train and test never share a puzzle, for any seed.", minimum=0
    )


@dataclass
class Record:
    """Record of a task: the column of each row's queen, from 0 on, and null or -1 for a row without one."""

    queens: list[int | None]


@dataclass
class PlayedPlan:
    """A plan that was played."""

    #: The plan, as the agent wrote it. Empty if there was none.
    plan: str
    #: 1 if the plan's only move was invalid.
    first_invalid: int | None


@dataclass
class View:
    """View of every agent."""

    game: str
    #: The board, as text.
    state: str
    #: Number of turns so far.
    round: int
    #: The newest plan.
    plan: PlayedPlan | None


@dataclass
class Facts:
    solved: bool = fact("True if the puzzle is solved.")
    valid: bool = fact("True if the newest plan was a board that keeps the given queens.")
    steps: int = fact("Number of boards so far.")
    invalid: int = fact("Number of invalid boards so far.")


@dataclass
class OwnScore:
    """Score of an agent's own action."""

    reward: float
    #: True if its plan solves the puzzle.
    solves: bool


@dataclass
class Evidence:
    """Evidence for the reward. Agents never see it."""

    #: Score that all agents share.
    team: float
    solved: bool
    #: Score of each agent that has just acted.
    own: dict[str, OwnScore]


@dataclass
class Queens(Environment, name="queens", settings=Settings, facts=Facts, action=dict[str, str]):
    """N Queens: place the queens that are missing so that none attacks another."""

    board: Board
    round: int = 0
    #: Number of boards so far, and of invalid ones.
    steps: int = 0
    invalid: int = 0
    plan: PlayedPlan | None = None

    @classmethod
    def start(cls, settings: Settings, task: Task, seed: int) -> Queens:
        try:
            return cls(Board.start(task.read(Record).queens))
        except ValueError as error:
            raise TaskError(f"task {task.id}: {error}") from None

    def view(self, settings: Settings, agent: str) -> View:
        return View("queens", self.board.show(), self.round, self.plan)

    def apply(self, settings: Settings, actions: list[Action]) -> Outcome:
        self.round += 1
        evidence = Evidence(team=0.0, solved=False, own={})
        for act in actions:
            # An action without an answer is an answer without a plan.
            ending, evidence.own[act.agent] = self.play(act.action.get("answer", ""))
            evidence.team += ending
        evidence.solved = self.board.solved
        truncated = self.at_horizon and not evidence.solved
        return Outcome(self.facts(), evidence, evidence.solved or truncated, truncated)

    def play(self, answer: str) -> tuple[float, OwnScore]:
        """Plays the plan of a text. Returns the value of the ending and the agent's own score.

        The own score is the cost of the board and a difference of potentials (Ng, Harada and Russell 1999, with a
        discount of 1). On every way back to an earlier board the differences cancel out, so that no loop pays.
        """
        found = plans.find(answer)
        self.plan = PlayedPlan(found.source[:MAX_PLAN] if found else "", None)
        if found is None:
            return 0.0, OwnScore(NO_PLAN, False)
        # Agents side by side may act after the ending, which is paid once.
        if self.board.solved or self.at_horizon:
            return 0.0, OwnScore(0.0, False)
        before = self.board.potential
        self.steps += 1
        reward = STEP
        if not self.board.place(found.columns):
            reward = INVALID
            self.invalid += 1
            self.plan.first_invalid = 1
        reward += self.board.potential - before
        if not self.board.solved:
            return 0.0, OwnScore(reward, False)
        return GOAL + (BONUS if self.steps <= self.board.size else 0.0), OwnScore(reward, True)

    @property
    def at_horizon(self) -> bool:
        """True if no board is left."""
        return self.steps >= HORIZON * self.board.size

    def facts(self) -> Facts:
        valid = self.plan is not None and self.plan.plan != "" and self.plan.first_invalid is None
        return Facts(self.board.solved, valid, self.steps, self.invalid)

    def oracle(self, settings: Settings, agent: str) -> dict[str, str] | None:
        return None if self.board.solved else {"answer": f"#### {self.board.solution()}"}

    def draw(self, settings: Settings, form: DrawingForm) -> str | None:
        return self.board.show() if form is DrawingForm.TEXT else None

    @classmethod
    def tasks(cls, settings: Settings, request: TaskRequest) -> list[Task]:
        if request.level >= len(puzzles.LEVELS):
            last = len(puzzles.LEVELS) - 1
            raise SettingsError(f"queens is generated in levels 0 to {last}, not {request.level}")
        if request.split not in puzzles.SPLITS:
            raise SettingsError(
                f"puzzles are generated in the splits train, validation and test, not `{request.split}`"
            )
        return [task(settings, request, index) for index in range(request.start, request.start + request.count)]


def task(settings: Settings, request: TaskRequest, index: int) -> Task:
    """Generates a task."""
    name = f"{request.split}-{request.level}-{index}"
    given = puzzles.generate(settings.seed, request.split, request.level, index)
    if given is None:
        raise Refusal(f"no puzzle came up for task {name} of queens")
    return Task.new(name, Record(given))


RULES = (
    "Place one queen in each row of a board so that no two share a column or a diagonal. Q is a queen, a dot is an "
    "empty cell. Fixed queens stay where they are. Rows and columns are counted from 0."
)

INSTRUCTION = (
    "You may reason first. Then write #### and the plan: a JSON list of the queens' columns, one for each row."
)

# Boards with plans that solve them. The generator makes none of them.
EXAMPLES = [
    (
        ".Q..\n....\nQ...\n..Q.\nFixed queens: row 0 column 1, row 2 column 0, row 3 column 2.",
        "[1, 3, 0, 2]",
    ),
    (
        "Q....\n..Q..\n....Q\n.Q...\n.....\n"
        "Fixed queens: row 0 column 0, row 1 column 2, row 2 column 4, row 3 column 1.",
        "[0, 2, 4, 1, 3]",
    ),
]


@dataclass
class PlannerSettings:
    instruction: str | None = setting(
        None,
        "Replaces the rules and the instruction in the system message. An empty one sends no system message.",
    )
    examples: int = setting(
        2,
        "Worked examples before the board, at most 2. Small models need them, large ones reason better without.",
        minimum=0,
        maximum=2,
    )


class Planner(Agent, name="planner", settings=PlannerSettings, view=View):
    """Plays a plan: a list of columns after ####."""

    @staticmethod
    def prompt(settings: PlannerSettings, view: View, turn: Turn) -> Request:
        request = Request.user(view.state + last_plan(view.plan))
        for state, columns in EXAMPLES[: settings.examples]:
            request = request.with_example(state, f"#### {columns}")
        instruction = f"{RULES} {INSTRUCTION}" if settings.instruction is None else settings.instruction
        return request.with_system(instruction) if instruction else request

    @staticmethod
    def parse(settings: PlannerSettings, view: View, completion: Completion) -> dict[str, str]:
        found = plans.find(completion.text)
        return {"answer": found.source} if found else {"none": "no plan"}


def last_plan(played: PlayedPlan | None) -> str:
    """Describes the newest plan for the agent that acts next."""
    if played is None:
        return ""
    if not played.plan:
        return "\nThe last answer had no plan."
    if played.first_invalid is None:
        return f"\nThe last plan, {played.plan}, led here."
    return f"\nIn the last plan, {played.plan}, move {played.first_invalid} was impossible."


class Score(Reward, name="score", evidence=Evidence):
    """For the team the value of the ending; for each agent the cost and the progress of its own plan."""

    @staticmethod
    def score(settings: NoSettings, transition: Transition) -> Scores:
        evidence = transition.evidence
        local = [AgentScore(agent, own.reward, own.solves) for agent, own in evidence.own.items()]
        return Scores(evidence.team, local, evidence.solved)


plugin = Plugin(environments=[Queens], agents=[Planner], rewards=[Score])
