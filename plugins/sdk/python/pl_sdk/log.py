"""Lines for the run's trace."""

from __future__ import annotations

from . import host


def debug(message: str) -> None:
    """What only the plugin's author wants to know."""
    host.current.write_log("debug", message)


def info(message: str) -> None:
    """What a user may want to know."""
    host.current.write_log("info", message)


def warn(message: str) -> None:
    """What a user should look into."""
    host.current.write_log("warn", message)
