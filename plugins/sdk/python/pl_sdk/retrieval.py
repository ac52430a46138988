"""Passages from the workflow's corpus."""

from __future__ import annotations

from dataclasses import dataclass

from . import host


@dataclass
class Passage:
    """A piece of a document and how well it fits."""

    id: str
    text: str
    score: float


def retrieve(query: str, k: int) -> list[Passage]:
    """The `k` passages that fit `query` best, best first. Raises LookupError where the workflow has no corpus."""
    return host.current.find_passages(query, k)
