"""Names of images, as Go's parser of references reads them. An invalid name has no tag.

Source: the grammar in github.com/distribution/reference, reference.go.
"""

import re

_DOCKER, _OLD_DOCKER, _OFFICIAL = "docker.io", "index.docker.io", "library/"
_IS_IDENTIFIER = re.compile(r"[a-f0-9]{64}")
_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_HOST = rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?"
_STEP = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_TAG = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}"
_DIGEST = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
_REFERENCE = re.compile(rf"{_HOST}/(?P<path>{_STEP}(?:/{_STEP})*)(?::(?P<tag>{_TAG}))?(?:@(?P<digest>{_DIGEST}))?")
_MAX_PATH_LENGTH = 255
_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}  # algorithm -> number of hexadecimal digits
_IS_HEXADECIMAL = re.compile(r"[0-9a-f]+")


def pull_policy(image: str) -> str:
    """Return the default pull policy: `Always` for the tag `latest`, which an image without a tag has too."""
    return "Always" if tag_of(image) == "latest" else "IfNotPresent"


def tag_of(image: str) -> str:
    """Return the tag of an image, `latest` if it has none; empty with only a digest, or for an invalid name."""
    found = None if _IS_IDENTIFIER.fullmatch(image) else _REFERENCE.fullmatch(_whole(image))
    if found is None or len(found["path"]) > _MAX_PATH_LENGTH:
        return ""
    digest = found["digest"] or ""
    if digest and not _is_digest(digest):
        return ""
    return found["tag"] or ("" if digest else "latest")


def _whole(image: str) -> str:
    """The name with the host and path that a short name stands for."""
    first, slash, rest = image.partition("/")
    if not slash:
        return f"{_DOCKER}/{_OFFICIAL}{image}"
    is_host = first == "localhost" or any(sign in first for sign in ".:") or first != first.lower()
    host, path = (_DOCKER if first == _OLD_DOCKER else first, rest) if is_host else (_DOCKER, image)
    return f"{host}/{_OFFICIAL if host == _DOCKER and '/' not in path else ''}{path}"


def _is_digest(text: str) -> bool:
    algorithm, _, digits = text.partition(":")
    return len(digits) == _DIGITS.get(algorithm) and _IS_HEXADECIMAL.fullmatch(digits) is not None
