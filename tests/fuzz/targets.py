"""The fuzz targets: each derives an input from a seed, uses it, returns the outcome, and raises on a fault."""

import functools
import itertools
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

from msgspec import Struct

from cdi import CdiError
from cdi import spec as cdi_spec
from cdi.validate import policy_problems, validate
from checkpoint import kubelet_claims, kubelet_devices
from checkpoint.kubelet_json import KubeletFileError
from netlink.links import decode as decode_link
from netlink.messages import attributes, messages
from resourceapi.cel import CelError, base_environment, compile_expression, compile_selector, device_environment
from resourceapi.client import ClientError, from_kubeconfig
from resourceapi.client.connections import Connections
from resourceapi.manifests import ManifestError, read_documents
from resourceapi.objects import Quantity, QuantityError
from tests.fuzz import apiserver, claims, control, kubelet, proc, sysfs, transport, udev
from tests.fuzz.mutation import mutated
from tests.grpcunix.http2 import fuzz as http2
from tests.nodeplug.config.test_fuzz import BUILTIN, refusal
from tests.resourceapi.cel.test_fuzz import ATOMS, BINARY, DEVICE_ATOMS, TOKENS, UNARY, VIEW
from tests.resourceapi.client import answers as http1

ROOT = Path(__file__).parents[2]
_RECORDED = ROOT / "tests/data/recorded"


_KUBECONFIGS = tuple(
    (
        '{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}], "clusters":'
        f' [{{"name": "k", "cluster": {cluster}}}], "users": [{{"name": "u", "user": {user}}}]}}'
    ).encode()
    for cluster, user in (
        ('{"server": "http://127.0.0.1:8080", "proxy-url": "http://a:b@[::1]:3128"}', '{"token": "t"}'),
        ('{"server": "https://a/b", "certificate-authority-data": "QQ=="}', '{"username": "u", "password": "p"}'),
        ('{"server": "https://[::1]:6443", "tls-server-name": "a"}', '{"client-key-data": "QQ==", "tokenFile": "t"}'),
    )
)


@functools.cache
def _files(*patterns: str) -> tuple[bytes, ...]:
    """Return the contents of the checkout's files that match these patterns."""
    return tuple(path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern)) if path.is_file())


def _words(text: str) -> tuple[bytes, ...]:
    return tuple(word.encode() for word in text.split())


class ByteTarget(Struct, frozen=True):
    """A target whose inputs are derived from valid ones, by a seed or by a coverage-guided engine."""

    one: Callable[[bytes], str]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()

    def __call__(self, seed: int) -> str:
        """Run the input of a seed."""
        return self.one(mutated(Random(seed), self.seeds(), self.words))


def kubeconfig(data: bytes) -> str:
    """A kubeconfig: usable by a client, or one of our errors."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_bytes(data)
        try:
            Connections(from_kubeconfig(path)())
        except ClientError:
            return "refused"
        return "used"


def configuration(data: bytes) -> str:
    """A configuration: accepted, or findings with positions in the file."""
    error = refusal(data)
    if error is None:
        return "taken"
    lines = len(data.decode(errors="replace").splitlines()) + 1
    assert error.findings
    assert all(1 <= x.line <= lines and x.column >= 1 and x.message for x in error.findings)
    assert all(line.isprintable() for line in error.lines())
    return "refused"


def cel(seed: int) -> str:
    """An expression from the grammar or from tokens, possibly damaged: a value, or one of our errors."""
    source = Random(seed)
    text = _expression(source, source.randrange(4))
    if source.random() < 0.3:
        text = " ".join(source.choice(TOKENS) for _ in range(source.randrange(12)))
    if source.random() < 0.3:
        text = mutated(source, [text.encode()], [token.encode() for token in TOKENS]).decode(errors="replace")
    try:
        if source.random() < 0.5:
            compile_expression(text, base_environment()).evaluate(limit=10_000)
        else:
            compile_selector(text, device_environment(stored=source.random() < 0.5)).evaluate_device(VIEW)
    except CelError:
        return "error"
    return "value"


def _expression(source: Random, depth: int) -> str:
    if depth == 0:
        return source.choice(ATOMS if source.random() < 0.6 else DEVICE_ATOMS)
    inner = [f"({_expression(source, source.randrange(depth))})" for _ in range(2)]
    if source.random() < 0.4:
        return source.choice(UNARY).format(inner[0])
    return source.choice(BINARY).format(*inner)


def quantity(data: bytes) -> str:
    """A quantity equals its printed form. Comparison and addition do not change it."""
    try:
        first, second = (Quantity.parse(text) for text in data.decode(errors="replace").split(" ", 1))
    except QuantityError:
        return "refused"
    except ValueError:
        return "one"
    for each in (first, second):
        try:
            assert Quantity.parse(str(each)) == each
            each.value()
            each.milli_value()
        except QuantityError:
            return "too large"
    assert (first < second) + (first == second) + (first > second) == 1
    try:
        str(first + second)
    except QuantityError:
        return "too large"
    return "compared"


def yaml(data: bytes) -> str:
    """YAML documents that JSON can represent, or an error with a line."""
    try:
        documents = read_documents(data)
    except ManifestError:
        return "refused"
    json.dumps(documents)
    return "read"


def kubelet_files(data: bytes) -> str:
    """A kubelet's file is written again with the same content. An invalid checksum is one of our errors."""
    outcome = "refused"
    for codec in (kubelet_devices, kubelet_claims):
        try:
            codec.load(data)
            outcome = "read"
        except KubeletFileError:
            pass
    try:
        found = kubelet_devices.decode(data)
    except KubeletFileError:
        return outcome
    if not found.is_legacy and found.entries is not None:
        again = kubelet_devices.load(kubelet_devices.encode(found.entries, found.registered))
        assert again.entries == found.entries
        outcome = "written again"
    return outcome


def cdi_files(data: bytes) -> str:
    """A spec with a list of its problems, or an error; the decoded spec is written and read again."""
    try:
        spec = cdi_spec.decode(data)
    except CdiError:
        return "refused"
    problems = validate(spec) + policy_problems(spec)
    cdi_spec.required_version(spec)
    again = cdi_spec.decode(cdi_spec.encode(spec))
    assert again == spec
    return "has problems" if problems else "sound"


def netlink_links(data: bytes) -> str:
    """The kernel's messages about interfaces: links, or nothing."""
    count = 0
    for each in itertools.islice(messages(data), 10_000):
        decode_link(each.body)
        attributes(each.body)
        count += 1
    return "messages" if count else "nothing"


def _links() -> Sequence[bytes]:
    from netlink.messages import NEWLINK, attribute, message

    header = bytes(16)
    plain = header + attribute(3, "eth0") + attribute(4, 1500) + attribute(1, b"\2\0\0\0\0\1")
    nested = header + attribute(3, "v0") + attribute(18, attribute(1, "vlan") + attribute(2, attribute(1, 7)))
    return [message(NEWLINK, 0, 1, plain), message(NEWLINK, 0, 2, nested) * 2]


@functools.cache
def _ledger() -> Path:
    """Return a folder with a ledger, which is deleted when the process ends."""
    import asyncio

    from tests.checkpoint.build import claimed, lease, opened

    async def fill(folder: Path) -> None:
        ledger = await opened(folder)
        await ledger.grant([*(lease(f"u{number}", pods="a b") for number in range(12)), claimed("c", "uid")])
        await ledger.close()

    made = Path(_kept().name)
    asyncio.run(fill(made / "whole"))
    (made / "copy").mkdir()
    return made


@functools.cache
def _kept() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz")


def ledger(seed: int) -> str:
    """A flipped bit in the ledger is detected, or the content is unchanged."""
    from tests.checkpoint.flips import flip

    folder = _ledger()
    return "noticed" if flip(folder / "whole", folder / "copy", Random(seed)) else "changes nothing"


def _configurations() -> Sequence[bytes]:
    return (BUILTIN, *_files("tests/data/*.yaml", "examples/**/*.yaml", "deploy/base/*.yaml"))


_CDI: Sequence[bytes] = [
    b'{"cdiVersion":"0.5.0","kind":"a.b/c","devices":[{"name":"x","containerEdits":{"env":["A=b"],'
    b'"deviceNodes":[{"path":"/dev/x","type":"c","major":1,"minor":2,"fileMode":438,"permissions":"rw","uid":0}]}}]}',
    b'{"cdiVersion":"0.6.0","kind":"a.b/c","annotations":{"k":"v"},"devices":[{"name":"x","annotations":{},'
    b'"containerEdits":{"mounts":[{"hostPath":"/a","containerPath":"/b","options":["ro"],"type":"bind"}],'
    b'"hooks":[{"hookName":"prestart","path":"/h","args":["a"],"timeout":1}],"additionalGids":[1]}}],'
    b'"containerEdits":{"env":["B=c"]}}',
]
TARGETS: dict[str, Callable[[int], str]] = {
    "configuration": ByteTarget(
        configuration, _configurations, _words("resources: settings: select: - {} [] &a *a ! | > ? name: api: dra: '\"")
    ),
    "kubeconfig": ByteTarget(
        kubeconfig,
        lambda: _KUBECONFIGS,
        _words("null true 1 -1 [] {} &a *a !!binary [:: https:// @ : / %zz \u0130 QQ== 1e400 2001-99-99 token user"),
    ),
    "cel": cel,
    "quantities": ByteTarget(
        quantity,
        lambda: [b"1 2", b"1500m 1.5", b"10Gi 1e9", b"-0.1u 9999999999999999999", b"12e6 12E6", b"0.1n 1Ki"],
        _words("n u m k M G T P E Ki Mi Gi Ti Pi Ei e3 E-3 + - . 0 9223372036854775807 e e99999"),
    ),
    "patches": apiserver.patches,
    "yaml": ByteTarget(
        yaml,
        lambda: _files("deploy/base/*.yaml", "deploy/daemonset.yaml", "examples/**/*.yaml"),
        _words("&a *a !!binary !!int << : - ? | > --- ... %YAML 1:59 0x1f 1e400 .nan ~ \" ' [ ] { } , # \\u0000"),
    ),
    "sysfs": sysfs.readers,
    "netlink-links": ByteTarget(netlink_links, _links),
    "udev-messages": udev.messages,
    "checkpoint-files": ByteTarget(
        kubelet_files,
        lambda: _files("tests/data/recorded/kubelet/checkpoint-*.json", "tests/data/recorded/checkpoint/*.json"),
        _words('{} [] null "" Data Checksum PodDeviceEntries DeviceIDs -1 18446744073709551616 1e5'),
    ),
    "pod-resources": ByteTarget(kubelet.pod_resources, kubelet.lists),
    "kept-answers": ByteTarget(
        kubelet.stored_answers,
        kubelet.answers,
        _words('[] {} "id" "members" "partOf" null -1 gpu-0 gpu-1 , ; = \\ud800'),
    ),
    "cgroups": kubelet.cgroups,
    "proc-tables": ByteTarget(
        proc.tables,
        lambda: proc.TABLES,
        _words("\r : - 00000000 0003 0A 8:0 /dev/sda lo eth0 -0x1 1_0 \u0660"),
    ),
    "device-configs": ByteTarget(
        claims.config,
        lambda: claims.CONFIGS,
        _words('{} [] null true -1 1e400 "" "env" "LD_PRELOAD" {ids} {{ }} "access" "gid" "reset" .. \\ud800 ::1/128'),
    ),
    "metadata-files": ByteTarget(
        claims.stream,
        lambda: claims.STREAMS,
        _words('{} [] null NaN 1e400 "" requests devices attributes int'),
    ),
    "control-questions": ByteTarget(
        control.question,
        control.questions,
        _words(
            '{} [] null true -1 1e400 "" "question" "name" "device" "unit" "force" misc-fuse \\ud800 \\u0000 /dev/kvm'
        ),
    ),
    "cdi-files": ByteTarget(
        cdi_files,
        lambda: _CDI,
        _words('{} [] null "" cdiVersion kind devices containerEdits env deviceNodes mounts -1 0.8.0 1.0.0'),
    ),
    "http2-requests": http2.serve,
    "http2-answers": http2.answers,
    "http1-answers": http1.compare_parsers,
    "headers": lambda seed: f"{http2.headers(seed)}, {http2.text(seed)}",
    "grpc": transport.session,
    "protobuf": apiserver.protobuf,
    "ledger": ledger,
}
