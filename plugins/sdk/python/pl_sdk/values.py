"""Arguments and results of an item's functions."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Any, Sequence

from . import codec
from .errors import TaskError


class Role(enum.Enum):
    """Role of a message."""

    SYSTEM = 0
    USER = 1
    ASSISTANT = 2
    TOOL = 3


class Finish(enum.Enum):
    """Reason for the end of a completion: a stop token or string, the token limit, or a tool call."""

    STOP = 0
    LENGTH = 1
    TOOL_CALLS = 2


class DrawingForm(enum.Enum):
    """Form of a drawing: an SVG document without scripts, or lines of text."""

    SVG = 0
    TEXT = 1


@dataclass
class Text:
    """A text."""

    text: str


@dataclass
class Blob:
    """Bytes and their MIME type, such as `image/png`."""

    mime: str
    bytes: bytes


class Image(Blob):
    """An image."""


class Data(Blob):
    """Other bytes."""


@dataclass
class Message:
    """One message to a model. `parts` may be a string: one text part."""

    role: Role
    parts: str | list[Text | Image | Data]

    def text(self) -> str:
        """Returns the text parts, joined."""
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
    """A request to the model. `stop`: strings that end the completion and are not part of its text."""

    messages: list[Message]
    tools: list[Tool] = field(default_factory=list)
    stop: list[str] = field(default_factory=list)

    @staticmethod
    def user(text: str) -> Request:
        """A request with one user message."""
        return Request([Message(Role.USER, text)])

    def with_system(self, text: str) -> Request:
        """Returns a copy with a system message at the front."""
        return replace(self, messages=[Message(Role.SYSTEM, text), *self.messages])

    def with_example(self, question: str, answer: str) -> Request:
        """Returns a copy with a worked example (question and answer) before the last message."""
        exchange = [Message(Role.USER, question), Message(Role.ASSISTANT, answer)]
        return replace(self, messages=[*self.messages[:-1], *exchange, *self.messages[-1:]])

    def with_stop(self, *stop: str) -> Request:
        """Returns a copy with more strings that end the completion."""
        return replace(self, stop=[*self.stop, *stop])


@dataclass
class Turn:
    """The current turn of an agent."""

    #: The agent's name in the workflow.
    agent: str
    #: Number of the agent's earlier visits in this episode.
    visit: int


@dataclass
class ToolCall:
    """A tool call by the model, with its arguments parsed from JSON."""

    name: str
    arguments: Any


@dataclass
class Completion:
    """The model's answer."""

    text: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    finish: Finish = Finish.STOP


@dataclass
class Task:
    """One problem to solve. `data` is JSON text: use `Task.new` and `read`."""

    id: str
    data: str

    @staticmethod
    def new(id: str, data: Any) -> Task:
        """Creates a task with `data` as its record."""
        return Task(id, codec.dump(data))

    def read(self, kind: Any = Any) -> Any:
        """Reads the record as `kind` (e.g. a dataclass). Raises TaskError if it has another form."""
        try:
            return codec.parse(self.data, kind)
        except ValueError as error:
            raise TaskError(f"task {self.id}: {error}") from None


@dataclass
class TaskRequest:
    """A request for generated tasks: `count` tasks from index `start` on."""

    #: `train`, `test` or any other name.
    split: str
    start: int
    count: int
    #: Difficulty; the environment defines the meaning of the numbers.
    level: int


@dataclass
class Action:
    """The action of one agent."""

    #: The agent's name in the workflow.
    agent: str
    #: Result of the agent's `parse`.
    action: Any


@dataclass
class Outcome:
    """Result of a step in the environment."""

    #: Facts for `when` conditions.
    facts: Any
    #: Evidence for the reward only: gold answers, test results.
    evidence: Any = None
    #: True if the episode is over.
    done: bool = False
    #: True if the episode was truncated: it is over but undecided.
    truncated: bool = False


@dataclass
class Transition:
    """One step of an episode: the actions and their result."""

    task: Task
    actions: list[Action]
    facts: Any
    evidence: Any
    done: bool
    truncated: bool


@dataclass
class AgentScore:
    """Score of one agent; `success` is true if its own part is right."""

    agent: str
    reward: float
    success: bool


@dataclass
class Scores:
    """Scores of a step: one shared by the team, and one for each agent that acted."""

    team: float
    local: Sequence[AgentScore]
    #: True if the team has solved the task after this step.
    success: bool
