"""Who answers the services' calls: a stand-in, until a component puts the host in its place."""

from __future__ import annotations

from typing import Any

from .standin import Standin

#: Has `next_random`, `write_log`, `run_jobs` and `find_passages`.
current: Any = Standin()
