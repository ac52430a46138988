"""Helpers for a plugin's own tests: stand-ins for the host's services, and a way to run an episode without a host.

    testing.set_random(1)
    testing.set_sandbox(lambda job: testing.printed("7"))
    game = testing.Episode(plugin, "game", task=Task.new("1", {}))
    game.act({"player": {"guess": 7}})
"""

from __future__ import annotations

from typing import Any, Callable

from . import codec, host
from .items import Plugin
from .registry import Registry
from .retrieval import Passage
from .sandbox import Ending, Job, Verdict
from .values import Completion, DrawingForm, Outcome, Task, ToolCall


def set_random(seed: int) -> None:
    """Restarts the random stream from `seed`."""
    host.current.state = seed


def set_sandbox(run: Callable[[Job], Verdict] | None) -> None:
    """Sets the function that answers sandbox jobs."""
    host.current.run = run


def set_corpus(find: Callable[[str, int], list[Passage]] | None) -> None:
    """Sets the function that answers retrieval queries, of whichever corpus."""
    host.current.find = find


def set_policies(answer: Callable[[str, list[tuple[str, str]]], str] | None) -> None:
    """Sets the function that answers questions to policies."""
    host.current.answer = answer


def printed(stdout: str) -> Verdict:
    """Verdict of a program that printed `stdout` and exited with 0."""
    return Verdict(Ending.OK, 0, stdout, "")


class Episode:
    """An episode, run as the host runs it: settings, views, actions and snapshots cross as JSON.

    Every step goes through a snapshot, so that a test fails if state is kept outside the fields.
    """

    def __init__(self, plugin: Plugin, item: str, task: Task, settings: dict[str, Any] | None = None, seed: int = 0):
        self._registry, self._item = Registry(plugin), item
        self._settings = codec.dump(settings or {})
        self._episode = self._registry.start(item, self._settings, task, seed)

    def view(self, agent: str) -> Any:
        """Returns the view of `agent`, as a result of json.loads."""
        return codec.parse(self._episode.view(agent))

    def oracle(self, agent: str) -> Any:
        """Returns the oracle's action, as a result of json.loads, or None."""
        action = self._episode.oracle(agent)
        return None if action is None else codec.parse(action)

    def draw(self, form: DrawingForm) -> str | None:
        """Returns a drawing of the state."""
        return self._episode.draw(form)

    def act(self, actions: dict[str, Any]) -> Outcome:
        """Applies one turn's actions, by agent. Facts and evidence are results of json.loads."""
        self._episode = self._registry.restore(self._item, self._settings, self._episode.snapshot())
        given = [(agent, codec.dump(action)) for agent, action in actions.items()]
        done, truncated, facts, evidence = self._episode.apply(given)
        return Outcome(codec.parse(facts), codec.parse(evidence), done, truncated)


def parse(plugin: Plugin, agent: str, view: Any, text: str, settings: dict[str, Any] | None = None) -> Any:
    """Returns the action that an agent parses from a completion, as a result of json.loads."""
    action = Registry(plugin).parse(agent, codec.dump(settings or {}), codec.dump(view), Completion(text))
    return codec.parse(action)


def call_tools(
    plugin: Plugin, agent: str, view: Any, calls: list[ToolCall], settings: dict[str, Any] | None = None
) -> list[str] | None:
    """Returns the results of an agent's tools."""
    return Registry(plugin).call_tools(agent, codec.dump(settings or {}), codec.dump(view), calls)
