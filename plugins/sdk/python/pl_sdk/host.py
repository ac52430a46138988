"""The implementation behind the services: a stand-in, which a component replaces with the host."""

from __future__ import annotations

from typing import Any

from .standin import Standin

#: Object with the methods `next_random`, `write_log`, `run_jobs` and `find_passages`.
current: Any = Standin()
