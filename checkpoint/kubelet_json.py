"""JSON as the kubelet writes it: Go's encoder, compact, object keys sorted by their bytes.

The kubelet's state files have a checksum, so a rewritten file must have exactly the same bytes.
"""

import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec

from checkpoint.errors import CheckpointError

T = TypeVar("T")

# What Go escapes: controls, quote, backslash, the characters of HTML, and JavaScript's further line ends
_ESCAPED = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class KubeletFileError(CheckpointError):
    """A state file of the kubelet cannot be used; the text is the kubelet's if it has one."""


class CheckpointCorrupted(KubeletFileError):
    """The file's checksum does not match its content."""

    def __init__(self, stored: int, computed: int) -> None:
        """Store both checksums; the text is the kubelet's."""
        super().__init__("checkpoint is corrupted")
        self.stored = stored
        self.computed = computed


def decode(text: str, type_: type[T]) -> T:
    """Read a value of `type_`, whose structs have all of the kubelet's fields. Raises `KubeletFileError`."""
    try:
        try:
            return msgspec.json.decode(text, type=type_)
        except msgspec.ValidationError:  # from another version of the kubelet, or edited by hand
            from checkpoint.go_json import decoded_by_go  # on first use: it loads msgspec's type inspection

            return msgspec.convert(decoded_by_go(msgspec.json.decode(text), type_), type_, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        raise KubeletFileError(str(error)) from error
    except msgspec.DecodeError as error:
        # the kubelet's text for a truncated file, the most frequent damage
        text = "unexpected end of JSON input" if "truncated" in str(error) else str(error)
        raise KubeletFileError(text) from error


def string(text: str) -> str:
    """Return `text` as a JSON string."""
    return f'"{_ESCAPED.sub(_escape, text)}"'


def strings(texts: Iterable[str] | None) -> str:
    """Return a list of strings; `null` for None."""
    return "null" if texts is None else f"[{','.join(map(string, texts))}]"


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if "\ud800" <= character <= "\udfff":
        # a lone surrogate: Go strings cannot contain it, and its encoder writes the replacement character
        return "\\ufffd"
    return _SHORT.get(character) or f"\\u{ord(character):04x}"
