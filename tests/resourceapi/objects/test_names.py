"""Names, labels and identifiers, and the messages for invalid ones."""

import pytest

from resourceapi.objects import names

LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
    " (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is"
    " '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a" * 63])
def test_valid_dns_label_is_accepted(name: str) -> None:
    assert names.dns_label(name) == []


@pytest.mark.parametrize(
    ("name", "complaints"),
    [
        ("", [LABEL]),
        ("A", [LABEL]),
        ("-a", [LABEL]),
        ("a-", [LABEL]),
        ("a_b", [LABEL]),
        ("a\n", [LABEL]),
        ("\u00e4", [LABEL]),
        ("a.b", ["must not contain dots"]),
        ("a.-b", [LABEL]),
        ("a" * 64, ["must be no more than 63 characters"]),
        ("A" * 64, ["must be no more than 63 characters", LABEL]),
    ],
)
def test_invalid_dns_label_is_refused(name: str, complaints: list[str]) -> None:
    assert names.dns_label(name) == complaints


@pytest.mark.parametrize("name", ["a", "a.b", "a-b.c0", "a" * 253])
def test_valid_dns_subdomain_is_accepted(name: str) -> None:
    assert names.dns_subdomain(name) == []


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "A.b", "a_b", "a.b\n"])
def test_invalid_dns_subdomain_is_refused(name: str) -> None:
    (complaint,) = names.dns_subdomain(name)
    assert complaint.startswith("a lowercase RFC 1123 subdomain must")


@pytest.mark.parametrize("key", ["a", "A_b.c-d", "example.com/a", "x" * 63, "0/0"])
def test_valid_label_key_is_accepted(key: str) -> None:
    assert names.label_key(key) == []


@pytest.mark.parametrize(
    ("key", "complaints"),
    [
        ("", ["name part must be non-empty", f"name part {KEY}"]),
        ("a b", [f"name part {KEY}"]),
        ("a/", ["name part must be non-empty", f"name part {KEY}"]),
        ("/a", ["prefix part must be non-empty"]),
        ("x" * 64, ["name part must be no more than 63 bytes"]),
        ("\u00e4" * 32, ["name part must be no more than 63 bytes", f"name part {KEY}"]),
        (
            "a/b/c",
            [f"a valid label key {KEY} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"],
        ),
    ],
)
def test_invalid_label_key_is_refused(key: str, complaints: list[str]) -> None:
    assert names.label_key(key) == complaints


def test_label_key_prefix_must_be_a_dns_subdomain() -> None:
    (complaint,) = names.label_key("A/b")
    assert complaint.startswith("prefix part a lowercase RFC 1123 subdomain must")
    (complaint,) = names.label_key("a" * 254 + "/b")
    assert complaint == "prefix part must be no more than 253 bytes"


def test_label_value_is_checked() -> None:
    assert [names.label_value(value) for value in ("", "a", "A.b_c-d", "0" * 63)] == [[]] * 4
    assert names.label_value("0" * 64) == ["must be no more than 63 bytes"]
    for value in ("-", "a ", "a/b", "\u00e4"):
        (complaint,) = names.label_value(value)
        assert complaint.startswith("a valid label must be an empty string or consist of alphanumeric characters")


def test_c_identifier_and_condition_reason_are_checked() -> None:
    assert names.c_identifier("_a0") == []
    assert all(names.c_identifier(name) for name in ("", "0a", "a-b", "a b", "\u00e4"))
    assert names.condition_reason("Ok_1,a:b") == []
    assert all(names.condition_reason(reason) for reason in ("", "1", "a:", "no spaces"))


def test_native_and_extended_resource_names_are_recognised() -> None:
    assert names.is_native_resource("cpu")
    assert names.is_native_resource("hugepages.kubernetes.io/2Mi")
    assert names.is_extended_resource("example.com/gpu")
    for name in ("gpu", "kubernetes.io/gpu", "requests.example.com/gpu", "example.com/", "example.com/a b", ""):
        assert not names.is_extended_resource(name)


def test_long_invalid_names_are_checked_in_linear_time() -> None:
    """A rule with exponential backtracking would exceed the tests' time limit."""
    for name in ("a" * 300_000 + "!", "a." * 150_000 + "!", "a-" * 150_000, "A" * 300_000 + "/" * 3):
        for rule in (names.dns_label, names.dns_subdomain, names.label_key, names.label_value, names.c_identifier):
            rule(name)
