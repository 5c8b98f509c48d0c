"""Inputs that an engine makes for the code that they reach: `python -m tests.fuzz TARGET --engine atheris`.

atheris is no dependency of ours (`pip install atheris`; it was tried with 3.0.0 on Python 3.11). It runs one target
until it has made as many inputs, or the first that fails, which it leaves in the working directory as `crash-...`.
What it starts from, and what it found to reach more, lies in `build/fuzz/TARGET`, so that the next run goes on there.
A target whose inputs are drawn and not bytes has nothing that it could change.
"""

import gc
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

from tests.fuzz.mutation import LONGEST
from tests.fuzz.targets import ROOT, TARGETS, Bytewise

_LONGEST_SECONDS = 20  # that an input may take


def guide(name: str, inputs: int, seed: int) -> int:
    """Run one target; the process ends with it, or the status is 2 and the words say what is missing."""
    target = TARGETS[name]
    if not isinstance(target, Bytewise):
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
        (corpus / hashlib.sha256(content).hexdigest()[:16]).write_bytes(content[:LONGEST])
    options = [f"-runs={inputs}", f"-seed={seed}", f"-max_len={LONGEST}", f"-timeout={_LONGEST_SECONDS}"]
    if target.words:
        options.append(f"-dict={_dictionary(corpus.with_suffix('.dict'), target.words)}")
    one: Callable[[bytes], str] = target.one
    for function in _ours():
        atheris.instrument_func(function)
    atheris.Setup([sys.argv[0], *options, str(corpus)], lambda data: one(data) and None)
    atheris.Fuzz()
    return 0


def _ours() -> Iterator[FunctionType]:
    """Yield the functions whose reached branches count: our own, without the tests and what is installed."""
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            path = Path(each.__code__.co_filename)
            if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] not in (".venv", "tests"):
                yield each


def _dictionary(path: Path, words: tuple[bytes, ...]) -> Path:
    """Write words as libFuzzer reads them."""
    lines = ("".join(f"\\x{byte:02x}" for byte in word) for word in words)
    path.write_text("".join(f'"{line}"\n' for line in lines))
    return path
