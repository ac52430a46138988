"""Exceptions that a plugin raises instead of returning a result, and the text of all others."""

from __future__ import annotations

import traceback


class Refusal(Exception):
    """The item cannot continue for a reason other than its settings or the task."""


class SettingsError(Refusal):
    """The item's settings are invalid: the host points to the item's block in the workflow."""


class TaskError(Refusal):
    """The environment can't read the task's record: the host points to its line."""


#: Calls of a traceback that are shown: the innermost ones, and the outermost.
_INNERMOST, _OUTERMOST = 5, 2


def describe(error: BaseException, skipped: int = 0) -> str:
    """Returns type, message and place of an exception, the innermost call first, without the `skipped` outermost ones."""
    # Not `extract_tb`: it reads the source from disk, which traps in a component.
    frames = [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)][skipped:]
    calls = [f"{code.co_filename}:{line} {code.co_name}" for code, line in reversed(frames)]
    if (more := len(calls) - _INNERMOST - _OUTERMOST) > 1:
        calls[_INNERMOST:-_OUTERMOST] = [f"… {more} more"]
    place = f" ({' < '.join(calls)})" if calls else ""
    return f"{type(error).__name__}: {error}{place}"
