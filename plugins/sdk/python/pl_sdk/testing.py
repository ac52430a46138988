"""What a plugin's own tests need: stand-ins for the host, and ways to play without one.

    testing.set_random(1)
    testing.set_sandbox(lambda job: testing.printed("7"))
    game = testing.Played(plugin, "game", task=Task.of("1", {}))
    game.act({"player": {"guess": 7}})
"""

from __future__ import annotations

from typing import Any, Callable

from . import codec, host
from .items import Plugin
from .registry import Registry
from .retrieval import Passage
from .sandbox import Ending, Job, Verdict
from .values import Completion, Outcome, Task


def set_random(seed: int) -> None:
    """Starts the random stream anew."""
    host.current.state = seed


def set_sandbox(run: Callable[[Job], Verdict] | None) -> None:
    """Answers sandbox jobs from now on."""
    host.current.run = run


def set_corpus(find: Callable[[str, int], list[Passage]] | None) -> None:
    """Answers retrieval from now on."""
    host.current.find = find


def printed(stdout: str) -> Verdict:
    """A verdict of a program that ended well after printing `stdout`."""
    return Verdict(Ending.OK, 0, stdout, "")


class Played:
    """An episode, played as the host plays it: settings, views, actions and snapshots cross as JSON.

    Every step goes through a snapshot, so that state which is not in a field shows as a failing test.
    """

    def __init__(self, plugin: Plugin, item: str, task: Task, settings: dict[str, Any] | None = None, seed: int = 0):
        self._registry, self._item = Registry(plugin), item
        self._settings = codec.dump(settings or {})
        self._episode = self._registry.start(item, self._settings, task, seed)

    def view(self, agent: str) -> Any:
        """What `agent` sees, as json.loads gives it."""
        return codec.parse(self._episode.view(agent))

    def act(self, actions: dict[str, Any]) -> Outcome:
        """Applies one turn's actions, by agent. Facts and evidence come as json.loads gives them."""
        self._episode = self._registry.restore(self._item, self._settings, self._episode.snapshot())
        given = [(agent, codec.dump(action)) for agent, action in actions.items()]
        done, truncated, facts, evidence = self._episode.apply(given)
        return Outcome(codec.parse(facts), codec.parse(evidence), done, truncated)


def parse(plugin: Plugin, agent: str, view: Any, text: str, settings: dict[str, Any] | None = None) -> Any:
    """What an agent makes of a completion in front of a view: its action, as json.loads gives it."""
    action = Registry(plugin).parse(agent, codec.dump(settings or {}), codec.dump(view), Completion(text))
    return codec.parse(action)
