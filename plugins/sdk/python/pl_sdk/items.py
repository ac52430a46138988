"""The kinds of items, and the plugin that contains them."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from .errors import SettingsError
from .schema import NoSettings
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


class _Item:
    """Base of environments, agents and rewards: stores the class arguments."""

    #: Arguments on the class line; their names depend on the kind of item.
    _declared: ClassVar[dict[str, Any]]

    @classmethod
    def _declare(cls, **declared: Any) -> None:
        # `dataclass(slots=True)` creates the class a second time, without arguments.
        if "_declared" not in cls.__dict__:
            if not declared["name"]:
                raise TypeError(f'class {cls.__name__} needs a name: class {cls.__name__}(…, name="…")')
            cls._declared = declared

    @classmethod
    def _doc(cls) -> str:
        """Returns the docstring's first paragraph, or "" for the docstring that a dataclass generates."""
        doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.split("\n\n")[0].split())


class Environment(_Item):
    """The only state of an episode: a dataclass; a snapshot keeps exactly its fields.

        @dataclass
        class Game(Environment, name="game", settings=Rules, facts=Facts): ...

    `settings` and `facts` are dataclasses (see `setting` and `fact`), `action` is the type of the actions.
    Fields hold plain values, lists, dicts and dataclasses; a set, or a float that is not finite, has no JSON form.
    """

    def __init_subclass__(cls, *, name="", settings=NoSettings, facts=None, action=Any, **rest) -> None:
        super().__init_subclass__(**rest)
        cls._declare(name=name, settings=settings, facts=facts, action=action)

    @classmethod
    def start(cls, settings: Any, task: Task, seed: int) -> Any:
        """Starts an episode. Equal arguments and an equal random stream give an equal episode."""
        raise NotImplementedError(f"{cls.__name__} has no `start`")

    def view(self, settings: Any, agent: str) -> Any:
        """Returns the view of `agent`: the parts of the state that it may see, as a value with a JSON form."""
        raise NotImplementedError(f"{type(self).__name__} has no `view`")

    def apply(self, settings: Any, actions: list[Action]) -> Outcome:
        """Applies the actions of one turn together. An invalid action is not an error: it is the model's answer."""
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")

    def oracle(self, settings: Any, agent: str) -> Any:
        """Returns an action of `agent` that leads to success, or None. Audits and tests play it; no agent sees it."""
        return None

    def draw(self, settings: Any, form: DrawingForm) -> str | None:
        """Returns a drawing of the state for people, or None if this form has no drawing."""
        return None

    @classmethod
    def tasks(cls, settings: Any, request: TaskRequest) -> list[Task]:
        """Generates tasks. A task depends only on settings, split, level and index; splits have no task in common."""
        raise SettingsError(f"{cls._declared['name']} makes no tasks of its own: set `tasks` to a file")


class Agent(_Item):
    """Two stateless functions, `prompt` and `parse`. Everything an agent must remember belongs in the environment's view.

    class Player(Agent, name="player", settings=PlayerSettings, view=Hints): ...

    `view` is the type of the environment's view; the default is the plain result of json.loads.
    """

    def __init_subclass__(cls, *, name="", settings=NoSettings, view=Any, **rest) -> None:
        super().__init_subclass__(**rest)
        cls._declare(name=name, settings=settings, view=view)

    @staticmethod
    def prompt(settings: Any, view: Any, turn: Turn) -> Request | None:
        """Returns the request to the model, or None to skip this turn."""
        raise NotImplementedError("an agent needs a `prompt`")

    @staticmethod
    def call_tools(settings: Any, view: Any, calls: list[ToolCall]) -> list[str] | None:
        """Answers the tool calls of a completion with one result for each; the model is then asked again, in the same
        turn. None if the completion is the turn's last. `sandbox` and `retrieval` are available here."""
        return None

    @staticmethod
    def parse(settings: Any, view: Any, completion: Completion) -> Any:
        """Turns the turn's last completion into an action. Invalid text is an action too, never an error."""
        raise NotImplementedError("an agent needs a `parse`")


class Reward(_Item):
    """A function that scores a transition.

    class Found(Reward, name="found"): ...

    `action`, `facts` and `evidence` are the types of those values; the default is the plain result of json.loads.
    """

    def __init_subclass__(
        cls, *, name="", settings=NoSettings, action=Any, facts=Any, evidence=Any, **rest
    ) -> None:
        super().__init_subclass__(**rest)
        cls._declare(name=name, settings=settings, action=action, facts=facts, evidence=evidence)

    @staticmethod
    def score(settings: Any, transition: Transition) -> Scores:
        """Scores the step."""
        raise NotImplementedError("a reward needs a `score`")


class Plugin:
    """A plugin. The main file defines it: `plugin = Plugin(environments=[Game], agents=[Player], rewards=[Found])`."""

    def __init__(
        self,
        *,
        environments: list[type[Environment]] = [],
        agents: list[type[Agent]] = [],
        rewards: list[type[Reward]] = [],
    ) -> None:
        self.environments = {item._declared["name"]: item for item in environments}
        self.agents = {item._declared["name"]: item for item in agents}
        self.rewards = {item._declared["name"]: item for item in rewards}
