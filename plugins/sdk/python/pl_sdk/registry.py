"""Adapters from typed items to the contract's functions over JSON."""

from __future__ import annotations

from typing import Any, Callable

from . import codec, returned, schema
from .errors import Refusal, SettingsError, describe
from .items import Environment, Plugin
from .values import (
    Action,
    Completion,
    DrawingForm,
    Outcome,
    Request,
    Scores,
    Task,
    TaskRequest,
    ToolCall,
    Transition,
    Turn,
)


class Registry:
    """Calls a plugin's items by name."""

    def __init__(self, plugin: Plugin) -> None:
        self._plugin = plugin

    def describe(self) -> list[tuple[str, str, str, str, list[tuple[str, str, str]]]]:
        """Returns kind, name, doc, settings schema and facts of every item."""
        plugin, found = self._plugin, []
        for kind, items in (
            ("environment", plugin.environments),
            ("agent", plugin.agents),
            ("reward", plugin.rewards),
        ):
            for name, item in items.items():
                settings = codec.dump(schema.settings_schema(item._declared["settings"]))
                facts = item._declared.get("facts") if kind == "environment" else None
                found.append((kind, name, item._doc(), settings, schema.fact_list(facts) if facts else []))
        return found

    def start(self, item: str, settings: str, task: Task, seed: int) -> Episode:
        """See the contract's `episode.start`."""
        kind = self._find("environment", item)
        read = _settings(kind, settings)
        return Episode(kind, read, _returned(f"{item}.start", kind, kind.start, read, task, seed))

    def restore(self, item: str, settings: str, snapshot: bytes) -> Episode:
        """See the contract's `episode.restore`."""
        kind = self._find("environment", item)
        return Episode(kind, _settings(kind, settings), _read(snapshot, kind, f"{item} cannot read its snapshot"))

    def tasks(self, item: str, settings: str, request: TaskRequest) -> list[Task]:
        """See the contract's `tasks`."""
        kind = self._find("environment", item)
        return _returned(f"{item}.tasks", list[Task], kind.tasks, _settings(kind, settings), request)

    def prompt(self, item: str, settings: str, view: str, turn: Turn) -> Request | None:
        """See the contract's `prompt`."""
        kind = self._find("agent", item)
        given = (_settings(kind, settings), _view(kind, view), turn)
        return _returned(f"{item}.prompt", Request | None, kind.prompt, *given)

    def call_tools(self, item: str, settings: str, view: str, calls: list[ToolCall]) -> list[str] | None:
        """See the contract's `call-tools`."""
        kind = self._find("agent", item)
        given = (_settings(kind, settings), _view(kind, view), calls)
        return _returned(f"{item}.call_tools", list[str] | None, kind.call_tools, *given)

    def parse(self, item: str, settings: str, view: str, completion: Completion) -> str:
        """See the contract's `parse`."""
        kind = self._find("agent", item)
        action = _guarded(f"{item}.parse", kind.parse, _settings(kind, settings), _view(kind, view), completion)
        return _write(action, f"the action of {item}")

    def score(self, item: str, settings: str, task: Task, actions: list[tuple[str, str]], outcome: tuple) -> Scores:
        """See the contract's `score`. `outcome`: done, truncated, facts and evidence, the last two as JSON."""
        kind = self._find("reward", item)
        done, truncated, facts, evidence = outcome
        transition = Transition(
            task,
            _actions(kind, actions),
            _read(facts, kind._declared["facts"], f"{item} cannot read the environment's facts"),
            _read(evidence, kind._declared["evidence"], f"{item} cannot read the environment's evidence"),
            done,
            truncated,
        )
        return _returned(f"{item}.score", Scores, kind.score, _settings(kind, settings), transition)

    def _find(self, kind: str, name: str) -> Any:
        found = getattr(self._plugin, kind + "s").get(name)
        if found is None:
            raise Refusal(f"this plugin has no {kind} `{name}`")
        return found


class Episode:
    """A running environment with its settings."""

    def __init__(self, kind: type[Environment], settings: Any, state: Any) -> None:
        self._name = kind._declared["name"]
        self._kind, self._settings, self._state = kind, settings, state

    def snapshot(self) -> bytes:
        """Returns the state as JSON."""
        return _write(self._state, f"the state of {self._name}").encode()

    def view(self, agent: str) -> str:
        """See the contract's `view`."""
        seen = _guarded(f"{self._name}.view", self._state.view, self._settings, agent)
        return _write(seen, f"the view of {self._name}")

    def apply(self, actions: list[tuple[str, str]]) -> tuple[bool, bool, str, str]:
        """See the contract's `apply`: done, truncated, facts and evidence."""
        read = _actions(self._kind, actions)
        outcome = _returned(f"{self._name}.apply", Outcome, self._state.apply, self._settings, read)
        facts = _write(outcome.facts if outcome.facts is not None else {}, f"the facts of {self._name}")
        evidence = _write(outcome.evidence, f"the evidence of {self._name}")
        return outcome.done, outcome.truncated, facts, evidence

    def oracle(self, agent: str) -> str | None:
        """See the contract's `oracle`."""
        action = _guarded(f"{self._name}.oracle", self._state.oracle, self._settings, agent)
        return None if action is None else _write(action, f"the oracle's action of {self._name}")

    def draw(self, form: DrawingForm) -> str | None:
        """See the contract's `draw`."""
        return _returned(f"{self._name}.draw", str | None, self._state.draw, self._settings, form)


def _settings(kind: Any, text: str) -> Any:
    declared = kind._declared
    try:
        settings = codec.parse(text, declared["settings"], closed=True)
        schema.check_bounds(declared["settings"], settings)
        return settings
    except ValueError as error:
        raise SettingsError(f"settings of {declared['name']}: {error}") from None


def _view(kind: Any, text: str) -> Any:
    what = f"{kind._declared['name']} cannot read the environment's view (is the agent made for this environment?)"
    return _read(text, kind._declared["view"], what)


def _actions(kind: Any, actions: list[tuple[str, str]]) -> list[Action]:
    name, action_kind = kind._declared["name"], kind._declared["action"]
    read = []
    for agent, action in actions:
        what = f"{name} cannot read the action of agent `{agent}` (is the agent made for this environment?)"
        read.append(Action(agent, _read(action, action_kind, what)))
    return read


def _read(text: str | bytes, kind: Any, what: str) -> Any:
    try:
        return codec.parse(text, kind)
    except ValueError as error:
        raise Refusal(f"{what}: {error}") from None


def _write(value: Any, what: str) -> str:
    try:
        return codec.dump(value)
    except ValueError as error:
        raise Refusal(f"cannot write {what} as JSON: {error}") from None


def _returned(what: str, kind: Any, function: Callable, *arguments: Any) -> Any:
    """Calls the function and converts its result to its type."""
    value = _guarded(what, function, *arguments)
    # Guarded too: iterators run the plugin's code.
    return _guarded(what, returned.converted, what, value, kind)


def _guarded(what: str, function: Callable, *arguments: Any) -> Any:
    """Calls the function. An exception becomes a Refusal with the place in the plugin's source where it was raised."""
    try:
        return function(*arguments)
    except Refusal:
        raise
    # SystemExit too: it would end the component.
    except (Exception, SystemExit) as error:
        raise Refusal(f"{what}: {describe(error, skipped=1)}") from None
