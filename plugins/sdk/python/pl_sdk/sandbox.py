"""Runs untrusted code. Only environments and the tools of agents may call it: elsewhere the call traps."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from . import host


class Ending(enum.Enum):
    """The way a job ended."""

    OK = 0
    ERROR = 1
    TIMEOUT = 2
    MEMORY = 3
    OUTPUT_LIMIT = 4
    PROCESS_LIMIT = 5
    LOST_WORKER = 6


@dataclass
class File:
    """A file in the job's folder."""

    path: str
    bytes: bytes


@dataclass
class Job:
    """A program to run. The language `python` is always available."""

    language: str
    source: str
    stdin: str = ""
    files: list[File] = field(default_factory=list)


@dataclass
class Verdict:
    """Result of a job."""

    ending: Ending
    exit: int | None
    stdout: str
    stderr: str


def execute(jobs: list[Job]) -> list[Verdict]:
    """Runs the jobs, each on a fresh worker. Verdicts have the order of the jobs."""
    return host.current.run_jobs(jobs)


def python(source: str) -> Verdict:
    """Runs one Python program with an empty standard input."""
    return execute([Job("python", source)])[0]
