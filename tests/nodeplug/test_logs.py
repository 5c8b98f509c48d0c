"""A line of the log is a line, whatever somebody else has written into it."""

import io
import json
import logging

import pytest

from nodeplug import logs

LONG = "\x1b[31m\n" + "x" * 65_536
log = logging.getLogger("tests.logs")
pytestmark = pytest.mark.usefixtures("own_logging")


def written(form: logs.LogFormat) -> str:
    stream = io.StringIO()
    logs.setup("info", form, stream)
    log.warning("refused: %s", LONG, extra={"resource": LONG, "device": LONG, "claim": LONG, "holder": LONG})
    return stream.getvalue()


def test_text_from_others_stays_in_its_line() -> None:
    text = written("text")
    assert text.count("\n") == 1
    assert text[:-1].isprintable()
    assert r"refused: \x1b[31m\nxxx" in text
    assert r"... claim=\x1b[31m\nxxx" in text
    assert len(text) < 7_000


def test_json_is_bounded_too() -> None:
    line = written("json")
    assert len(line) < 7_000
    entry = json.loads(line)
    assert all(value.isprintable() for value in entry.values())
    assert (len(entry["message"]) < 4_100, len(entry["claim"]) < 600) == (True, True)


def test_what_is_short_stands_as_it_is() -> None:
    stream = io.StringIO()
    logs.setup("info", "json", stream)
    log.info("claim is prepared", extra={"claim": "default/one:uid"})
    entry = json.loads(stream.getvalue())
    assert (entry["message"], entry["claim"]) == ("claim is prepared", "default/one:uid")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_ends_with_its_error_in_a_line(form: logs.LogFormat) -> None:
    stream = io.StringIO()
    logs.setup("info", form, stream)
    try:
        raise ValueError("\x1b" + "x" * 65_536 + "\n" * 1_000)
    except ValueError:
        log.exception("a call failed")
    assert len(stream.getvalue()) < 60_000
    assert "\x1b" not in stream.getvalue()
    assert "ValueError: " in stream.getvalue()
    assert stream.getvalue().count("\n") <= 102
