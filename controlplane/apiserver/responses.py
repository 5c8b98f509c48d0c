"""Answers: their form, their warnings, and refusals."""

import asyncio
import itertools
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.negotiation import ACCEPTED, JSON, PROTOBUF, YAML, Form, encode_answer, wanted_form
from controlplane.apiserver.status import ApiError, UnroutedError, not_acceptable
from controlplane.apiserver.stored_size import has_many_values

_MAX_UNSTREAMED_ITEMS = 20
"""The most items of a list that are written at once."""
_MANY_VALUES = 2000
"""The number of values that take some tens of milliseconds to write as messages."""
_CHUNK_SIZE = 1024 * 1024
_MAX_ALL_WARNINGS, _MAX_WARNING = 4096, 256
"""Characters of all warnings together; and of each one if they have more. Source: apiserver's filters/warning.go."""


def warn(response: Response, texts: Iterable[str]) -> None:
    """Add a header for each distinct warning. As in the reference, one with control characters is left out.

    If they have more than 4,096 characters together, each is cut to 256. The first one beyond the limit is still sent,
    and later ones while there is room.
    """
    warnings = [text for text in dict.fromkeys(texts) if text and not any(map(_is_control, text))]
    whole = itertools.accumulate(map(len, warnings))
    too_much = next((index for index, end in enumerate(whole) if end > _MAX_ALL_WARNINGS), None)
    if too_much is not None:
        warnings = [text[:_MAX_WARNING] for text in warnings]
        starts = itertools.accumulate(map(len, warnings), initial=0)
        pairs = enumerate(zip(warnings, starts, strict=False))
        warnings = [text for index, (text, start) in pairs if index <= too_much or start < _MAX_ALL_WARNINGS]
    for text in warnings:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.append("Warning", f'299 - "{escaped}"'.encode().decode("latin-1"))


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc"


def form_of(
    request: Request,
    views: tuple[str, ...] = (),
    *,
    is_custom: bool = False,
    is_list: bool = False,
    is_watch: bool = False,
) -> Form:
    """Return the form that a request asks for. Raises ApiError 406."""
    headers, pretty = request.headers, request.query_params.get("pretty")
    accept, agent = headers.get("Accept", ""), headers.get("User-Agent", "")
    return wanted_form(accept, pretty, agent, views, is_custom=is_custom, is_list=is_list, is_watch=is_watch)


async def encode_off_loop(value: Plain, form: Form) -> bytes:
    """Return an object in the form of the answer. Slow forms are written in a thread, beside other requests."""
    is_slow = form.media_type == YAML or (form.media_type == PROTOBUF and has_many_values(value, _MANY_VALUES))
    return await asyncio.to_thread(encode_answer, value, form) if is_slow else encode_answer(value, form)


async def listed(value: Plain, form: Form) -> Response:
    """Return a list in the form of the answer. A long JSON list is streamed, so that it is never whole in memory."""
    if form.media_type != JSON or form.pretty or len(value.get("items") or ()) <= _MAX_UNSTREAMED_ITEMS:
        return Response(await encode_off_loop(value, form), media_type=form.media_type)
    pieces = _chunks(value)
    first = next(pieces)
    rest = next(pieces, None)
    if rest is None:
        return Response(first, media_type=form.media_type)
    return StreamingResponse(_yielding(itertools.chain((first, rest), pieces)), media_type=form.media_type)


def _chunks(value: Plain) -> Iterator[bytes]:
    """The JSON text of a list, in pieces of about a megabyte; a larger item makes a larger piece."""
    members = {name: item for name, item in value.items() if name != "items"}
    piece = bytearray(msgspec.json.encode(members)[:-1] + b',"items":[')
    for index, item in enumerate(value["items"]):
        piece += b"," if index else b""
        piece += msgspec.json.encode(item)
        if len(piece) >= _CHUNK_SIZE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + b"]}\n")


async def _yielding(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)  # lets other requests run, even if the client reads everything at once


def answered(request: Request, value: Plain, code: int = 200, *, is_aggregated: bool = False) -> Response:
    """Return an answer that is not a stored object. `is_aggregated`: of groups, whose error 406 has another text."""
    try:
        form = form_of(request)
    except UnroutedError:
        if not is_aggregated:
            raise
        raise not_acceptable(f"only the following media types are accepted: {ACCEPTED}") from None
    return Response(encode_answer(value, form), code, media_type=form.media_type)


def refused(request: Request, error: ApiError) -> Response:
    """Return the answer for a refusal. If the client accepts no form of it, it is indented JSON."""
    try:
        form = form_of(request)
    except ApiError:
        form = Form(pretty=True)
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    return Response(encode_answer(error.body, form), error.code, headers, form.media_type)
