"""Send random definitions to the stand-in API server and a real one, and objects of those that both accept.

    python -m tests.e2e.compare_definitions COUNT [--seed N] [--show N]

$K8S selects the real server, and the release that the stand-in imitates.
"""

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.controlplane.apiserver.definitions.random_definitions import Definitions
from tests.controlplane.apiserver.definitions.test_definitions import DEFINITIONS
from tests.controlplane.apiserver.running import Answer, Http, Plain
from tests.e2e.compare_servers import run
from tests.e2e.server_pair import Pair, Shown, differences, read_value

_SELF = re.compile(r"selfType\d+")
_OBJECTS = 12
"""The number of objects of each defined kind."""


class Compared(NamedTuple):
    """The request, and the differences of the answers."""

    path: str
    body: Plain
    found: list[str]
    reason: str = ""


def main() -> None:
    """Run the command; exits with 1 if there are differences without a reason."""
    run("compare_definitions", str(__doc__), "count", compared, _print)


def compared(ours: Http, real: Http, count: int, seed: int) -> Iterator[Compared]:
    """Compare this number of definitions, and objects of every fourth that both servers accept."""
    for api in (ours, real):
        api.ok("DELETE", f"{DEFINITIONS}/drivers.example.com")
    pair, definitions, taken = Pair(ours, real), Definitions(seed), 0
    for number in range(count):
        body = definitions.next()
        body["metadata"]["name"] = _numbered(body, number)
        answers, exchanged = _exchange(pair, DEFINITIONS, body, dryRun="All")
        yield exchanged
        if not exchanged.found and answers[0].status == 201 and not exchanged.reason:
            taken += 1
            if taken % 4 == 0:
                yield from _objects(pair, definitions, body)


def _numbered(body: Plain, number: int) -> str:
    """Set a unique group in a definition with a valid one; return the matching name."""
    spec, name = body["spec"], body["metadata"]["name"]
    if name == "drivers.example.com" and spec["group"] == "example.com":
        spec["group"] = f"g{number}.example.com"
        return f"{spec['names']['plural']}.{spec['group']}"
    return str(name)


def _objects(pair: Pair, definitions: Definitions, body: Plain) -> Iterator[Compared]:
    spec = body["spec"]
    served = [each for each in spec["versions"] if each.get("served")]
    answers, exchanged = _exchange(pair, DEFINITIONS, body)
    yield exchanged
    if {answer.status for answer in answers} != {201} or not served:
        return
    version, plural = served[0], spec["names"]["plural"]
    path = f"/apis/{spec['group']}/{version['name']}/{plural}"
    for api in pair.servers:
        while api.send("GET", path).status != 200:
            pass  # a definition is established some time after its creation
    space = path.replace(plural, f"namespaces/default/{plural}") if spec["scope"] == "Namespaced" else path
    for index in range(_OBJECTS):
        value = definitions.value(version["schema"]["openAPIV3Schema"])
        value = value if isinstance(value, dict) else {"spec": value}
        mine = {"apiVersion": f"{spec['group']}/{version['name']}", "kind": spec["names"]["kind"]}
        sent = value | mine | {"metadata": {"name": f"x{index}"}}
        yield _exchange(pair, space, sent, dryRun="All")[1]._replace(body={"schema": version["schema"], "object": sent})
    for api in pair.servers:
        api.send("DELETE", f"{DEFINITIONS}/{body['metadata']['name']}")


def _exchange(pair: Pair, path: str, body: Plain, **query: str) -> tuple[list[Answer], Compared]:
    try:
        answers = [api.send("POST", path, body, **query) for api in pair.servers]
    except http.client.RemoteDisconnected:  # some non-structural schemas make a real server panic
        return [], Compared(path, body, ["no answer"], "a real server ends the connection")
    ours, real, _ = pair.shown(answers, [read_value(answer) for answer in answers])
    return answers, Compared(
        path, body, _of_causes(ours, real) or differences(_normalized(ours)._asdict(), _normalized(real)._asdict())
    )


def _of_causes(ours: Shown, real: Shown) -> list[str]:
    """Return the causes that only one answer has; none if an answer has no causes."""
    found = [_causes(each.body) for each in (ours, real)]
    if not all(found):
        return []
    names = ("ours", "real")
    return [
        f"only {name}: {text}"
        for name, mine, other in zip(names, found, found[::-1], strict=True)
        for text in mine
        if text not in other
    ]


def _causes(body: Any) -> list[str]:
    causes = (
        (body.get("details") or {}).get("causes") if isinstance(body, dict) and body.get("kind") == "Status" else None
    )
    return [_SELF.sub("selfType", f"{each.get('field')}: {each['message']}") for each in causes or ()]


def _normalized(shown: Shown) -> Shown:
    """Sort warnings about schemas, which come in the order of Go's maps, and remove arbitrary numbers of types."""
    body = json.loads(_SELF.sub("selfType", json.dumps(shown.body)))
    return shown._replace(warnings=tuple(sorted(shown.warnings)), body=body)


def _print(each: Compared, width: int) -> None:
    print(each.path)
    print(f"  body {str(each.body)[: 3 * width]}")
    for text in each.found[:8]:
        print(f"  {text[:width]}")


if __name__ == "__main__":
    main()
