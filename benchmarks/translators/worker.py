"""A decoder in a process of its own.

Systems with thread pools of their own (torch, CTranslate2) slow each other down in one process, even while the other
idles: with CTranslate2 loaded, our search ran at half its speed. A process each, one at work at a time, is fair to all.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from qknorm.errors import InputError
from qknorm.memory import keep_freed_memory


class Worker:
    """Makes a decoder in another process by `factory(*arguments)`, and calls its methods there."""

    def __init__(self, factory: Callable[..., Any], *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, factory, arguments), daemon=True)
        self._process.start()
        theirs.close()
        failure = self._connection.recv()
        if failure is not None:
            raise InputError(failure)

    def call(self, method: str, *arguments: Any) -> tuple[float, Any]:
        """The seconds that it took there, and what came out."""
        self._connection.send((method, arguments))
        seconds, result = self._connection.recv()
        return seconds, result

    def stop(self) -> None:
        self._connection.close()
        self._process.join()


def _serve(connection: Connection, factory: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    keep_freed_memory()
    try:
        decoder = factory(*arguments)
    except InputError as error:
        connection.send(str(error))
        return
    connection.send(None)
    while True:
        try:
            method, given = connection.recv()
        except EOFError:
            return
        began = time.perf_counter()
        result = getattr(decoder, method)(*given)
        connection.send((time.perf_counter() - began, result))
