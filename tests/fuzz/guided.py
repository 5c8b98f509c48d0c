"""Coverage-guided inputs: `python -m tests.fuzz TARGET --engine atheris`.

atheris is not a dependency (`pip install atheris`; tested with 3.0.0 on Python 3.11). It runs one target until it has
made the given number of inputs, or until the first failure, which it writes to `crash-...` in the working directory.
Its corpus is in `build/fuzz/TARGET`, so that the next run continues from there. Targets whose inputs are drawn at
random instead of being bytes cannot be used.
"""

import gc
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

from tests.fuzz.mutation import MAX_LENGTH
from tests.fuzz.targets import ROOT, TARGETS, ByteTarget

_MAX_SECONDS = 20  # the limit per input


def run_guided(name: str, inputs: int, seed: int) -> int:
    """Run one target and end the process, or print what is missing and return 2."""
    target = TARGETS[name]
    if not isinstance(target, ByteTarget):
        print(f"{name}: its inputs are drawn and not bytes: atheris cannot change them; leave out --engine")
        return 2
    try:
        atheris = importlib.import_module("atheris")
    except ImportError as error:
        print(f"atheris is not installed ({error}): pip install atheris")
        return 2
    corpus = ROOT / "build/fuzz" / name
    corpus.mkdir(parents=True, exist_ok=True)
    for content in target.seeds():
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content[:MAX_LENGTH])
    options = [f"-runs={inputs}", f"-seed={seed}", f"-max_len={MAX_LENGTH}", f"-timeout={_MAX_SECONDS}"]
    if target.words:
        options.append(f"-dict={_dictionary(corpus.with_suffix('.dict'), target.words)}")
    one: Callable[[bytes], str] = target.one
    for function in _ours():
        atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: one(data) and None)
    atheris.Fuzz()
    return 0


def _ours() -> Iterator[FunctionType]:
    """Yield the functions to instrument: our own, without tests and installed packages."""
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            path = Path(each.__code__.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in (".venv", "tests"):
                yield each


def _dictionary(path: Path, words: tuple[bytes, ...]) -> Path:
    """Write words in libFuzzer's dictionary format."""
    lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in words)
    path.write_text("".join(f'"{line}"\n' for line in lines))
    return path
