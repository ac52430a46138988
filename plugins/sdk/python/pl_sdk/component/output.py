"""Streams of the interpreter. A component has none: what is written to them is discarded, since a write would trap."""

from __future__ import annotations

import io
import linecache
import sys
import warnings
from typing import Any, TextIO

from .. import host
from ..errors import Refusal, describe


class _Output(io.BufferedIOBase):
    """Writes to a stream of the build until the component is complete, and discards everything after that."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = getattr(stream, "buffer", None)

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        if self._stream is not None:
            self._stream.write(data)
        return len(data)

    def flush(self) -> None:
        if self._stream is not None:
            self._stream.flush()

    def discard(self) -> None:
        self._stream = None


# Before the plugin's own modules are imported: some of them keep the streams, as handlers of `logging` do.
_outputs = [_Output(sys.stdout), _Output(sys.stderr)]
# Nothing stays in these streams: a flush after the build writes nothing.
sys.stdout, sys.stderr = (
    io.TextIOWrapper(output, "utf-8", "backslashreplace", line_buffering=True, write_through=True) for output in _outputs
)


def close() -> None:
    """Ends the output of the build."""
    for output in _outputs:
        output.flush()
        output.discard()
    sys.stdin = None
    sys.excepthook = _report
    warnings.simplefilter("ignore")
    # Tracebacks read lines of the sources from disk, which the component does not have.
    linecache.clearcache()
    linecache.updatecache = lambda filename, module_globals=None: []


def _report(kind: Any, error: BaseException, trace: Any) -> None:
    """Logs an exception before it traps; the host shows the last warning of a call that trapped."""
    host.current.write_log("warn", str(error) if isinstance(error, Refusal) else describe(error))
