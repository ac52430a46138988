"""What goes into an item's functions and comes out of them."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any, Sequence

from . import codec
from .errors import TaskError


class Role(enum.Enum):
    """Who speaks in a message."""

    SYSTEM = 0
    USER = 1
    ASSISTANT = 2
    TOOL = 3


class Finish(enum.Enum):
    """Why a completion ended: by itself, at its token limit, or to call tools."""

    STOP = 0
    LENGTH = 1
    TOOL_CALLS = 2


@dataclass
class Text:
    """Words."""

    text: str


@dataclass
class Blob:
    """Bytes and what they are, such as `image/png`."""

    mime: str
    bytes: bytes


class Image(Blob):
    """A picture."""


class Data(Blob):
    """Anything else."""


@dataclass
class Message:
    """One message to a model. A text stands for one part of that text."""

    role: Role
    parts: str | list[Text | Image | Data]

    def text(self) -> str:
        """The text parts, joined."""
        if isinstance(self.parts, str):
            return self.parts
        return "".join(part.text for part in self.parts if isinstance(part, Text))


@dataclass
class Tool:
    """A tool that the model may call. `parameters` is the JSON Schema of the arguments object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass
class Request:
    """What to ask the model. `stop`: strings that end the completion and are no part of its text."""

    messages: list[Message]
    tools: list[Tool] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)

    @staticmethod
    def user(text: str) -> Request:
        """A request of one user message."""
        return Request([Message(Role.USER, text)])

    def with_system(self, text: str) -> Request:
        """The same with a system message in front."""
        return replace(self, messages=[Message(Role.SYSTEM, text), *self.messages])

    def with_example(self, question: str, answer: str) -> Request:
        """The same with a worked example, an earlier exchange, in front of the last message."""
        exchange = [Message(Role.USER, question), Message(Role.ASSISTANT, answer)]
        return replace(self, messages=[*self.messages[:-1], *exchange, *self.messages[-1:]])

    def with_stop(self, *stop: str) -> Request:
        """The same with more strings that end the completion."""
        return replace(self, stop=[*self.stop, *stop])


@dataclass
class Turn:
    """The turn that an agent is asked for."""

    #: The agent's name in the workflow.
    agent: str
    #: The agent's earlier visits in this episode.
    visit: int


@dataclass
class ToolCall:
    """A call that the model asks for, its arguments read from their JSON."""

    name: str
    arguments: Any


@dataclass
class Completion:
    """What the model answered."""

    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish: Finish = Finish.STOP


@dataclass
class Task:
    """One problem to solve. `data` is JSON text: use `Task.of` and `read`."""

    id: str
    data: str

    @staticmethod
    def of(id: str, data: Any) -> Task:
        """A task whose record is `data`."""
        return Task(id, codec.dump(data))

    def read(self, kind: Any = Any) -> Any:
        """The record, as `kind` (a dataclass, say). Raises TaskError where it has another form."""
        try:
            return codec.parse(self.data, kind)
        except ValueError as error:
            raise TaskError(f"task {self.id}: {error}") from None


@dataclass
class TaskRequest:
    """Which generated tasks are wanted: `count` from index `start` on."""

    #: `train`, `test` or any other name.
    split: str
    start: int
    count: int
    #: Difficulty; what the numbers mean is the environment's.
    level: int


@dataclass
class Action:
    """What one agent did."""

    #: The agent's name in the workflow.
    agent: str
    #: What its `parse` returned.
    action: Any


@dataclass
class Outcome:
    """What an environment says after a step."""

    #: For `when` conditions.
    facts: Any
    #: For the reward alone: gold answers, test results.
    evidence: Any = None
    #: The episode is over.
    done: bool = False
    #: The episode was cut short: over, but not decided.
    truncated: bool = False


@dataclass
class Transition:
    """One step: who did what, and what came of it."""

    task: Task
    actions: list[Action]
    facts: Any
    evidence: Any
    done: bool
    truncated: bool


@dataclass
class AgentScore:
    """What one agent earned, and whether its own part is right."""

    agent: str
    reward: float
    success: bool


@dataclass
class Scores:
    """What a step earned: the part that all agents share, and one part for each agent that acted."""

    team: float
    local: Sequence[AgentScore]
    #: Whether the team has solved the task as things stand.
    success: bool
