"""The episode's random stream. Its position travels with the snapshot.

Python's own `random` is no stream of the episode: it starts anew in every copy. Use this one.
"""

from __future__ import annotations

from . import host

_MASK = (1 << 64) - 1


def next() -> int:
    """The next number of the stream, 0 to 2^64 - 1."""
    return host.current.next_random()


def below(bound: int) -> int:
    """A number below `bound`, every one as likely as the others. 0 for a bound of 0."""
    if bound == 0:
        return 0
    # Lemire (2019): the high half of a product, redrawn where the low half would favour small numbers.
    threshold = (-bound & _MASK) % bound
    while True:
        product = next() * bound
        if product & _MASK >= threshold:
            return product >> 64
