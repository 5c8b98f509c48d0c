"""Requests to the ledger that wait for a transaction, and their answers."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from checkpoint.lease import Book, Change


class Request(Struct):
    """The decision to make in this request's turn, and the future of its caller."""

    decide: Callable[[Book], tuple[Change, Any]]
    answer: "asyncio.Future[Any]"


def answer(batch: Sequence[Request], outcomes: Sequence[Any]) -> None:
    """Set the outcome of each request whose caller still waits: a result, or the exception that it is."""
    for request, outcome in zip(batch, outcomes, strict=True):
        if request.answer.done():
            continue
        if isinstance(outcome, asyncio.CancelledError):
            request.answer.cancel()
        elif isinstance(outcome, Exception):
            request.answer.set_exception(outcome)
        else:
            request.answer.set_result(outcome)
