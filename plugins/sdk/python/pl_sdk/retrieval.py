"""Passages from the workflow's corpus."""

from __future__ import annotations

from dataclasses import dataclass

from . import host


@dataclass
class Passage:
    """A passage of a document, with its relevance score."""

    id: str
    text: str
    score: float


def retrieve(query: str, k: int) -> list[Passage]:
    """Returns the `k` best passages for `query`, best first. Raises LookupError if the workflow has no corpus."""
    return host.current.find_passages(query, k)
