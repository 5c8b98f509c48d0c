"""The page in a real browser: keyboard, screen reader, phone, dark and light, live updates, 10,000 devices."""

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nodeplug.control.picture import Tile
from nodeplug.control.status import ResourceView
from tests.browser import CHROMIUM, Page, browser
from tests.nodeplug.page.clients import Answers, served

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
GPU = Tile("gpu-1", "gpu", "0", "pci0000:17", resources=("a/gpu",), holders=("ml/train",), is_leased=True)
UNHEALTHY = Tile("gpu-2", "gpu", "0", "pci0000:17", "unhealthy", "fell off <the> bus", ("a/gpu",))
KVM = Tile("misc-kvm", "misc", resources=("a/kvm",))
IDLE = Tile("misc-tun", "misc")
NAMES = {
    "gpu-2": "gpu-2, gpu: unhealthy (fell off <the> bus); offered as a/gpu",
    "gpu-1": "gpu-1, gpu: healthy; offered as a/gpu; leased to ml/train",
    "misc-kvm": "misc-kvm, misc: healthy; offered as a/kvm",
}
DRAWN = "document.querySelectorAll('.tile').length"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    async with browser(tmp_path / "profile") as found:
        yield found
    assert found.messages == []  # no error, and no violation of the policy


async def tree(page: Page) -> list[tuple[str, str]]:
    """The roles and names that a screen reader gets."""
    nodes: list[Any] = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    return [(x["role"]["value"], x.get("name", {}).get("value", "")) for x in nodes if not x["ignored"]]


async def test_page_works_by_keyboard_and_with_a_screen_reader_and_updates(page: Page) -> None:
    answers = Answers(KVM, GPU, UNHEALTHY, IDLE)
    async with served(answers) as server:
        await page.show(f"http://127.0.0.1:{server.port}/")
        await page.until(f"{DRAWN} === 3")
        elements = await tree(page)
        roles = [role for role, _ in elements]
        assert all(roles.count(role) == 1 for role in ("banner", "main", "navigation", "contentinfo", "search"))
        assert [name for role, name in elements if role == "button"] == list(NAMES.values())
        headings = {name for role, name in elements if role == "heading"}
        assert headings >= {"n", "Devices", "NUMA node 0", "On no NUMA node", "not on PCI: 1 device", "Events"}
        assert ("list", "pci0000:17: 2 devices, 1 leased, 1 unhealthy") in elements
        assert ("region", "Devices") in elements
        assert not [each for each in elements if each[0] in ("button", "link", "textbox", "combobox") and not each[1]]

        focused = "document.activeElement.dataset.id || document.activeElement.id || document.activeElement.textContent"
        stops = []
        for _ in range(11):
            await page.press("Tab")
            stops.append(await page.evaluate(focused))
        assert stops[0] == "Skip to the devices"
        assert [x for x in stops if x in NAMES] == ["gpu-2", "misc-kvm"]  # one tab stop for each root
        await page.evaluate("document.querySelector('.tile').focus()")
        await page.press("ArrowRight")
        await page.press("Enter")
        await page.until("document.querySelector('dialog').open")
        assert "a/gpu" in await page.evaluate("document.querySelector('dialog').textContent")
        await page.press("Escape")
        await page.until("!document.querySelector('dialog').open")
        assert await page.evaluate(focused) == "gpu-1"

        answers.change(KVM, Tile("gpu-1", "gpu", "0", "pci0000:17", "unhealthy", "hot", ("a/gpu",)), IDLE)
        await page.until(f"{DRAWN} === 2")
        assert await page.evaluate(focused) == "gpu-1"  # the element was replaced
        await page.until("document.getElementById('spoken').textContent === 'unhealthy x: hot'")

        await page.evaluate("document.querySelector('[value=table]').click()")
        rows = "[...document.querySelectorAll('#table tbody tr')].map(row => row.cells[0].textContent)"
        assert await page.until(f"{rows}.length && {rows}") == ["gpu-1", "misc-kvm"]
        await page.evaluate("$('which').value = 'all'; later()")
        assert await page.until(f"{rows}.length === 3 && {rows}") == ["gpu-1", "misc-kvm", "misc-tun"]
        elements = await tree(page)
        assert ("columnheader", "Health") in elements
        assert ("rowheader", "gpu-1") in elements
        heads = await page.evaluate("[...document.querySelectorAll('#table thead th')].map(x => x.textContent)")
        assert heads[:3] == ["Device", "Health", "Reason"]  # not beyond the right edge
    await page.until("document.getElementById('link').textContent.startsWith('connection lost')")
    page.messages.clear()  # the browser logs the lost connection


async def test_resource_with_both_apis_has_two_rows_below_aligned_headers(page: Page) -> None:
    answers = Answers(KVM)
    answers.resources = (
        ResourceView("a/kvm", "device-plugin", 100, 99, 1, is_registered=True, registrations=1, last_error=""),
        ResourceView("a/kvm", "dra", 100, 99, 0, is_registered=False, registrations=0, last_error="refused"),
    )
    async with served(answers) as server:
        await page.show(f"http://127.0.0.1:{server.port}/")
        await page.until("document.querySelectorAll('#resources tbody tr').length === 2")
        summary = await page.evaluate("document.getElementById('summary').textContent")
        assert summary == "1 resource, 1 device; 1 not registered with the kubelet"
        edges = (
            "[...document.querySelectorAll('#resources tr')].map(row => [...row.cells].map(cell => "
            "getComputedStyle(cell).textAlign))"
        )
        head, *body = await page.evaluate(edges)
        assert body == [head, head]
        assert head.count("right") == 3


async def test_page_fits_a_phone_in_dark_and_light_without_motion(page: Page) -> None:
    async with served(Answers(KVM, GPU, UNHEALTHY)) as server:
        grounds = set()
        for is_dark in (False, True):
            await page.show(f"http://127.0.0.1:{server.port}/", width=360, height=740, is_phone=True, is_dark=is_dark)
            await page.until(f"{DRAWN} === 3")
            assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            grounds.add(await page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
        assert grounds == {"rgb(255, 255, 255)", "rgb(20, 23, 26)"}
        small = "[...document.querySelectorAll('button, select, input[type=search]')].filter(x => x.offsetHeight < 40"
        assert await page.evaluate(f"{small} && x.offsetHeight).length") == 0
        leased = "getComputedStyle(document.querySelector('[data-id=gpu-1]')).backgroundImage"
        assert (await page.evaluate(leased)).startswith("repeating-linear-gradient")
        still = [{"name": "prefers-reduced-motion", "value": "reduce"}]
        await page.call("Emulation.setEmulatedMedia", features=still)
        moving = "document.querySelector('.tile').classList.add('new'), "
        assert await page.evaluate(f"{moving}getComputedStyle(document.querySelector('.tile')).animationName") == "none"


async def test_ten_thousand_devices_are_drawn_in_parts(page: Page) -> None:
    many = [Tile(f"misc-{number}", "misc", resources=("a/many",)) for number in range(10_000)]
    ill = Tile("misc-x", "misc", state="unhealthy", reason="hot", resources=("a/many",))
    async with served(Answers(*many, ill)) as server:
        began = time.monotonic()
        await page.show(f"http://127.0.0.1:{server.port}/")
        await page.until(f"{DRAWN} === 60")
        assert time.monotonic() - began < 10
        first = "document.querySelector('.tile').dataset.id"
        assert await page.evaluate(first) == "misc-x"  # a device with a problem is never hidden
        assert await page.evaluate("document.querySelector('.more').textContent") == "Show 240 more of 9941 devices"
        await page.evaluate("document.querySelector('.more').click()")
        assert await page.evaluate(DRAWN) == 300
        await page.evaluate("$('find').value = 'misc-9999'; later()")
        await page.until(f"{DRAWN} === 1")
        assert await page.evaluate(first) == "misc-9999"
        took = "(() => { const began = performance.now(); draw(); return performance.now() - began })()"
        assert await page.evaluate(took) < 1000
