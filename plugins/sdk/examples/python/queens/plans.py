"""Finds a plan in what a model writes: the columns of all queens, row by row."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Marks that a plan follows.
MARKS = ["####", "\\boxed{", "Actions List"]

# A number with or without quotes. Longer ones are no columns, and Python refuses to read very long ones.
NUMBER = r"[+-]?[0-9]{1,18}"
ITEM = rf"(?:{NUMBER}|\"\s*{NUMBER}\s*\"|'\s*{NUMBER}\s*')"

# A list of numbers, in JSON or as Python prints it.
LIST = re.compile(rf"\[\s*{ITEM}(?:\s*,\s*{ITEM})*(?:\s*,)?\s*\]")

WORD = re.compile(r"[^\W_]+")


@dataclass
class Plan:
    """A plan, and the part of the text that holds it."""

    columns: list[int]
    source: str


def find(text: str) -> Plan | None:
    """Finds the plan that a text ends with.

    It is the first list of numbers after the last mark or, if there is none, the last list of the text. Without a
    list, the last line of numbers counts.
    """
    end = max((text.rfind(mark) + len(mark) for mark in MARKS if mark in text), default=len(text))
    after = text[end:]
    if marked := lists(after):
        return marked[0]
    everywhere = lists(text)
    return bare(after) or (everywhere[-1] if everywhere else bare(text))


def lists(text: str) -> list[Plan]:
    """Returns the lists of numbers in a text, in order."""
    return [
        Plan([int(number) for number in re.findall(NUMBER, found.group())], found.group())
        for found in LIST.finditer(text)
    ]


def bare(text: str) -> Plan | None:
    """Returns the last line that has only numbers, and punctuation between them."""
    for line in reversed(text.split("\n")):
        words = WORD.findall(line)
        if words and all(re.fullmatch(NUMBER, word) for word in words):
            return Plan([int(word) for word in words], text)
    return None
