"""The Python SDK for plugins: agents, environments and rewards.

An agent is two functions, an environment is a dataclass that the SDK snapshots as JSON, a reward is one function.
README.md, next to this package, shows a complete plugin and how to build it.
"""

from . import log, policies, random, retrieval, sandbox
from .errors import Refusal, SettingsError, TaskError
from .items import Agent, Environment, Plugin, Reward
from .schema import NoSettings, setting, fact
from .values import (
    Action,
    AgentScore,
    Blob,
    Completion,
    Data,
    DrawingForm,
    Finish,
    Image,
    Message,
    Outcome,
    Request,
    Role,
    Scores,
    Task,
    TaskRequest,
    Text,
    Tool,
    ToolCall,
    Transition,
    Turn,
)

__all__ = [
    "Action",
    "Agent",
    "AgentScore",
    "Blob",
    "Completion",
    "Data",
    "DrawingForm",
    "Environment",
    "Finish",
    "Image",
    "Message",
    "NoSettings",
    "Outcome",
    "Plugin",
    "Refusal",
    "Request",
    "Reward",
    "Role",
    "Scores",
    "SettingsError",
    "Task",
    "TaskError",
    "TaskRequest",
    "Text",
    "Tool",
    "ToolCall",
    "Transition",
    "Turn",
    "fact",
    "log",
    "policies",
    "random",
    "retrieval",
    "sandbox",
    "setting",
]
