"""Requests to the ledger that wait for a transaction, and how they are answered."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from checkpoint.lease import Book, Change


class Request(Struct):
    """What is decided once it is this one's turn, and who waits for the outcome."""

    decide: Callable[[Book], tuple[Change, Any]]
    answer: "asyncio.Future[Any]"


def answer(batch: Sequence[Request], outcomes: Sequence[Any]) -> None:
    """Give each who still waits its outcome: a result, or the exception that it is."""
    for request, outcome in zip(batch, outcomes, strict=True):
        if request.answer.done():
            continue
        if isinstance(outcome, asyncio.CancelledError):
            request.answer.cancel()
        elif isinstance(outcome, Exception):
            request.answer.set_exception(outcome)
        else:
            request.answer.set_result(outcome)
