"""Send hand-written requests to the stand-in API server and a real one, and compare codes, warnings and bodies.

    python -m tests.e2e.compare_requests [core] [custom] ...

The requests are in `requests/*.txt`, one per line: the verb, the path and, optionally, the body as JSON. PATCH has its
type as a suffix (PATCH:merge, PATCH:json, PATCH:strategic, PATCH:apply), and any verb can have the format of the
answer (GET>table, GET>yaml, GET>protobuf). A request with `~` in front is known to differ (docs/apiserver.md has the
reasons), one with `~1.34,1.36` only on these releases; lines with `#` are comments. Each file starts with empty
namespaces, and its requests are sent in order. $K8S selects the real server, and the release that the stand-in
imitates.
"""

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl

from tests.controlplane.apiserver.random_requests import JSON_PATCH, STRATEGIC, Request
from tests.controlplane.apiserver.running import APPLY, MERGE, Http
from tests.e2e.compare_servers import servers
from tests.e2e.realnode import KUBERNETES
from tests.e2e.server_pair import JSON, PROTOBUF, YAML, FormattedRequest, Pair, differences

REQUESTS = Path(__file__).with_name("requests")
_KNOWN = re.compile(r"~(\S*) ")
_CONTENTS = {"": JSON, "merge": MERGE, "json": JSON_PATCH, "strategic": STRATEGIC, "apply": APPLY, "protobuf": PROTOBUF}
_ACCEPTS = {
    "": JSON,
    "yaml": YAML,
    "protobuf": PROTOBUF,
    "table": f"{JSON};g=meta.k8s.io;v=v1;as=Table,{JSON}",
    "partial": f"{JSON};g=meta.k8s.io;v=v1;as=PartialObjectMetadata",
}


class Compared(NamedTuple):
    """A request, and the difference of its answers; "" if there is none."""

    line: str
    is_known: bool
    found: list[str]


def main() -> None:
    """Run the command; exits with 1 if an unknown difference is found, or a known one is not."""
    names = sorted(path.stem for path in REQUESTS.glob("*.txt"))
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.compare_requests", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[[], *names], help=", ".join(names))
    count = same = wrong = 0
    for name in parser.parse_args().names or names:
        with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as (ours, real):
            for each in compared(ours, real, (REQUESTS / f"{name}.txt").read_text().splitlines()):
                count, same = count + 1, same + (not each.found)
                if bool(each.found) != each.is_known:
                    wrong += 1
                    print(
                        each.line,
                        *(
                            f"  {text}"
                            for text in each.found or ["it is marked as known to differ, and does not differ"]
                        ),
                        sep="\n",
                    )
    print(f"{count} requests, {same} are answered the same; {wrong} are marked wrongly")
    sys.exit(1 if wrong else 0)


def compared(ours: Http, real: Http, lines: list[str]) -> Iterator[Compared]:
    """Send a file's requests in order, each to both servers, and yield the results."""
    pair = Pair(ours, real)
    for line in lines:
        if line and not line.startswith("#"):
            known = _KNOWN.match(line)
            mine, theirs, _ = pair.ask(_formatted(line[known.end() :] if known else line))
            is_known = known is not None and (not known[1] or KUBERNETES in known[1].split(","))
            yield Compared(line, is_known, differences(mine._asdict(), theirs._asdict()))


def _formatted(line: str) -> FormattedRequest:
    verb, path, *rest = line.split(" ", 2)
    verb, _, accept = verb.partition(">")
    verb, _, content = verb.partition(":")
    path, _, query = path.partition("?")
    body = json.loads(rest[0]) if rest else None
    options = dict(parse_qsl(query, keep_blank_values=True))
    return FormattedRequest(Request(verb, path, body, _CONTENTS[content], options), _ACCEPTS[accept])


if __name__ == "__main__":
    main()
