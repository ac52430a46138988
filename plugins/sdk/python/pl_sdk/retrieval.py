"""Passages from the corpora of the environment. Only environments and the tools of agents may call it."""

from __future__ import annotations

from dataclasses import dataclass

from . import host


@dataclass
class Passage:
    """A passage of a document, with its relevance score."""

    id: str
    text: str
    score: float


def retrieve(query: str, k: int, corpus: str | None = None) -> list[Passage]:
    """Returns the `k` best passages for `query`, best first.

    `corpus` is a name in the workflow; None stands for the environment's first. Raises LookupError if the environment
    has no such corpus.
    """
    return host.current.find_passages(query, k, corpus)
