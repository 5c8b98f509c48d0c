"""Values are not converted between types, and every error has its place."""

from typing import Annotated

import msgspec
import pytest

from nodeplug.config import ConfigError, Settings, loads
from nodeplug.config.document import Document, similar_name
from nodeplug.config.reference import schema
from nodeplug.config.tree import parse
from nodeplug.version import VERSION
from tests.nodeplug.config.text import errors_of, errors_with_settings


def test_all_errors_of_a_file_are_reported_at_once() -> None:
    assert errors_of("""
        settings:
          kubeletRoott: /k
          rescanSeconds: "60"
          logLevel: inof
        resources:
          - name: example.com/a
            select: {preset: gpus, attributes: {vendr: x, serial: 0123}}
            shares: 0
          - select: kvm
            access: {mode: 0660}
          - name: example.com/b
            select: kvm
            share: 2
            select: tun
          - hello
    """) == [
        "2:3: unknown key kubeletRoott; did you mean kubeletRoot?",
        '3:18: this must be a whole number of seconds, not "60"; leave the quotes out',
        '4:13: unknown value "inof"; did you mean info?',
        "7:22: unknown preset gpus; did you mean gpu?",
        "7:41: unknown attribute vendr; did you mean vendor?",
        '7:59: YAML takes 0123 for a number; write it in quotes: "0123"',
        "8:13: 0 is less than 1; how many containers can use one device at once",
        "9:5: the key name is missing; the extended resource that pods request: `example.com/gpu`",
        '10:20: YAML takes 0660 for a number; write it in quotes: "0660"',
        "13:5: unknown key share; did you mean shares?",
        "14:5: the key select appears twice; the first is in line 12",
        '15:5: this must be a mapping, not "hello"; what the node offers',
    ]


def test_errors_of_values_are_reported_beside_unknown_keys() -> None:
    found = errors_of("""\
        resources:
          - {name: bad, select: {preset: kvm, attributes: {speeed: 1, vendor: 0x1}}, share: 2}
          - {name: a.b/c, select: kvm, env: {LD_PRELOAD: x, Y: "{nope}"}, shares: x}
          - {name: a.b/d, select: kvm, mounts: [{hostPath: /etc}], annotations: {"-": x}, access: {mode: x}}
    """)
    for text in (
        "bad cannot be a resource name",
        "unknown attribute speeed",
        'write it in quotes: "0x1"',
        "unknown key share",
        "LD_PRELOAD cannot be set here",
        "unknown field {nope}",
        'a whole number, not "x"',
        "/etc is not below any of settings.allowedMounts",
        "- cannot be the name of an annotation",
    ):
        assert len([line for line in found if text in line]) == 1, found


@pytest.mark.parametrize(
    "text", ["0403", "1e10", "0x10de", "10:22:33", "017", "1_000", "1.10", ".5", "-1", "0o17", "+7"]
)
def test_unquoted_number_for_a_text_is_refused(text: str) -> None:
    message = f'YAML takes {text} for a number; write it in quotes: "{text}"'
    assert errors_with_settings(f"select: {{id: {text}}}") == [message]
    assert errors_with_settings(f"select: {{id: [a, {text}]}}") == [message]


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "y", "N", "True"])
def test_unquoted_truth_value_for_a_text_is_refused(text: str) -> None:
    found = errors_with_settings(f"select: {{id: {text}}}")
    assert found == [f'YAML takes {text} for a truth value; write it in quotes: "{text}"']


def test_unquoted_date_for_a_text_is_refused() -> None:
    assert errors_with_settings("select: {id: 2026-11-21}") == [
        'YAML takes 2026-11-21 for a date; write it in quotes: "2026-11-21"'
    ]


@pytest.mark.parametrize("text", ["1-2.3", "0000:3b:00.0", "usb-1", "1.2.3", "e10", "v1", "0403f"])
def test_unquoted_unambiguous_text_is_accepted(text: str) -> None:
    assert loads(f"resources: [{{name: x/y, select: {{id: [{text}]}}}}]".encode()).resources


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shares: many", 'this must be a whole number, not "many"; how many containers can use one device at once'),
        ("shares: 1.5", 'this must be a whole number, not "1.5"; how many containers can use one device at once'),
        ("shares: [1]", "this must be a whole number, not a list; how many containers can use one device at once"),
        ("shares: 99999999999999999999", "99999999999999999999 has more digits than any number here"),
        ("shares:", "this has no value; give a whole number or leave the key out"),
        ("shares: ~", "this has no value; give a whole number or leave the key out"),
        ("cdi: yes", "yes can mean true, false or a text; write true or false"),
        ('cdi: "true"', 'this must be true or false or auto, not "true"; leave the quotes out'),
        ("cdi: 1", 'this must be true or false or auto, not "1"; how containers get device nodes'),
        ("cdi: [auto]", "this must be true or false or auto, not a list"),
        ("cdi: flase", 'unknown value "flase"; did you mean false?'),
        ("cdi: plain", 'unknown value "plain"; known are auto, false, true'),
        ('reset: "true"', 'this must be true or false, not "true"; leave the quotes out'),
        ("reset: 1", 'this must be true or false, not "1"'),
        ("preferred: 1", 'this must be one of distinct, numa, packed, spread, not "1"'),
        ("env: [A]", "this must be a mapping, not a list"),
        ("env: {A: 1}", 'YAML takes 1 for a number; write it in quotes: "1"'),
        ("mounts: {}", "this must be a list, not a mapping"),
        ("permissions: rx", '"rx" must be made of the letters r, w and m'),
        ("preferred: pack", 'unknown value "pack"; did you mean packed?'),
        ("group: siblings", 'unknown value "siblings"; known are functions, parent'),
        ('env: {A: "\\x01"}', "this text has a control character"),
        ("permissions: |\n  rw", "this text has a control character; line breaks are control characters, too"),
        ("access: {uid: -1}", "-1 is less than 0; the owner"),
        ("access: {uid: 5000000000}", "5000000000 is more than 4294967294; the owner"),
    ],
)
def test_values_of_the_wrong_type_are_refused(text: str, message: str) -> None:
    (found,) = errors_with_settings(f"select: kvm\n{text}")
    assert found.startswith(message)


@pytest.mark.parametrize("text", ["true", "True", "TRUE"])
def test_true_is_accepted_in_three_spellings(text: str) -> None:
    assert loads(f"resources: [{{name: x/y, select: kvm, cdi: {text}}}]".encode()).resources[0].cdi is True


@pytest.mark.parametrize("text", ["5", "hello", "[]", "resources"])
def test_file_without_a_mapping_is_refused(text: str) -> None:
    assert errors_of(text)[0].startswith("1:1: this must be a mapping, not")


def test_missing_keys_have_their_defaults() -> None:
    config = loads(b"resources: []")
    assert config.settings == Settings()
    assert config.resources == ()


def test_control_characters_in_errors_are_escaped() -> None:
    with pytest.raises(ConfigError) as caught:
        loads(b'"\\e[2Jresources": 5', "f\n")
    assert caught.value.lines() == [r"f\n:1:1: unknown key \x1b[2Jresources; did you mean resources?"]


def test_unknown_api_version_is_refused() -> None:
    resources = "resources: [{name: x/y, select: kvm}]"
    assert loads(f"apiVersion: nodeplug.dev/v1\n{resources}\n".encode()).resources
    assert errors_of(f"{resources}\napiVersion: nodeplug.dev/v2\n") == [
        f"2:13: nodeplug {VERSION} does not know nodeplug.dev/v2; it reads nodeplug.dev/v1"
    ]


def test_config_map_is_refused_with_a_hint() -> None:
    assert errors_of("""
        apiVersion: v1
        kind: ConfigMap
        data:
          config.yaml: |
            resources: []
    """) == [
        "2:7: this is a ConfigMap for kubectl, not the configuration in it; write the text below its `config.yaml:"
        " |` to a file, and use that file"
    ]


def test_pod_is_refused_without_a_hint() -> None:
    assert errors_of("apiVersion: v1\nkind: Pod\n") == ["2:7: this is a Pod for kubectl, not a configuration"]


def test_missing_space_after_a_colon_is_named() -> None:
    assert errors_of("resources:\n  - name:x/y\n    select:kvm\n")[0].endswith(
        'not "name:x/y select:kvm"; write a space after the colon: name: x/y'
    )


def test_helm_values_are_refused_with_a_hint() -> None:
    assert errors_of("config: {resources: []}")[1:] == [
        "1:1: unknown key config; as in values for the Helm chart: write the text below it to a file, and use that file"
    ]


def _patterns(value: object) -> set[str]:
    if isinstance(value, list):
        return {found for each in value for found in _patterns(each)}
    if isinstance(value, dict):
        inner = {found for each in value.values() for found in _patterns(each)}
        return inner | {value["pattern"]} if isinstance(value.get("pattern"), str) else inner
    return set()


@pytest.mark.parametrize("pattern", sorted(_patterns(schema())))
def test_pattern_errors_describe_the_pattern_in_words(pattern: str) -> None:
    one = msgspec.defstruct("One", [("text", Annotated[str, msgspec.Meta(pattern=pattern)])])
    finding = Document(parse(b"text: '?'")[0], one).findings[0]
    assert finding.message.startswith('"?" must be ')
    assert pattern not in finding.message


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("example.com/fuze", "example.com/fuse"),
        ("exmple.com/fuse", "example.com/fuse"),
        ("example.com/nix", ""),  # a common domain does not count
        ("fuse", ""),
    ],
)
def test_similar_name_is_suggested(name: str, near: str) -> None:
    assert similar_name(name, ["example.com/fuse", "example.com/kvm"]) == near
