"""An agent: two functions, `prompt` and `parse`."""

import re
from dataclasses import dataclass

from pl_sdk import Agent, Plugin, Request, setting


@dataclass
class Settings:
    instruction: str = setting(
        "Solve the problem. End with the answer, a number.", "The instruction before the question."
    )


class Solver(Agent, name="solver", settings=Settings):
    """Answers with the last number in its text."""

    @staticmethod
    def prompt(settings, view, turn):
        return Request.user(view["question"]).with_system(settings.instruction)

    @staticmethod
    def parse(settings, view, completion):
        numbers = re.findall(r"[0-9]+", completion.text)
        # Invalid text is an action too: the environment decides how to continue.
        return {"answer": numbers[-1]} if numbers else {"none": "no number"}


plugin = Plugin(agents=[Solver])
