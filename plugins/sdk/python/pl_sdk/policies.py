"""Policies that the plugin's `grant` names. Only rewards may ask them: elsewhere, and without the grant, the call traps."""

from __future__ import annotations

from . import host


def ask(policy: str, messages: list[tuple[str, str]], max_tokens: int) -> str:
    """Returns the greedy completion of a conversation by `policy`, a name in the workflow.

    `messages` are pairs of a role (`system`, `user`, `assistant`) and a text. Raises LookupError if the policy can't
    generate.
    """
    return host.current.ask_policy(policy, messages, max_tokens)
