"""Who answers the services' calls: the stand-ins of `testing`, until a component puts the host in their place."""

from __future__ import annotations

from typing import Any

from . import testing

#: Has `next_random`, `write_log`, `run_jobs` and `find_passages`.
current: Any = testing
