"""Stand-in for the host in a plugin's own tests; `testing` configures it.

This module imports nothing from the SDK, because all other modules depend on it.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

_MASK = (1 << 64) - 1


class Standin:
    """Implements the methods of `host.current`."""

    def __init__(self) -> None:
        self.state = 0
        self.run: Callable[[Any], Any] | None = None
        self.find: Callable[[str, int], list] | None = None
        self.answer: Callable[[str, list], str] | None = None

    def next_random(self) -> int:
        """SplitMix64 (Steele, Lea and Flood 2014)."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def write_log(self, level: str, message: str) -> None:
        print(f"{level}: {message}", file=sys.stderr)

    def run_jobs(self, jobs: list) -> list:
        if self.run is None:
            raise RuntimeError("no sandbox here: a test sets one with pl_sdk.testing.set_sandbox")
        return [self.run(job) for job in jobs]

    def find_passages(self, query: str, k: int, corpus: str | None) -> list:
        if self.find is None:
            raise LookupError("no corpus here: a test sets one with pl_sdk.testing.set_corpus")
        return self.find(query, k)

    def ask_policy(self, policy: str, messages: list, max_tokens: int) -> str:
        if self.answer is None:
            raise LookupError("no policies here: a test sets them with pl_sdk.testing.set_policies")
        return self.answer(policy, messages)
