"""The contract's interface `environments`."""

from __future__ import annotations

from typing import Any

from wit_world.imports import types

from . import answer, registry
from ..values import DrawingForm, Task, TaskRequest


class Environments:
    """See the contract."""

    def tasks(self, item: str, settings: str, split: str, start: int, count: int, level: int) -> list:
        made = answer(registry().tasks, item, settings, TaskRequest(split, start, count, level))
        return [types.Task(task.id, task.data) for task in made]


class Episode:
    """See the contract."""

    def __init__(self, episode: Any) -> None:
        self._episode = episode

    @classmethod
    def start(cls, item: str, settings: str, task: Any, seed: int) -> Episode:
        return cls(answer(registry().start, item, settings, Task(task.id, task.data), seed))

    @classmethod
    def restore(cls, item: str, settings: str, snapshot: bytes) -> Episode:
        return cls(answer(registry().restore, item, settings, snapshot))

    def snapshot(self) -> bytes:
        return self._episode.snapshot()

    def view(self, agent: str) -> str:
        return answer(self._episode.view, agent)

    def apply(self, actions: list) -> Any:
        given = [(action.agent, action.action) for action in actions]
        return types.Outcome(*answer(self._episode.apply, given))

    def oracle(self, agent: str) -> str | None:
        return answer(self._episode.oracle, agent)

    def draw(self, form: Any) -> str | None:
        return answer(self._episode.draw, DrawingForm(form.value))
