"""The board of N Queens: its rules, its value, and its solutions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Maximum side length: completing a larger board takes too long.
MAX_SIZE = 16

# Value of two queens that attack each other, and of a board that is not solved.
PER_ATTACK = -0.1
UNSOLVED = -0.5


@dataclass
class Board:
    """A board with one queen to a row. Rows and columns are counted from 0."""

    #: Column of the given queen of each row.
    given: list[int | None]
    #: Column of the queen of each row.
    columns: list[int | None]

    @staticmethod
    def start(queens: list[int | None]) -> Board:
        """Sets up the board of a record, in which -1 and null are rows without a queen.

        Raises ValueError if the record is not a puzzle.
        """
        size = len(queens)
        if not 1 <= size <= MAX_SIZE:
            raise ValueError(f"a board has 1 to {MAX_SIZE} rows, this one {size}")
        given = [None if column == -1 else column for column in queens]
        for column in given:
            if column is not None and not 0 <= column < size:
                raise ValueError(f"a queen stands in column {column} of {size}")
        if None not in given:
            raise ValueError("no queen is missing")
        if complete(given) is None:
            raise ValueError("the queens can't be completed to a solution")
        return Board(given, given.copy())

    @property
    def size(self) -> int:
        """Number of rows, and of columns."""
        return len(self.given)

    def place(self, columns: list[int]) -> bool:
        """Replaces all queens. Returns False, and changes nothing, if the list is no board or moves a given queen."""
        valid = (
            len(columns) == self.size
            and all(0 <= column < self.size for column in columns)
            and all(given in (None, column) for given, column in zip(self.given, columns))
        )
        if valid:
            self.columns = list(columns)
        return valid

    @property
    def attacks(self) -> int:
        """Number of pairs of queens that attack each other."""
        queens = [(row, column) for row, column in enumerate(self.columns) if column is not None]
        return sum(attack(one, other) for later, one in enumerate(queens) for other in queens[:later])

    @property
    def solved(self) -> bool:
        """True if every row has a queen and none attacks another."""
        return None not in self.columns and self.attacks == 0

    @property
    def potential(self) -> float:
        """Value of the board, for shaping: rewards are differences of it."""
        return PER_ATTACK * self.attacks + (0.0 if self.solved else UNSOLVED)

    def solution(self) -> list[int] | None:
        """Returns the columns of a solution."""
        return complete(self.given)

    def show(self) -> str:
        """Returns the board as agents see it."""
        rows = ["".join("Q" if column == queen else "." for column in range(self.size)) for queen in self.columns]
        fixed = [f"row {row} column {column}" for row, column in enumerate(self.given) if column is not None]
        if fixed:
            rows.append(f"Fixed queens: {', '.join(fixed)}.")
        return "\n".join(rows)


def attack(one: tuple[int, int], other: tuple[int, int]) -> bool:
    """Returns True if two queens in different rows attack each other."""
    return one[1] == other[1] or abs(one[0] - other[0]) == abs(one[1] - other[1])


def complete(
    given: list[int | None], order: Callable[[list[int]], None] = lambda columns: None
) -> list[int] | None:
    """Completes a board by backtracking, row by row. `order` arranges the columns of a row before they are tried.

    Returns None if no completion exists.
    """
    size, board = len(given), list(given)
    # Columns and diagonals that a queen occupies. Cells of a diagonal have equal sums or differences.
    taken: set[int] = set()
    rising: set[int] = set()
    falling: set[int] = set()

    def fits(row: int, column: int) -> bool:
        return column not in taken and row + column not in rising and row - column not in falling

    def put(row: int, column: int) -> None:
        taken.add(column)
        rising.add(row + column)
        falling.add(row - column)

    def place(empty: list[int]) -> bool:
        if not empty:
            return True
        row = empty[0]
        columns = [column for column in range(size) if fits(row, column)]
        order(columns)
        for column in columns:
            put(row, column)
            board[row] = column
            if place(empty[1:]):
                return True
            taken.remove(column)
            rising.remove(row + column)
            falling.remove(row - column)
        board[row] = None
        return False

    for row, column in enumerate(given):
        if column is not None:
            if not fits(row, column):
                return None
            put(row, column)
    return board if place([row for row, column in enumerate(given) if column is None]) else None
