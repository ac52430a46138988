"""A guessing game: an environment, the agent that plays it, and the reward."""

from dataclasses import dataclass

from pl_sdk import Agent, AgentScore, Environment, Outcome, Plugin, Request, Reward, Scores, Task
from pl_sdk import fact, random, setting


@dataclass
class Rules:
    size: int = setting(100, "Numbers are below this, from 0 on.", minimum=1)


@dataclass
class Facts:
    """Facts, which the workflow's `when` conditions read as `env.…`."""

    found: bool = fact("The number has been found.")


@dataclass
class Game(Environment, name="game", settings=Rules, facts=Facts):
    """A number to guess."""

    # A snapshot keeps only these fields.
    number: int
    guesses: list[int]

    @classmethod
    def start(cls, rules, task, seed):
        # The host's random stream: the same for all samples of a task, and part of every snapshot.
        return cls(number=random.below(rules.size), guesses=[])

    def view(self, rules, agent):
        def hint(guess):
            return "too small" if guess < self.number else "too large"

        return {"size": rules.size, "guesses": [[guess, hint(guess)] for guess in self.guesses]}

    def apply(self, rules, actions):
        self.guesses += [act.action["guess"] for act in actions if "guess" in act.action]
        distances = [abs(guess - self.number) for guess in self.guesses]
        nearest = min([rules.size, *distances])
        found = nearest == 0
        # Only the reward sees the evidence.
        return Outcome(Facts(found), {"distance": nearest / rules.size}, done=found)

    @classmethod
    def tasks(cls, rules, request):
        # A task is a number: even for training, odd for testing.
        odd = int(request.split == "test")
        indices = range(request.start, request.start + request.count)
        return [Task.new(f"{request.split}-{index}", 2 * index + odd) for index in indices]


class Player(Agent, name="player"):
    """Guesses a number."""

    @staticmethod
    def prompt(settings, view, turn):
        lines = [f"Guess a number from 0 to {view['size'] - 1}. Answer with the number alone.\n"]
        lines += [f"{guess} is {hint}.\n" for guess, hint in view["guesses"]]
        return Request.user("".join(lines)).with_stop("\n")

    @staticmethod
    def parse(settings, view, completion):
        text = completion.text.strip().rstrip(".")
        # Invalid text is an action too: the environment decides how to continue.
        number = text.isascii() and text.isdecimal() and len(text) < 10
        return {"guess": int(text)} if number else {"none": "not a number"}


class Found(Reward, name="found"):
    """1 if the number is found, else up to 0.5 for a near guess."""

    @staticmethod
    def score(settings, step):
        found = step.facts["found"]
        # Each agent that acted gets its own score: 0 here, because all share the team's.
        local = [AgentScore(act.agent, 0.0, found) for act in step.actions]
        return Scores(1.0 if found else 0.5 * (1.0 - step.evidence["distance"]), local, found)


plugin = Plugin(environments=[Game], agents=[Player], rewards=[Found])
