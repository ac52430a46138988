"""The generator: random solutions from which queens are removed, and the splits.

The random choices and the hash are those of pl-host's own planning games, so that both have the same puzzles in the
same splits. They depend on nothing but a task's settings, split, level and index: not on the host's random stream,
which differs between requests, and not on Python's `hash`, which differs between builds.
"""

from __future__ import annotations

from board import complete

# Side length and number of missing queens of each level.
LEVELS = [(7, 1), (7, 2), (8, 2), (8, 3), (8, 4), (8, 6), (10, 7), (12, 9)]

SPLITS = ["train", "validation", "test"]

# Percentages of puzzles in the splits `test` and `validation`.
TEST_SHARE = 20
VALIDATION_SHARE = 10

# Maximum number of attempts at a puzzle. One in ten is in the smallest split.
MAX_ATTEMPTS = 10_000

MASK = (1 << 64) - 1


def generate(seed: int, split: str, level: int, index: int) -> list[int | None] | None:
    """Returns the puzzle of a task, or None if no attempt succeeds. `seed` selects the set of puzzles."""
    for attempt in range(MAX_ATTEMPTS):
        draw = Draw(digest(f"queens {seed} {split}-{level}-{index} {attempt}".encode()))
        given = puzzle(level, draw)
        if split_of(given) == split:
            return given
    return None


def puzzle(level: int, draw: Draw) -> list[int | None]:
    """Draws a puzzle of a level: the column of the given queen of each row."""
    size, missing = LEVELS[level]
    given = complete([None] * size, draw.shuffle)
    rows = list(range(size))
    draw.shuffle(rows)
    for row in rows[:missing]:
        given[row] = None
    return given


def split_of(given: list[int | None]) -> str:
    """Returns the split of a puzzle. Splits share no puzzle, not even a rotated or reflected one."""
    share = symmetry_hash(given) % 100
    if share < TEST_SHARE:
        return "test"
    return "validation" if share < TEST_SHARE + VALIDATION_SHARE else "train"


def symmetry_hash(given: list[int | None]) -> int:
    """Returns a hash that is equal for rotated and reflected boards: that of the smallest of the eight images."""
    size = len(given)
    queens = [(row, column) for row, column in enumerate(given) if column is not None]
    smallest = min(cells(image, size) for image in images(queens, size))
    return digest(bytes([size]) + smallest)


def images(queens: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    """Returns the eight images of a board under rotation and reflection."""
    found = []
    for _ in range(4):
        queens = [(column, size - 1 - row) for row, column in queens]
        found += [queens, [(column, row) for row, column in queens]]
    return found


def cells(queens: list[tuple[int, int]], size: int) -> bytes:
    """Returns the cells of a board, row by row: 1 for a queen."""
    board = bytearray(size * size)
    for row, column in queens:
        board[row * size + column] = 1
    return bytes(board)


class Draw:
    """A stream of random choices."""

    def __init__(self, seed: int) -> None:
        self.state = seed

    def below(self, bound: int) -> int:
        """Returns a number below `bound`, by SplitMix64 (Steele, Lea and Flood 2014)."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        # Bounds are small, so the bias of the remainder is negligible.
        return mix(self.state) % bound

    def shuffle(self, items: list[int]) -> None:
        """Shuffles the items (Fisher and Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.below(last + 1)
            items[last], items[other] = items[other], items[last]


def mix(z: int) -> int:
    """The output function of SplitMix64: every bit of the result depends on every bit of the seed."""
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def digest(data: bytes) -> int:
    """Hashes bytes: FNV-1a (Fowler, Noll and Vo), whose low bits are mixed with the others."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return mix(value)
