"""Generates `kubeletapi/` from the `.proto` files of this folder: messages and their type stubs, no service code.

Run by `make proto`, with the generator pinned in `requirements.txt`. It is old on purpose: messages generated before
protobuf 5.27 carry no lower bound on the runtime, and load with every protobuf since 4.25.
The files lie under distinct paths because Python has one pool for all descriptors, keyed by file name.
"""

import sys
from pathlib import Path

PROTO = Path(__file__).resolve().parent
HEADER = '"""Generated from `proto/` by `make proto`; do not edit."""\n'


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


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else PROTO.parent)
