"""Bodies that are not objects: refused with the messages of Go's decoders, which tests of clients match."""

from typing import Any

import pytest

from controlplane.apiserver.json_faults import json_fault, shown_body
from tests.controlplane.apiserver.running import Http

CORE = "/api/v1/namespaces/default"
MAPS, TOKEN = f"{CORE}/configmaps", f"{CORE}/serviceaccounts/default/token"
AUTHENTICATION, AUTHORIZATION = "/apis/authentication.k8s.io/v1", "/apis/authorization.k8s.io/v1"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("- a", "invalid character ' ' in numeric literal"),
        ("-", "invalid character ' ' in numeric literal"),
        ("{a", "invalid character 'a' looking for beginning of object key string"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 2}', "invalid character '2' after object key:value pair"),
        ('{"a":1,}', "invalid character '}' looking for beginning of object key string"),
        ("[1 2]", "invalid character '2' after array element"),
        ("[1,]", "invalid character ']' looking for beginning of value"),
        ("{}}", "invalid character '}' after top-level value"),
        ("01", "invalid character '1' after top-level value"),
        ("1.", "invalid character ' ' after decimal point in numeric literal"),
        ("1.5E+x", "invalid character 'x' in exponent of numeric literal"),
        ("nul", "invalid character ' ' in literal null (expecting 'l')"),
        ("[trux", "invalid character 'x' in literal true (expecting 'e')"),
        ('"\\q"', "invalid character 'q' in string escape code"),
        ('"\\u00zz"', "invalid character 'z' in \\u hexadecimal character escape"),
        ('"a\nb"', "invalid character '\\n' in string literal"),
        ("'", "invalid character '\\'' looking for beginning of value"),
        ("\x7f", "invalid character '\\x7f' looking for beginning of value"),
        ("\xff", "invalid character '\xff' looking for beginning of value"),
        ("[1", "unexpected end of JSON input"),
        (" ", "unexpected end of JSON input"),
        ('{"a":[true,null,-1.5e3,{}]} ', ""),
        ("[ ]", ""),
        ("0", ""),
    ],
)
def test_malformed_json_has_error_text_of_go_decoder(text: str, why: str) -> None:
    assert json_fault(text.encode("latin-1")) == why


def test_error_shows_body_abbreviated_or_in_hexadecimal() -> None:
    assert [shown_body(data) for data in (b"", b"{a", b"- a", b"{" + b"a" * 40)] == [
        "<empty>",
        "{a",
        "2d2061",
        "{" + "a" * 29 + " ...",
    ]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: b: c", "mapping values are not allowed in this context (613a20623a2063)"),
        ("a: b\nc: d: e", "line 2: mapping values are not allowed in this context"),
        ("{a", "line 1: did not find expected ',' or '}' ({a)"),
        ("{a: b]", "did not find expected ',' or '}' ({a: b])"),
    ],
)
def test_malformed_yaml_has_line_number_of_go_decoder(api: Http, text: str, why: str) -> None:
    refused = api.send("POST", MAPS, text.encode(), content="application/yaml")
    assert f"(must be of type ConfigMap): yaml: {why}" in refused.message


def test_unknown_field_is_dropped_with_warning_or_refused_when_strict(api: Http) -> None:
    pod = b"""{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "colour": 1, "spec": {"containers":
        [{"name": "c", "image": "i", "imag": "j", "devices": [{"name": "a"}]}],
        "deviceClaims": [], "deviceClaims": []}}"""
    pods = "/api/v1/namespaces/default/pods"
    texts = ['unknown field "colour"', 'unknown field "spec.containers[0].imag"', 'duplicate field "spec.deviceClaims"']
    refused = api.send("POST", pods, pod, fieldValidation="Strict")
    assert (refused.status, refused.message.partition("strict decoding error: ")[2]) == (400, ", ".join(texts))
    made = api.send("POST", pods, pod)
    assert (made.status, len(made.warnings), "colour" in made.body) == (201, 3, False)
    assert made.body["spec"]["containers"][0]["devices"] == [{"name": "a"}]  # the prototype's field


@pytest.mark.parametrize(
    ("path", "kind", "body", "why"),
    [
        (TOKEN, "TokenRequest", {"spec": "x"}, "string into Go struct field TokenRequest.spec"),
        (
            TOKEN,
            "TokenRequest",
            {"spec": {"audiences": 5}},
            "number into Go struct field",
        ),
        (f"{AUTHENTICATION}/tokenreviews", "TokenReview", {"spec": []}, "array into Go struct field TokenReview.spec"),
        (f"{AUTHORIZATION}/subjectaccessreviews", "SubjectAccessReview", {"spec": {"groups": 3}}, "number into Go"),
        (f"{AUTHORIZATION}/selfsubjectrulesreviews", "SelfSubjectRulesReview", {"spec": 1}, "number into Go struct"),
        (f"{CORE}/pods/p/binding", "Binding", {"target": {"name": 7}}, "number into Go struct field ObjectReference"),
    ],
)
def test_review_token_and_binding_with_wrong_types_are_refused(
    api: Http, path: str, kind: str, body: dict[str, Any], why: str
) -> None:
    refused = api.send("POST", path, body)
    assert refused.status == 400
    assert refused.message.startswith(
        f'{kind} in version "v1" cannot be handled as a {kind}: json: cannot unmarshal {why}'
    )
