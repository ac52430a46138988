"""Log lines in the run's trace."""

from __future__ import annotations

from . import host


def debug(message: str) -> None:
    """Logs a detail for the plugin's author."""
    host.current.write_log("debug", message)


def info(message: str) -> None:
    """Logs information for users."""
    host.current.write_log("info", message)


def warn(message: str) -> None:
    """Logs a possible problem."""
    host.current.write_log("warn", message)
