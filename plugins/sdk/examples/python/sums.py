"""Addition problems, in Python: the environment, the maths reasoner and the reward."""

from dataclasses import dataclass

import extract
from pl_sdk import (
    Agent,
    AgentScore,
    DrawingForm,
    Environment,
    Outcome,
    Plugin,
    Request,
    Reward,
    Scores,
    SettingsError,
    Task,
    TaskError,
    fact,
    log,
    random,
    setting,
)


@dataclass
class Settings:
    terms: int = setting(2, "Number of summands.", minimum=2, maximum=5)
    tries: int = setting(3, "Number of tries after which the episode is truncated.", minimum=1, maximum=100)


@dataclass
class Record:
    number: int
    largest: int


@dataclass
class AgentAnswer:
    """An answer of an agent."""

    agent: str
    answer: str


@dataclass
class View:
    """View in the form of the maths domain's, so that its reasoner can read it."""

    question: str
    round: int
    tool: dict | None
    answers: list[AgentAnswer]


@dataclass
class Facts:
    right: bool = fact("The latest answer is right.")
    tries: int = fact("Number of tries so far.")
    last: str = fact("Latest answer.")


@dataclass
class Latest:
    """Answer of an agent in the last step, if any."""

    agent: str
    answer: str | None


@dataclass
class Evidence:
    gold: int
    latest: list[Latest]


@dataclass
class Sums(Environment, name="sums", settings=Settings, facts=Facts, action=dict[str, str]):
    """A sum of numbers from the episode's stream, with a hint after each wrong answer."""

    number: int
    terms: list[int]
    hints: list[str]
    answers: list[AgentAnswer]
    tries: int

    @classmethod
    def start(cls, settings, task, seed):
        record = task.read(Record)
        if record.largest <= 0:
            raise TaskError(f"task {task.id}: `largest` is {record.largest}")
        terms = [1 + random.below(record.largest) for _ in range(settings.terms)]
        return cls(record.number, terms, hints=[], answers=[], tries=0)

    def view(self, settings, agent):
        terms = " + ".join(map(str, self.terms))
        hints = "".join(f" {hint}" for hint in self.hints)
        return View(f"Problem {self.number}: what is {terms}?{hints}", self.tries, None, self.answers)

    def apply(self, settings, actions):
        self.tries += 1
        latest = [Latest(act.agent, act.action.get("answer")) for act in actions]
        self.answers += [AgentAnswer(one.agent, one.answer) for one in latest if one.answer is not None]
        gold = sum(self.terms)
        last = self.answers[-1].answer if self.answers else ""
        right = last == str(gold)
        if not right:
            self.hints.append(f"It is more than {random.below(gold)}.")
        log.debug(f"try {self.tries}: {last}")
        truncated = not right and self.tries >= settings.tries
        return Outcome(Facts(right, self.tries, last), Evidence(gold, latest), right, truncated)

    def oracle(self, settings, agent):
        return {"answer": str(sum(self.terms))}

    def draw(self, settings, form):
        return f"{' + '.join(map(str, self.terms))} = ?" if form is DrawingForm.TEXT else None

    @classmethod
    def tasks(cls, settings, request):
        if request.level == 0:
            raise SettingsError("sums are generated from level 1 on, not 0")
        # Different splits use different numbers, so that they have no question in common.
        splits = ["train", "validation", "test"]
        if request.split not in splits:
            raise SettingsError(
                f"sums are generated in the splits train, validation and test, not `{request.split}`"
            )
        share = splits.index(request.split)
        return [
            Task.new(f"{request.split}-{request.level}-{index}", Record(index * 3 + share, 10 * request.level))
            for index in range(request.start, request.start + request.count)
        ]


@dataclass
class ReasonerSettings:
    instruction: str | None = setting(
        None, "Replaces the instruction in the system message. An empty one sends no system message."
    )
    examples: int = setting(
        4,
        "Worked examples before the question, at most 4. Small models need them, large ones do without.",
        minimum=0,
        maximum=4,
    )


EXAMPLES = [
    ("Sam has 2 pens. He buys 3 more. How many pens does Sam have now?", "2 + 3", "5"),
    ("Kim has 9 cups and breaks 4. How many cups does Kim have left?", "9 - 4", "5"),
    ("There are 6 hats on one shelf and 8 hats on another. How many hats are there in all?", "6 + 8", "14"),
    ("Max has 12 fish. Pia has 7 fish. How many more fish does Max have than Pia?", "12 - 7", "5"),
]

# Maximum length of an answer in bytes; longer ones don't count.
MAX_ANSWER_BYTES = 4000


class Reasoner(Agent, name="reasoner", settings=ReasonerSettings):
    """Reasons in words and puts the final answer in a box."""

    @staticmethod
    def prompt(settings, view, turn):
        text = view["question"]
        if view["tool"] and view["tool"]["answer"] is not None:
            text += f"\nA program printed {view['tool']['answer']}, which may be wrong."
        if view["answers"]:
            text += f"\nAn earlier answer was {view['answers'][-1]['answer']}, which may be wrong."
        request = Request.user(text)
        for question, sum_, result in EXAMPLES[: settings.examples]:
            request = request.with_example(question, f"{sum_} = \\boxed{{{result}}}")
        instruction = "Put the final answer in \\boxed{}." if settings.instruction is None else settings.instruction
        return request.with_system(instruction) if instruction else request

    @staticmethod
    def call_tools(settings, view, calls):
        def result(call):
            return str(sum(call.arguments["terms"])) if call.name == "add" else f"there is no tool {call.name}"

        return [result(call) for call in calls]

    @staticmethod
    def parse(settings, view, completion):
        answer = extract.answer(completion.text)
        if answer is None:
            return {"none": "no answer"}
        if len(answer.encode()) > MAX_ANSWER_BYTES:
            return {"none": "the answer is too long"}
        return {"answer": answer}


@dataclass
class Terms:
    miss: float = setting(0.25, "Deduction from the team's reward for each earlier wrong try.", minimum=0, maximum=1)


class Score(Reward, name="score", settings=Terms, facts=Facts, evidence=Evidence):
    """Up to 1 for the team's right answer, less for each wrong one before it; 1 for each agent's own right answer."""

    @staticmethod
    def score(terms, step):
        gold = str(step.evidence.gold)
        local = [AgentScore(one.agent, float(one.answer == gold), one.answer == gold) for one in step.evidence.latest]
        team = max(1.0 - terms.miss * max(step.facts.tries - 1, 0), 0.0) if step.facts.right else 0.0
        return Scores(team, local, step.facts.right)


plugin = Plugin(environments=[Sums], agents=[Reasoner], rewards=[Score])
