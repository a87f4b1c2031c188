"""Exceptions that the command line shows without a traceback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

NO_TOOLKIT = "the command needs the toolkit; install it with: pip install 'qknorm[toolkit]'"


class InputError(Exception):
    """What the user gave cannot be used. The message is one sentence: what is wrong, where, and what to do."""


class MissingExtraError(InputError, ModuleNotFoundError):
    """A package of an extra is not installed."""


@contextmanager
def needs(extra: str, what: str) -> Iterator[None]:
    """Imports in here that fail say which extra of qknorm brings what is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        sentence = f"{what} needs the package {error.name}; install it with: pip install 'qknorm[{extra}]'"
        raise MissingExtraError(sentence) from error
