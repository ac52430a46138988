"""Stand-ins for the host in a plugin's own tests, and a way to play an episode without one.

    testing.set_random(1)
    testing.set_sandbox(lambda job: testing.printed("7"))
    game = testing.Played(plugin, "game", task=Task.of("1", {}))
    game.act({"player": {"guess": 7}})
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .items import Plugin
    from .retrieval import Passage
    from .sandbox import Job, Verdict
    from .values import Outcome, Task

_MASK = (1 << 64) - 1
_state = 0
_sandbox: Callable[[Job], Verdict] | None = None
_corpus: Callable[[str, int], list[Passage]] | None = None


def set_random(seed: int) -> None:
    """Starts the random stream anew."""
    global _state
    _state = seed & _MASK


def set_sandbox(run: Callable[[Job], Verdict] | None) -> None:
    """Answers sandbox jobs from now on."""
    global _sandbox
    _sandbox = run


def set_corpus(find: Callable[[str, int], list[Passage]] | None) -> None:
    """Answers retrieval from now on."""
    global _corpus
    _corpus = find


def printed(stdout: str) -> Verdict:
    """A verdict of a program that ended well after printing `stdout`."""
    from .sandbox import Ending, Verdict

    return Verdict(Ending.OK, 0, stdout, "")


def next_random() -> int:
    """SplitMix64 (Steele, Lea and Flood 2014)."""
    global _state
    _state = (_state + 0x9E3779B97F4A7C15) & _MASK
    z = _state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def write_log(level: str, message: str) -> None:
    print(f"{level}: {message}", file=sys.stderr)


def run_jobs(jobs: list[Job]) -> list[Verdict]:
    if _sandbox is None:
        from .sandbox import Ending, Verdict

        said = "no sandbox here: a test sets one with pl_sdk.testing.set_sandbox"
        return [Verdict(Ending.LOST_WORKER, None, "", said) for _ in jobs]
    return [_sandbox(job) for job in jobs]


def find_passages(query: str, k: int) -> list[Passage]:
    if _corpus is None:
        raise LookupError("no corpus here: a test sets one with pl_sdk.testing.set_corpus")
    return _corpus(query, k)


class Played:
    """An episode, played as the host plays it: settings, views, actions and snapshots cross as JSON.

    Every step goes through a snapshot, so that state which is not in a field shows as a failing test.
    """

    def __init__(self, plugin: Plugin, item: str, task: Task, settings: dict[str, Any] | None = None, seed: int = 0):
        from . import codec
        from .registry import Registry

        self._registry, self._item = Registry(plugin), item
        self._settings = codec.dump(settings or {})
        self._episode = self._registry.start(item, self._settings, task, seed)

    def view(self, agent: str) -> Any:
        """What `agent` sees, as json.loads gives it."""
        from . import codec

        return codec.parse(self._episode.view(agent))

    def act(self, actions: dict[str, Any]) -> Outcome:
        """Applies one turn's actions, by agent. Facts and evidence come as json.loads gives them."""
        from . import codec
        from .values import Outcome

        self._episode = self._registry.restore(self._item, self._settings, self._episode.snapshot())
        given = [(agent, codec.dump(action)) for agent, action in actions.items()]
        done, truncated, facts, evidence = self._episode.apply(given)
        return Outcome(codec.parse(facts), codec.parse(evidence), done, truncated)
