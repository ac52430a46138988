"""The contract's exports, over the bindings that componentize-py generates. Only a component can import this package.

It has one module for each of the contract's interfaces: a component imports those of its world.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from typing import Any, Callable

from componentize_py_types import Err
from wit_world.imports import log as host_log
from wit_world.imports import policies as host_policies
from wit_world.imports import random as host_random
from wit_world.imports import retrieval as host_retrieval
from wit_world.imports import sandbox as host_sandbox
from wit_world.imports import types

from . import absent, output
from .. import host, retrieval, sandbox
from ..errors import Refusal, SettingsError, TaskError, describe
from ..items import Plugin
from ..registry import Registry

_registry: Registry


def serve(plugin: Plugin) -> None:
    """Sets the plugin that the component exports."""
    global _registry
    _registry = Registry(plugin)
    # This reports settings and facts of unsupported types now, while the component is built.
    _registry.describe()
    host.current = _Host
    # The bindings import these after `serve`, when the sources can't be read any more. Worlds without environments lack them.
    for module in ("environments", "wit_world.exports.environments"):
        with suppress(ModuleNotFoundError):
            import_module(module)
    output.close()
    absent.close()


def registry() -> Registry:
    """Returns the registry of the exported plugin."""
    return _registry


class _Host:
    """The host's services."""

    @staticmethod
    def next_random() -> int:
        return host_random.next()

    @staticmethod
    def write_log(level: str, message: str) -> None:
        host_log.write(host_log.Level[level.upper()], _unicode(message))

    @staticmethod
    def run_jobs(jobs: list[sandbox.Job]) -> list[sandbox.Verdict]:
        asked = [
            host_sandbox.Job(
                job.language, job.source, job.stdin, [host_sandbox.File(file.path, file.bytes) for file in job.files]
            )
            for job in jobs
        ]
        return [
            sandbox.Verdict(sandbox.Ending(verdict.ending.value), verdict.exit, verdict.stdout, verdict.stderr)
            for verdict in host_sandbox.execute(asked)
        ]

    @staticmethod
    def find_passages(query: str, k: int, corpus: str | None) -> list[retrieval.Passage]:
        try:
            passages = host_retrieval.retrieve(corpus, query, k)
        except Err as error:
            raise LookupError(error.value) from None
        return [retrieval.Passage(passage.id, passage.text, passage.score) for passage in passages]

    @staticmethod
    def ask_policy(policy: str, messages: list[tuple[str, str]], max_tokens: int) -> str:
        asked = [host_policies.Message(host_policies.Role[role.upper()], text) for role, text in messages]
        try:
            return host_policies.ask(policy, asked, max_tokens)
        except Err as error:
            raise LookupError(error.value) from None


def answer(function: Callable, *arguments: Any) -> Any:
    """Calls the function. An exception becomes the contract's error, because any other traps."""
    try:
        return function(*arguments)
    except SettingsError as refusal:
        kind, message = types.ErrorKind.SETTINGS, str(refusal)
    except TaskError as refusal:
        kind, message = types.ErrorKind.TASK, str(refusal)
    except Refusal as refusal:
        kind, message = types.ErrorKind.INTERNAL, str(refusal)
    except BaseException as error:
        kind, message = types.ErrorKind.INTERNAL, describe(error)
    raise Err(types.Error(kind, _unicode(message)))


def _unicode(text: Any) -> str:
    """Returns the text with escapes for halves of surrogate pairs."""
    return str(text).encode(errors="backslashreplace").decode()
