"""The part of the demo about claims: a pod with a claim, from YAML to CDI names, without a cluster."""

import asyncio
import json
import textwrap
import time
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from dra_plugin.publishing.device_class import device_class
from kubelet import Node, NodeError
from resourceapi.client.blocking import Client
from resourceapi.objects import v1, write_object
from resources.resource import Resource

_POD = "claimed"
_CONTAINER = "main"
_OBJECTS = """\
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: one-device, namespace: default}}
spec:
  spec:
    devices:
      requests:
      - name: device
        exactly: {{deviceClassName: {device_class}}}
---
apiVersion: v1
kind: Pod
metadata: {{name: claimed, namespace: default}}
spec:
  containers:
  - name: main
    image: any
    resources: {{claims: [{{name: mine}}]}}
  resourceClaims:
  - {{name: mine, resourceClaimTemplateName: one-device}}
"""


async def show_claim(console: Console, node: Node, client: Client, resource: Resource, driver: str, cdi: Path) -> None:
    """Create class, template and pod; show the results of the scheduler, the kubelet and the driver."""
    made = device_class(resource, driver)
    text = yaml.safe_dump(write_object(made), sort_keys=False, width=1000)
    text += "---\n" + _OBJECTS.format(device_class=made.metadata.name)
    step(console, "Claim", f"the same through DRA; this creates a DeviceClass, a claim template and pod {_POD}:")
    _show(console, text, "yaml")
    began = time.perf_counter()
    await asyncio.to_thread(_create, client, list(yaml.safe_load_all(text)))
    await node.until(lambda: _phase(node) == "Running", seconds=30.0)
    step(console, "Run", f"pod {_POD} is Running after {ms(began)}")
    slices, claim = await asyncio.to_thread(_read, client)
    assert claim.status.allocation is not None, "the pod runs with it"
    devices = sum(len(each.spec.devices) for each in slices)
    rows = {
        "published": f"{devices} device(s) in {len(slices)} ResourceSlice(s) of driver {driver}",
        "claim": f"{claim.metadata.name}, reserved for pod {claim.status.reserved_for[0].name}",
    }
    for result in claim.status.allocation.devices.results:
        rows[f"request {result.request}"] = f"{result.driver}/{result.pool}/{result.device}" + (
            f", share {result.share_id}" if result.share_id else ""
        )
    for number, name in enumerate(node.claimed_devices(_POD, _CONTAINER)):
        rows[f"CDI name {number + 1}"] = name
    claim_files = sorted(cdi.glob(f"*{claim.metadata.uid}*"))
    for number, file in enumerate(claim_files):
        rows[f"CDI spec {number + 1}"] = file.name
    for what, value in rows.items():
        console.print(Text(f"  {what:16}{value}"), soft_wrap=True)
    _show(console, json.dumps(json.loads(claim_files[0].read_text()), indent=2), "json")

    began = time.perf_counter()
    await asyncio.to_thread(client.raw("v1", "pods", namespaced=True).delete, _POD, "default")
    await node.until(lambda: _phase(node) is None, seconds=30.0)
    left = [file.name for file in claim_files if file.exists()]
    gone = "its CDI specs are gone" if not left else f"left: {', '.join(left)}"
    step(console, "Delete", f"pod {_POD} is unprepared after {ms(began)}; {gone}")


def step(console: Console, title: str, text: str) -> None:
    """Print a headline."""
    console.print(Text.assemble("\n", (title, "bold"), f": {text}"), soft_wrap=True)


def ms(began: float) -> str:
    """Return the time since `began`, of `time.perf_counter`."""
    return f"{(time.perf_counter() - began) * 1000:.0f} ms"


def _create(client: Client, objects: list[dict[str, Any]]) -> None:
    """Create objects, as kubectl does it."""
    plurals = {
        "DeviceClass": ("deviceclasses", False),
        "ResourceClaimTemplate": ("resourceclaimtemplates", True),
        "Pod": ("pods", True),
    }
    for obj in objects:
        plural, namespaced = plurals[obj["kind"]]
        client.raw(obj["apiVersion"], plural, namespaced=namespaced).create(obj)


def _read(client: Client) -> tuple[tuple[v1.ResourceSlice, ...], v1.ResourceClaim]:
    """Return the driver's slices, and the only claim."""
    (claim,) = client.resource(v1.ResourceClaim).list().items
    return client.resource(v1.ResourceSlice).list().items, claim


def _phase(node: Node) -> str | None:
    try:
        return node.status(_POD).phase
    except NodeError:
        return None


def _show(console: Console, text: str, language: str) -> None:
    syntax = Syntax("", language, theme="ansi_dark", background_color="default")
    console.print(syntax.highlight(textwrap.indent(text.rstrip(), "    ")), soft_wrap=True, end="")
