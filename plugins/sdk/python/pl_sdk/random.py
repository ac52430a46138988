"""The episode's random stream. Its position is part of the snapshot.

Don't use Python's own `random` in a plugin: it restarts from the same seed in every copy of an episode.
"""

from __future__ import annotations

from . import host

_MASK = (1 << 64) - 1


def next() -> int:
    """The next number of the stream, 0 to 2^64 - 1."""
    return host.current.next_random()


def below(bound: int) -> int:
    """A number below `bound`, all equally likely. Returns 0 if `bound` is 0."""
    if bound == 0:
        return 0
    # Lemire (2019): the high half of a product, redrawn if the low half would favour small numbers.
    threshold = (-bound & _MASK) % bound
    while True:
        product = next() * bound
        if product & _MASK >= threshold:
            return product >> 64
