"""docs/testing-a-plugin.md: its DRA driver works with `nodeplug kubelet run` as the page describes."""

import re
import sys
from pathlib import Path

import yaml

from resourceapi.client import from_kubeconfig
from resourceapi.client.blocking import Client
from tests.kubelet.test_cli import Background

PAGE = Path(__file__).parents[2] / "docs/testing-a-plugin.md"
PLURALS = {
    "DeviceClass": ("deviceclasses", False),
    "Pod": ("pods", True),
    "ResourceClaimTemplate": ("resourceclaimtemplates", True),
    "ResourceSlice": ("resourceslices", False),
}


def test_driver_of_the_page_prepares_a_claim(socket_dir: Path) -> None:
    (driver,) = [block for block in _blocks("python") if "PluginInfo" in block]
    (_recipe, objects) = _blocks("yaml")
    (socket_dir / "driver.py").write_text(driver)
    folder, socket = socket_dir / "k", socket_dir / "k/plugins_registry/driver.sock"
    kubelet = Background(sys.executable, "-m", "nodeplug", "kubelet", "run", "--dir", str(folder), "--apiserver")
    kubelet.until(f"started {folder}")
    running = Background(sys.executable, str(socket_dir / "driver.py"), str(socket))
    try:
        kubelet.until(f"driver connected driver.example.com {socket}")
        client = Client(from_kubeconfig(folder / "kubeconfig"))
        for each in yaml.safe_load_all(objects):
            plural, namespaced = PLURALS[each["kind"]]
            client.raw(each["apiVersion"], plural, namespaced=namespaced).create(each)
        kubelet.until("phase Running default/demo")
        (claim,) = client.raw("resource.k8s.io/v1", "resourceclaims", namespaced=True).list().items
        assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
        client.raw("v1", "pods", namespaced=True).delete("demo", "default")
        kubelet.until("removed default/demo")
        client.close()
    finally:
        running.end()
        assert kubelet.end() == 0


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
