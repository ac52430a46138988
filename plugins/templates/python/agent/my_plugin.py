"""An agent of two functions: what to ask the model, and what its answer means."""

import re
from dataclasses import dataclass

from pl_sdk import Agent, Plugin, Request, setting


@dataclass
class Settings:
    instruction: str = setting(
        "Solve the problem. End with the answer, a number.", "What the model is told before the question."
    )


class Solver(Agent, name="solver", settings=Settings):
    """Answers with the last number that it says."""

    @staticmethod
    def prompt(settings, view, turn):
        return Request.user(view["question"]).with_system(settings.instruction)

    @staticmethod
    def parse(settings, view, completion):
        numbers = re.findall(r"[0-9]+", completion.text)
        # What means nothing is an action too: the environment decides what follows.
        return {"answer": numbers[-1]} if numbers else {"none": "no number"}


plugin = Plugin(agents=[Solver])
