"""An environment: a dataclass that holds the episode's state, and the functions that change it."""

from dataclasses import dataclass

from pl_sdk import Environment, Outcome, Plugin, SettingsError, Task, fact


@dataclass
class Problem:
    """A task's record, read from a line of a task file or made by `tasks`."""

    question: str
    answer: str


@dataclass
class Facts:
    """Facts, which the workflow's `when` conditions read as `env.…`."""

    right: bool = fact("The latest answer is right.")


@dataclass
class Sums(Environment, name="sums", facts=Facts):
    """Sums of two numbers."""

    # A snapshot keeps only these fields.
    problem: Problem
    #: Latest answer of each agent.
    latest: dict[str, str]

    @classmethod
    def start(cls, settings, task, seed):
        return cls(problem=task.read(Problem), latest={})

    def view(self, settings, agent):
        return {"question": self.problem.question}

    def apply(self, settings, actions):
        answer = None
        for act in actions:
            if "answer" in act.action:
                answer = self.latest[act.agent] = act.action["answer"]
        gold = self.problem.answer
        # Only the reward sees the evidence. `maths.score` reads this form.
        return Outcome(Facts(answer == gold), {"gold": gold, "answer": answer, "latest": self.latest})

    @classmethod
    def tasks(cls, settings, request):
        # Train and test have no task in common: the first number is even in one and odd in the other.
        if request.split not in ("train", "test"):
            raise SettingsError(f"sums has the splits train and test, and no {request.split}")
        tasks = []
        for index in range(request.start, request.start + request.count):
            a, b = 2 * (index % 50) + (request.split == "test"), index // 50 % 100
            tasks.append(Task.new(f"{request.split}-{index}", Problem(f"What is {a} + {b}?", str(a + b))))
        return tasks


plugin = Plugin(environments=[Sums])
