"""What must not leave a node, and what can."""

import json

import pytest

from nodeplug.report.redaction import REMOVED, without_credentials, without_values

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"the token is {JWT} here", f"the token is {REMOVED} here"),
        ("Authorization: Bearer abcdefgh.ijkl", f"Authorization: {REMOVED} {REMOVED}"),
        ("get https://user:hunter2@example.com/x failed", f"get https://{REMOVED}@example.com/x failed"),
        ("password=hunter2 user=x", f"password={REMOVED} user=x"),
        ("db_password: 'a b', x", f"db_password: '{REMOVED}', x"),
        ('{"apiKey": "a b", "x": 1}', f'{{"apiKey": "{REMOVED}", "x": 1}}'),
        ("-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----\nx", f"{REMOVED}\nx"),
        ("-----BEGIN PRIVATE KEY-----\nabc", REMOVED),
        ("client-key-data: abc=", f"client-key-data: {REMOVED}"),
        ("misc-kvm of example.com/kvm is with pod default/token-reader", ""),
        ("Basic devices are here", ""),
        ("the kubelet refused: https://10.0.0.1:443/api: no answer", ""),
    ],
)
def test_credentials_are_removed_from_text(text: str, left: str) -> None:
    assert without_credentials(text) == (left or text)


def test_redacted_json_is_valid_json() -> None:
    original = {"a": 'the file has "token": "abc def"', "secret": "x", "list": [{"password": "y"}], "token": JWT}
    found = json.loads(without_credentials(json.dumps(original)))
    assert found["secret"] == found["list"][0]["password"] == found["token"] == REMOVED
    assert "abc def" not in found["a"]


def test_configured_values_are_removed_and_placeholders_stay() -> None:
    resource = {
        "name": "example.com/gpu",
        "select": {"kind": "gpu", "attributes": {"vendor": "10de"}},
        "env": {"GPU": "{ids}", "LICENSE": "hunter2", "BOTH": "x-{pciBusID}"},
        "annotations": {"a/b": "hunter2"},
        "additionalInfo": {"*": {"pin": "hunter2"}},
    }
    assert without_values({"resources": [resource]}) == {
        "resources": [
            resource
            | {
                "env": {"GPU": "{ids}", "LICENSE": REMOVED, "BOTH": f"{{pciBusID}}{REMOVED}"},
                "annotations": {"a/b": REMOVED},
                "additionalInfo": {"*": {"pin": REMOVED}},
            }
        ]
    }
