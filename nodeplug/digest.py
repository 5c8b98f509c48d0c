"""The output of sha256sum, without the library that hashlib loads."""

import importlib
import sys


def sha256(content: bytes) -> str:
    """Return what sha256sum prints. Uses Python's own code, because hashlib would load OpenSSL into the daemon."""
    try:
        module = importlib.import_module("_sha2" if sys.version_info >= (3, 12) else "_sha256")
    except ImportError:
        module = importlib.import_module("hashlib")
    digest: str = module.sha256(content).hexdigest()
    return digest
