"""Answers: in which form one goes out, its warnings, and the refusals."""

import asyncio
import itertools
import unicodedata
from collections.abc import AsyncIterator, Iterable, Iterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from controlplane.apiserver.kinds import Plain
from controlplane.apiserver.negotiation import ACCEPTED, JSON, PROTOBUF, YAML, Form, wanted_form, written
from controlplane.apiserver.status import ApiError, UnroutedError, not_acceptable
from controlplane.apiserver.stored_size import has_many_values

_FEW = 20
"""Items of a list that are written at once."""
_MANY = 2000
"""Values that take some tens of milliseconds to write as messages."""
_PIECE = 1024 * 1024
_MOST_OF_WARNINGS, _MOST_OF_WARNING = 4096, 256
"""Characters of all warnings of an answer, and of each once they are more. Source: apiserver's filters/warning.go."""


def warn(response: Response, texts: Iterable[str]) -> None:
    """Give an answer a header for each warning, once; none for one with control characters, as the reference does.

    Where they are longer than 4,096 characters together, each has 256 at the most. The first that is too much is still
    there, and those after it while there is room.
    """
    warnings = [text for text in dict.fromkeys(texts) if text and not any(map(_is_control, text))]
    whole = itertools.accumulate(map(len, warnings))
    too_much = next((index for index, end in enumerate(whole) if end > _MOST_OF_WARNINGS), None)
    if too_much is not None:
        warnings = [text[:_MOST_OF_WARNING] for text in warnings]
        starts = itertools.accumulate(map(len, warnings), initial=0)
        pairs = enumerate(zip(warnings, starts, strict=False))
        warnings = [text for index, (text, start) in pairs if index <= too_much or start < _MOST_OF_WARNINGS]
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
    """The form that a request asks for. Raises ApiError 406."""
    headers, pretty = request.headers, request.query_params.get("pretty")
    accept, agent = headers.get("Accept", ""), headers.get("User-Agent", "")
    return wanted_form(accept, pretty, agent, views, is_custom=is_custom, is_list=is_list, is_watch=is_watch)


async def written_apart(value: Plain, form: Form) -> bytes:
    """An object in the form of the answer; what is slow to write in a thread, so that others are answered meanwhile."""
    is_slow = form.media_type == YAML or (form.media_type == PROTOBUF and has_many_values(value, _MANY))
    return await asyncio.to_thread(written, value, form) if is_slow else written(value, form)


async def listed(value: Plain, form: Form) -> Response:
    """A list in the form of the answer; a long one in JSON goes out piece by piece, and is never whole in memory."""
    if form.media_type != JSON or form.pretty or len(value.get("items") or ()) <= _FEW:
        return Response(await written_apart(value, form), media_type=form.media_type)
    pieces = _pieces(value)
    first = next(pieces)
    rest = next(pieces, None)
    if rest is None:
        return Response(first, media_type=form.media_type)
    return StreamingResponse(_one_by_one(itertools.chain((first, rest), pieces)), media_type=form.media_type)


def _pieces(value: Plain) -> Iterator[bytes]:
    """The text of a list in JSON, in pieces of about a megabyte, or as large as its largest item."""
    members = {name: item for name, item in value.items() if name != "items"}
    piece = bytearray(msgspec.json.encode(members)[:-1] + b',"items":[')
    for index, item in enumerate(value["items"]):
        piece += b"," if index else b""
        piece += msgspec.json.encode(item)
        if len(piece) >= _PIECE:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece + b"]}\n")


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
        await asyncio.sleep(0)  # others may be waiting, also where the client takes all at once


def answered(request: Request, value: Plain, code: int = 200, *, is_aggregated: bool = False) -> Response:
    """An answer that is no stored object; `is_aggregated`: of groups, which refuse forms in words of their own."""
    try:
        form = form_of(request)
    except UnroutedError:
        if not is_aggregated:
            raise
        raise not_acceptable(f"only the following media types are accepted: {ACCEPTED}") from None
    return Response(written(value, form), code, media_type=form.media_type)


def refused(request: Request, error: ApiError) -> Response:
    """The answer that says why not; a client that takes none of its forms gets JSON to be read by people."""
    try:
        form = form_of(request)
    except ApiError:
        form = Form(pretty=True)
    headers = {"Retry-After": str(error.retry_after)} if error.retry_after else None
    return Response(written(error.body, form), error.code, headers, form.media_type)
