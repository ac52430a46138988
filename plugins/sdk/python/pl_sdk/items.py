"""The kinds of items, and the plugin that they make."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

from .errors import SettingsError
from .schema import NoSettings
from .values import Action, Completion, Outcome, Request, Scores, Task, TaskRequest, Transition, Turn


class _Item:
    """What environments, agents and rewards have in common: class arguments, which a dataclass does not see."""

    #: What the class line says, by kind of item.
    _declared: ClassVar[dict[str, Any]]

    @classmethod
    def _declare(cls, **declared: Any) -> None:
        # `dataclass(slots=True)` makes the class a second time, without arguments.
        if "_declared" not in cls.__dict__:
            if not declared["name"]:
                raise TypeError(f'class {cls.__name__} needs a name: class {cls.__name__}(…, name="…")')
            cls._declared = declared

    @classmethod
    def _doc(cls) -> str:
        """The docstring's first sentence or paragraph. A dataclass without one makes its own, which says nothing."""
        doc = inspect.cleandoc(cls.__dict__.get("__doc__") or "")
        return "" if doc.startswith(f"{cls.__name__}(") else " ".join(doc.split("\n\n")[0].split())


class Environment(_Item):
    """The only memory of an episode: a dataclass, whose fields are all that a snapshot keeps.

        @dataclass
        class Game(Environment, name="game", settings=Rules, facts=Facts): ...

    `settings` and `facts` are dataclasses (see `setting` and `fact`), `action` is the type that actions are read as.
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
        """What `agent` may see now."""
        raise NotImplementedError(f"{type(self).__name__} has no `view`")

    def apply(self, settings: Any, actions: list[Action]) -> Outcome:
        """Applies the actions of one turn together. A bad action is no error: it is what a model did."""
        raise NotImplementedError(f"{type(self).__name__} has no `apply`")

    @classmethod
    def tasks(cls, settings: Any, request: TaskRequest) -> list[Task]:
        """Makes tasks. Equal arguments give equal tasks, whatever the block they are asked for in; splits share none."""
        raise SettingsError(f"{cls._declared['name']} makes no tasks of its own: set `tasks` to a file")


class Agent(_Item):
    """A prompt and a parse, stateless both; what an agent needs to remember stands in the environment's view.

    class Player(Agent, name="player", settings=Manner, view=Hints): ...

    `view` is the type that the environment's view is read as; without it, it is what json.loads gives.
    """

    def __init_subclass__(cls, *, name="", settings=NoSettings, view=Any, **rest) -> None:
        super().__init_subclass__(**rest)
        cls._declare(name=name, settings=settings, view=view)

    @staticmethod
    def prompt(settings: Any, view: Any, turn: Turn) -> Request | None:
        """What to ask the model; None skips this turn."""
        raise NotImplementedError("an agent needs a `prompt`")

    @staticmethod
    def parse(settings: Any, view: Any, completion: Completion) -> Any:
        """What the completion means. Text that means nothing is an action too, never an error."""
        raise NotImplementedError("an agent needs a `parse`")


class Reward(_Item):
    """One function of a transition.

    class Found(Reward, name="found"): ...

    `action`, `facts` and `evidence` are the types that those are read as.
    """

    def __init_subclass__(
        cls, *, name="", settings=NoSettings, action=Any, facts=Any, evidence=Any, **rest
    ) -> None:
        super().__init_subclass__(**rest)
        cls._declare(name=name, settings=settings, action=action, facts=facts, evidence=evidence)

    @staticmethod
    def score(settings: Any, transition: Transition) -> Scores:
        """What the step earned."""
        raise NotImplementedError("a reward needs a `score`")


class Plugin:
    """What the main file ends with: `plugin = Plugin(environments=[Game], agents=[Player], rewards=[Found])`."""

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
