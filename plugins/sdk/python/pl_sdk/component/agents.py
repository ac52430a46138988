"""The contract's interface `agents`."""

from __future__ import annotations

from typing import Any

from wit_world.exports import agents

from . import answer, registry
from .. import codec
from ..errors import Refusal
from ..values import Completion, Finish, Image, Message, Request, Text, Tool, ToolCall, Turn


class Agents:
    """See the contract."""

    def prompt(self, item: str, settings: str, view: str, turn: Any) -> Any:
        def asked() -> Any:
            request = registry().prompt(item, settings, view, Turn(turn.agent, turn.visit))
            return None if request is None else _request(request, item)

        return answer(asked)

    def call_tools(self, item: str, settings: str, view: str, calls: list) -> list[str] | None:
        return answer(lambda: registry().call_tools(item, settings, view, [_call(call) for call in calls]))

    def parse(self, item: str, settings: str, view: str, completion: Any) -> str:
        return answer(lambda: registry().parse(item, settings, view, _completion(completion)))


def _request(request: Request, item: str) -> Any:
    tools = [agents.Tool(tool.name, tool.description, _parameters(tool, item)) for tool in request.tools]
    messages = [agents.Message(agents.Role(message.role.value), _parts(message)) for message in request.messages]
    return agents.Request(messages, tools, request.stop)


def _parameters(tool: Tool, item: str) -> str:
    try:
        return codec.dump(tool.parameters)
    except ValueError as error:
        raise Refusal(f"cannot write the tool {tool.name} of {item} as JSON: {error}") from None


def _parts(message: Message) -> list:
    if isinstance(message.parts, str):
        return [agents.Part_Text(message.parts)]
    parts = []
    for part in message.parts:
        if isinstance(part, Text):
            parts.append(agents.Part_Text(part.text))
        else:
            made = agents.Part_Image if isinstance(part, Image) else agents.Part_Data
            parts.append(made(agents.Blob(part.mime, part.bytes)))
    return parts


def _completion(completion: Any) -> Completion:
    calls = [_call(call) for call in completion.tool_calls]
    return Completion(completion.text, calls, Finish(completion.finish.value))


def _call(call: Any) -> ToolCall:
    try:
        return ToolCall(call.name, codec.parse(call.arguments))
    except ValueError as error:
        raise Refusal(f"the arguments of the tool call {call.name} are not JSON: {error}") from None
