"""The API server's structs as refusals show them, and the difference of two structs."""

import os
import subprocess
from pathlib import Path

import pytest

from controlplane.apiserver.internal_types import difference, internal_form
from resourceapi.objects.release import RELEASES

ROOT = Path(__file__).parents[3]


def test_internal_form_has_go_names_and_empty_fields() -> None:
    shown = internal_form("core.NodeSelectorTerm", {"matchFields": [{"key": "k", "operator": "In"}]})
    requirement = {"Key": "k", "Operator": "In", "Values": None}
    assert list(shown.items()) == [("MatchExpressions", None), ("MatchFields", [requirement])]


def test_internal_form_differs_by_release() -> None:
    spec = {"hostNetwork": True, "securityContext": {}}
    old, new = (internal_form("core.PodSpec", spec, RELEASES[each]) for each in ("1.36", "1.37"))
    assert (old["SecurityContext"]["HostNetwork"], "HostNetwork" in old) == (True, False)
    assert ("HostNetwork" in new["SecurityContext"], new["HostNetwork"]) == (False, True)


def test_internal_form_of_published_type_omits_empty_fields() -> None:
    shown = internal_form(
        "core.PersistentVolumeClaimSpec", {"selector": {"matchLabels": {"a": "b"}, "matchExpressions": []}}
    )
    assert shown["Selector"] == {"matchLabels": {"a": "b"}}


def test_difference_has_three_lines_of_context() -> None:
    before = {"a": 1, "b": 2, "c": 3, "d": 4, "e": "<"}
    expected = '@@ -3,5 +3,5 @@\n  "b": 2,\n  "c": 3,\n  "d": 4,\n- "e": "\\u003c"\n+ "e": "x"\n }\n'
    assert difference(before, {**before, "e": "x"}) == expected


def test_difference_of_very_many_lines_is_empty() -> None:
    """If every second line has moved, the time is quadratic: 100 000 lines blocked the server for minutes."""
    lines = list(range(50_000))
    assert difference(lines, lines[::2] + lines[1::2]) == ""
    few = lines[:1_000]
    assert difference(few, few[::2] + few[1::2]).startswith("@@ -1,")


@pytest.mark.skipif("NODEPLUG_GO" not in os.environ, reason="set NODEPLUG_GO to make upstream's tables again")
@pytest.mark.parametrize(("release", "flags"), [("1.36", ["-modfile=go-1.36.mod"]), ("1.37", [])])
def test_internal_types_table_equals_generated_one(release: str, flags: list[str]) -> None:
    command = ["go", "run", *flags, "."]
    made = subprocess.run(command, cwd=ROOT / "proto/internal", stdout=subprocess.PIPE, check=True).stdout
    assert made == (ROOT / f"controlplane/apiserver/internal_types-{release}.txt").read_bytes()
