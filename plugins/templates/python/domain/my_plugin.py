"""A guessing game: its environment, the agent that plays it, the reward that both are trained by."""

from dataclasses import dataclass

from pl_sdk import Agent, AgentScore, Environment, Outcome, Plugin, Request, Reward, Scores, Task
from pl_sdk import fact, random, setting


@dataclass
class Rules:
    size: int = setting(100, "Numbers run from 0 to this less one.", minimum=1)


@dataclass
class Facts:
    """What the workflow's `when` conditions read as `env.…`."""

    found: bool = fact("The number was found.")


@dataclass
class Game(Environment, name="game", settings=Rules, facts=Facts):
    """A number to guess."""

    # Fields are all that a snapshot keeps.
    number: int
    guesses: list[int]

    @classmethod
    def start(cls, rules, task, seed):
        # The host's random stream: the same for all samples of a task, and it travels with snapshots.
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
        # Evidence is what the reward alone sees.
        return Outcome(Facts(found), {"distance": nearest / rules.size}, done=found)

    @classmethod
    def tasks(cls, rules, request):
        # A task is a round's number. Training and testing share none: those of the test are odd.
        odd = int(request.split == "test")
        indices = range(request.start, request.start + request.count)
        return [Task.of(f"{request.split}-{index}", 2 * index + odd) for index in indices]


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
        # What means nothing is an action too: the environment decides what follows.
        number = text.isascii() and text.isdecimal() and len(text) < 10
        return {"guess": int(text)} if number else {"none": "not a number"}


class Found(Reward, name="found"):
    """1 once the number is found, more than 0 the nearer a guess was."""

    @staticmethod
    def score(settings, step):
        found = step.facts["found"]
        # Each agent that acted has a part of its own: here nothing, for they share the team's.
        local = [AgentScore(act.agent, 0.0, found) for act in step.actions]
        return Scores(1.0 if found else 0.5 * (1.0 - step.evidence["distance"]), local, found)


plugin = Plugin(environments=[Game], agents=[Player], rewards=[Found])
