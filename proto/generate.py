"""Generates `kubeletapi/` from the `.proto` files of this folder: messages and their type stubs, no service code.

Run by `make proto`, with the generator pinned in `requirements.txt`. It is old on purpose: messages generated before
protobuf 5.27 carry no lower bound on the runtime, and load with every protobuf since 4.25.
The messages are in a pool of their own: every plugin that generates the kubelet's API itself has the same names in the
pool that all share, and whoever comes second to that one cannot be imported.
"""

import sys
from pathlib import Path

PROTO = Path(__file__).resolve().parent
HEADER = '"""Generated from `proto/` by `make proto`; do not edit."""\n'
POOL = """
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
"""


def generate(target: Path) -> None:
    """Write the package `kubeletapi` below the folder `target`."""
    import grpc_tools
    from grpc_tools import protoc

    sources = [f"kubeletapi/{path.relative_to(PROTO)}" for path in sorted(PROTO.rglob("*.proto"))]
    well_known = Path(grpc_tools.__file__).parent / "_proto"
    command = ["protoc", f"-Ikubeletapi={PROTO}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}"]
    if protoc.main([*command, *sources]) != 0:
        raise SystemExit("protoc failed; its message is above")
    package = target / "kubeletapi"
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]:
        (folder / "__init__.py").write_text(HEADER)
    (package / "_pool.py").write_text(HEADER + POOL)
    for module in package.rglob("*_pb2.py"):
        module.write_text(_in_our_pool(module.read_text()))


def _in_our_pool(text: str) -> str:
    ours = text.replace(
        "from google.protobuf import descriptor_pool as _descriptor_pool", "from kubeletapi import _pool"
    )
    ours = ours.replace("_descriptor_pool.Default()", "_pool.POOL")
    if ours.count("_pool.POOL") != 1 or "_descriptor_pool" in ours:
        raise SystemExit("what protoc writes has changed: see _in_our_pool")
    return ours


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO.parent)
