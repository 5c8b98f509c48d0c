"""The CEL language: values, types, errors with their positions, and evaluation costs."""

import re
from typing import Any

import pytest

from resourceapi.cel import CelCompileError, CelEvalError, base_environment, compile_expression
from resourceapi.cel.environment import CURRENT, build_environment
from resourceapi.cel.types import INT, list_of
from tests.cases.cel_values import NotAValueError, as_text, as_value


def evaluate(source: str) -> Any:
    """A value in the form that tests use: a Python value if possible, otherwise its text."""
    value, _ = compile_expression(source, base_environment()).evaluate()
    try:
        return _plain(as_value(value))
    except NotAValueError:
        return as_text(value)


def _plain(value: dict[str, Any]) -> Any:
    (kind, content), *_ = value.items()
    match kind:
        case "int64Value":
            return int(content)
        case "uint64Value":
            return f"{content}u"
        case "listValue":
            return [_plain(each) for each in content.get("values", [])]
        case "mapValue":
            return {_plain(each["key"]): _plain(each["value"]) for each in content.get("entries", [])}
        case "objectValue":
            return content["value"]
        case _:
            return content


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # arithmetic
        ("-7 / 2", -3),
        ("-7 % 2", -1),
        ("7u / 2u", "3u"),
        ("1.0 / 0.0", "Infinity"),
        ("0x1F + 1", 32),
        ("--1", 1),
        ("!!true", True),
        ("1 + 2 * 3 - 4 % 3", 6),
        ("1 < 2.5 && 2u > -1 && 3.0 == 3.0", True),
        ("dyn(1) == dyn(1u) && dyn(1.0) == 1", True),
        ("dyn(double('NaN')) == dyn(double('NaN'))", False),
        ("dyn(9007199254740993) == 9007199254740992.0", True),
        # strings and bytes
        (r"'a\u00e9\x41\101' + r'\n'", "aéAA\\n"),
        ("'''a\nb'''", "a\nb"),
        ("b'\\xff' + b'é'", "/8Op"),
        ("'tacocat'.substring(0, 3).upperAscii() + 'x'.charAt(1)", "TAC"),
        ("'a,b,,c'.split(',', 3)", ["a", "b", ",c"]),
        ("'banana'.replace('a', 'o', 2).indexOf('o', 2)", 3),
        ("['a', 'b'].join('-') + '\\u00a0 x\\t'.trim()", "a-bx"),
        ("strings.quote('a\"\\n')", '"a\\"\\n"'),
        ("'%s %d %.2f %x %s'.format(['a', 5, 1.0, 255, [1.5, 'x']])", 'a 5 1.00 ff [1.500000, "x"]'),
        ("'%e %f'.format([1234.5, 1234567.0])", "1.234500×10⁰³ 1,234,567.000000"),
        # Go's precision: 8 bits for the zeros, 16 for the digits, invalid with more than seven digits
        ("'%.00000000000000000000257f %.259f %.65537f'.format([1.0, 1.5, 1.16])", "1.0 1.500 1.2"),
        ("'%.32769f'.format([1.1])", "1.1"),
        ("'%.65551e|%.10000010f|%.10000010e'.format([1.0, 1.0, 1.0])", "  1.000000×10⁰⁰|%!(NOVERB)|%!(NOVERB)"),
        # containers
        ("[1, 2] + [3]", [1, 2, 3]),
        ("{'a': {'c': 1}, 'b': {'c': 2}}.b.c", 2),
        ("{true: 'x', false: 'y'}[1 == 1]", "x"),
        ("2 in [1, 2] && 'a' in {'a': 1} && !(3 in [1, 2])", True),
        ("[1, 2] == [1, 2] && {'a': 1.0} == {'a': 1.0} && [1] != [2]", True),
        ("[3, 1, 2].sort().reverse() + [1, 1].distinct()", [3, 2, 1, 1]),
        ("[[1], [2, 3]].flatten().slice(1, 3)", [2, 3]),
        ("[{'n': 2}, {'n': 1}].sortBy(e, e.n)[0].n", 1),
        ("[1, 2, 3].sum() + [4, 5].max() + lists.range(3).size()", 14),
        ("sets.contains([1, 2, 3], [2]) && !sets.intersects([1], [2]) && sets.equivalent([1, 1], [1])", True),
        # macros
        ("[1, 2, 3].map(x, x > 1, x * 2)", [4, 6]),
        ("[1, 2, 3].filter(x, x % 2 == 1)", [1, 3]),
        ("[1, 2].exists_one(x, x == 2) && [1, 2].all(i, v, v == i + 1)", True),
        ("{'a': 1}.transformMap(k, v, v + 1)", {"a": 2}),
        ("['x', 'y'].transformMapEntry(i, v, {v: i})", {"x": 0, "y": 1}),
        ("[5, 6].transformList(i, v, i == 1, v)", [6]),
        ("cel.bind(x, 2, cel.bind(y, x * x, x + y))", 6),
        ("cel.bind(x, 1 / 0, true)", True),
        ("has({'a': 1}.a) && !has({'a': 1}.b)", True),
        # optional values
        ("{'a': {'b': 1}}.?a.?b.orValue(0) + [1][?5].orValue(7)", 8),
        ("optional.of(1).optMap(x, x + 1).value()", 2),
        ("optional.none().or(optional.of(3)).value()", 3),
        ("optional.ofNonZeroValue('').hasValue()", False),
        ("[?optional.none(), ?optional.of(1)] + {?'a': optional.of(2)}.map(k, 3)", [1, 3]),
        # types, times, networks
        ("type(1) == int && type([]) == list && type(type(1)) == type", True),
        ("duration('1h30m') + duration('-90s')", "5310s"),
        ("timestamp('2024-02-28T23:00:00-02:00') + duration('24h')", "2024-03-01T01:00:00Z"),
        ("string(timestamp('2024-01-01T00:00:00.50+05:30'))", "2024-01-01T00:00:00.5+05:30"),
        ("timestamp('2024-01-01T7:00:00,5Z')", "2024-01-01T07:00:00.500Z"),
        ("timestamp('2024-07-14T22:30:45Z').getDate('Asia/Tokyo') + timestamp(0).getDayOfYear()", 15),
        ("timestamp('9999-12-31T23:59:59Z').getFullYear('Europe/Berlin')", 10000),
        ("timestamp('9999-07-01T00:00:00Z').getHours('Europe/Berlin')", 2),
        ("google.protobuf.Timestamp{seconds: 9223372036854775807}.getHours('Asia/Tokyo')", 0),  # 15:30:07Z
        ("google.protobuf.Timestamp{seconds: -9223372036854775808}.getMinutes('+00:01')", 30),  # 08:29:52Z
        ("google.protobuf.Timestamp{seconds: -9223372036854775808}.getMinutes('UTC')", 29),
        ("int(google.protobuf.Timestamp{seconds: 9223372036854775807, nanos: 2000000000})", -(2**63) + 1),
        ("timestamp('0001-01-01T00:00:00Z').getFullYear('America/New_York')", 0),
        ("timestamp('0001-01-01T00:00:00Z').getDayOfYear('-05:00')", 365),
        ("timestamp('0001-01-01T00:00:00Z').getSeconds('America/New_York')", 58),
        ("cidr('10.1.2.3/8').masked().ip() == ip('10.0.0.0') && cidr('::/0').containsIP('fe80::1')", True),
        ("url('https://user@h:8080/a%20b?q=1&q=2').getQuery()['q']", ["1", "2"]),
        ("url('https://h:8080/a b').getEscapedPath() + url('/x').getHost()", "/a%20b"),
        (
            "url('db://a:1:2').getPort() + url('/x').getHost() + url('http://[::1%25a%20b]:8/').getHostname()",
            "2::1%a b",
        ),
        ("isURL('// x/y') && isURL('//[/') && url('//h/y').getHost() == 'h'", True),  # requests have no host there
        (f"format.dns1123LabelPrefix().validate('{'a' * 64}').value()", ["must be no more than 63 characters"]),
        (f"format.labelValue().validate('{'a' * 64}').value()", ["must be no more than 63 bytes"]),
        ("url('https://') == url('https:') && url('http://u%41:p%3a@h') == url('http://uA:p%3A@h')", True),
        ("['::1', 'fe80::1%25en0', '::ffff:1.2.3.4'].all(x, isURL('http://[' + x + ']:80/'))", True),
        ("['1.2.3.4', 'v1.a', 'fe80::1%25', '::%31'].exists(x, isURL('http://[' + x + ']:80/'))", False),
        ("format.dns1123Label().validate('ok').hasValue()", False),
        ("'ab12c3'.findAll('[0-9]+', 1) + ['x'.find('y')]", ["12", ""]),
        # map keys that are neither texts nor numbers
        ("null in {null: 1} && int in {int: 1} && timestamp(0) in {timestamp(0): 1}", True),
        ("ip('::1') in {ip('::1'): 1} && cidr('10.0.0.0/8') in {cidr('10.0.0.0/8'): 1}", True),
        ("[1] in {[1]: 1} || quantity('1') in {quantity('1'): 1}", False),
        ("{ip('::1'): 1, ip('::1'): 2}.size() + {quantity('1'): 1, quantity('1'): 2}.size()", 3),
        # a type name as variable has the value of the type with this name
        ("cel.bind(int, string, int) == int", True),
        # Go computes with float64
        ("duration('-31536003.999999999s').getSeconds()", -31536004),
        ("duration('-1.999s').getSeconds() + duration('119m').getHours() + duration('-1500us').getMilliseconds()", -1),
        # quantities and versions
        ("quantity('200M') == quantity('0.2G') && quantity('50M').isLessThan(quantity('50Mi'))", True),
        ("quantity('50k').add(20).sub(quantity('100k')).sub(-50000).asInteger() + sign(quantity('-1'))", 19),
        ("quantity('1Gi').sub(1)", "1073741823"),
        ("quantity('1').sub(-9223372036854775808)", "-9223372036854775807"),  # -x is x in 64 bits
        ("quantity('50.703k').asApproximateFloat()", 50703.0),
        ("semver('1.2.3-a.1').compareTo(semver('1.2.3')) + semver('v01.02', true).minor()", 1),
        ("semver('1.0.0+a') == semver('1.0.0+b') && !isSemver('01.1.1') && isSemver('1', true)", True),
    ],
)
def test_expression_has_value(source: str, expected: Any) -> None:
    assert evaluate(source) == expected


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("9223372036854775807 + 1", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("[1][2]", "index out of bounds: 2"),
        ("{'a': 1}['b']", "no such key: b"),
        ("[1][dyn('a')]", "unsupported index type 'string' in list"),
        ("dyn('a') < dyn(1)", "no such overload"),
        ("dyn({}) + 1", "no such overload: _+_"),
        ("dyn(1).charAt(0)", "no such overload: charAt(int, int)"),
        ("double('NaN') < 1.0", "NaN values cannot be ordered"),
        ("dyn(double('NaN')) < dyn('a')", "NaN values cannot be ordered"),
        ("timestamp('9999-12-31T23:59:59Z') + duration('1s')", "timestamp overflow"),
        ("timestamp(0).getHours('Nowhere/Land')", "unknown time zone Nowhere/Land"),
        ("timestamp(0).getHours('/UTC')", "time: invalid location name"),
        ("'abc'.charAt(9)", "index out of range: 9"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("[1, 2].slice(0, 3)", "cannot slice(0, 3), list is length 2"),
        ("[].max()", "max called on empty list"),
        ("[null].sum()", "no such overload: sum(list)"),
        ("optional.none().value()", "optional.none() dereference"),
        ("quantity('10Mm')", "unable to parse quantity's suffix"),
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("[1, 1].transformMapEntry(i, v, {v: i})", "insert failed: key 1 already exists"),
        ("[1, 1].transformMapEntry(i, v, {ip('::1'): i})", "insert failed: key ::1 already exists"),
        (
            "ip('1.300x')",
            'IP Address "1.300x" parse error during conversion from string: ParseAddr("1.300x"):'
            " IPv4 field has value >255",
        ),
        (
            "ip('1.2.3.256')",
            'IP Address "1.2.3.256" parse error during conversion from string: ParseAddr("1.2.3.256"):'
            " IPv4 field has value >255",
        ),
        *(
            (f"url('{text}')", f'URL parse error during conversion from string: parse "{text}": {problem}')
            for text, problem in (
                ("http://a%41b c/", 'invalid URL escape "%41"'),  # the first fault is reported
                ("http://a b%41/", 'invalid character " " in host name'),
                ("http://a%%41b/", 'invalid URL escape "%%4"'),
                ("http://[::1%25a%0a]/", 'invalid URL escape "%0a"'),
                ("http://a:1:2/", 'invalid port ":1:2" after host'),
                ("http://h/#%zz", 'invalid URL escape "%zz"'),
            )
        ),
        ("url('a b')", 'URL parse error during conversion from string: parse "a b": invalid URI for request'),
        (
            "url('http://[g::1]')",
            'URL parse error during conversion from string: parse "http://[g::1]": invalid host: ParseAddr("g::1"):'
            ' each colon-separated field must have at least one digit (at "g::1")',
        ),
        ("['('].exists(x, 'a'.matches(x))", "error parsing regexp: missing closing ): `(`"),
        ("['+nan'].map(x, double(x))", "type conversion error from 'string' to 'double'"),
        ("semver('1.é', true)", 'Invalid character(s) found in minor number "0é"'),
        ("'%s'.format([?dyn(1)])", "cannot initialize optional list element from non-optional value 1"),
        # a type that is only inferred from its use is not checked
        ("dyn([1]).reverse()[0].getHours()", "no such overload: getHours(int)"),
        ("dyn([1]).reverse().map(x, x.major())", "no such overload: major(int)"),
        ("dyn({'a': [1]}).transformList(k, v, v + [])[0].join()", "no such overload: join(list)"),
        ("cel.bind(x, dyn(optional.of([1])).value(), x.join())", "no such overload: join(list)"),
        # cases in which upstream panics
        ("[b''].map(x, {x: 1}) == [] || true", "internal error: runtime error: hash of unhashable type types.Bytes"),
        ("dyn(b'') in {'a': 1} || true", "internal error: runtime error: hash of unhashable type types.Bytes"),
        ("[1].flatten(1 / 0)", "internal error: interface conversion: ref.Val is *types.Err, not types.Int"),
        ("[1].flatten(dyn('a'))", "internal error: interface conversion: ref.Val is types.String, not types.Int"),
        # the result of add() on the right-hand side equals nothing
        ("quantity('2') == quantity('1').add(1)", "no such overload"),
    ],
)
def test_evaluation_error_has_upstream_text(source: str, text: str) -> None:
    with pytest.raises(CelEvalError) as raised:
        evaluate(source)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    ("source", "position", "message"),
    [
        ("1 + 'a'", "1:3", "found no matching overload for '_+_' applied to '(int, string)'"),
        ("'a'.foo()", "1:8", "undeclared reference to 'foo' (in container '')"),
        ("1.size()", "1:7", "found no matching overload for 'size' applied to 'int.()'"),
        ("true ? 1 : 'a'", "1:6", "found no matching overload for '_?_:_' applied to '(bool, int, string)'"),
        ("1 && true", "1:1", "expected type 'bool' but found 'int'"),
        ("[1, 'a']", "1:5", "expected type 'int' but found 'string'"),
        ("{'a': 1, 'b': 'c'}", "1:15", "expected type 'int' but found 'string'"),
        (
            "1.all(x, true)",
            "1:1",
            "expression of type 'int' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("[1].all(1, true)", "1:9", "argument must be a simple name"),
        ("[1].map(f(), 1)", "1:10", "argument is not an identifier"),
        ("[1].all(a, a, true)", "1:12", "duplicate variable name: a"),
        ("has('abc')", "1:5", "invalid argument to has() macro"),
        ("'a'.b", "1:4", "type 'string' does not support field selection"),
        ("package", "1:1", "reserved identifier: package"),
        ("[1].all(void, true)", "1:9", "argument must be a simple name"),  # a reserved name is not simple
        ("9223372036854775808", "1:1", "invalid int literal"),
        ("'\\ud800'", "1:1", "invalid unicode code point"),
        ("duration('x')", "1:10", "invalid duration argument"),
        ("timestamp('2024')", "1:11", "invalid timestamp argument"),
        ("'a'.matches('(')", "1:13", "invalid matches argument"),
        (
            "'%d'.format(['a'])",
            "1:14",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s'.format([1, 2])", "1:12", "too many arguments supplied to string.format (expected 1, got 2)"),
        (
            "'%.9223372036854775808s'.format([1])",
            "1:32",
            "could not parse formatting clause: error while parsing precision: error while converting precision to"
            ' integer: strconv.Atoi: parsing "9223372036854775808": value out of range',
        ),
        ("[1].existsOne(i, i == 1)", "1:14", "undeclared reference to 'existsOne' (in container '')"),
        ("true &&\n  nope", "2:3", "undeclared reference to 'nope' (in container '')"),
        ("Foo{a: 1}", "1:4", "undeclared reference to 'Foo' (in container '')"),
    ],
)
def test_compile_error_has_position_and_message(source: str, position: str, message: str) -> None:
    with pytest.raises(CelCompileError) as raised:
        compile_expression(source, base_environment())
    assert f"ERROR: <input>:{position}: {message}\n" in str(raised.value)


def test_inner_format_error_precedes_outer_one_at_same_position() -> None:
    with pytest.raises(CelCompileError, match=r"(?s)unrecognized formatting clause.*can be formatted as binary"):
        compile_expression("'%b'.format(['%z'.format([1])])", base_environment())


def test_arguments_of_reserved_name_are_checked_only_for_syntax() -> None:
    with pytest.raises(CelCompileError) as raised:
        compile_expression("void(void, 1 + 'a', [1].map(1, 2)) + 'a'", base_environment())
    assert str(raised.value).count("ERROR") == 1
    with pytest.raises(CelCompileError, match="2:9: Syntax error: extraneous input"):
        compile_expression("a ||\nvoid(1, || b)", base_environment())


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ("1 +", "1:4"),
        ("(1", "1:3"),
        ("'abc", "1:1"),
        ("a b", "1:3"),
        ("$x", "1:1"),
        ("1\n+ + 2", "2:3"),
        ("[1, , 2]", "1:5"),
        ("!-x", "1:3"),
        ("-!x", "1:2"),
    ],
)
def test_syntax_error_has_position(source: str, position: str) -> None:
    with pytest.raises(CelCompileError, match=f"<input>:{position}: Syntax error: "):
        compile_expression(source, base_environment())


OPERAND = (
    "'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", ["1:0: mismatched input '<EOF>' expecting {OPERAND}"]),
        ("a ==", ["1:5: mismatched input '<EOF>' expecting {OPERAND}"]),
        (
            "1 + *",
            ["1:5: mismatched input '*' expecting {OPERAND}", "1:6: mismatched input '<EOF>' expecting {OPERAND}"],
        ),
        ("a == == b", ["1:6: extraneous input '==' expecting {OPERAND}"]),
        ("()", ["1:2: mismatched input ')' expecting {OPERAND}"]),
        ("!", ["1:2: extraneous input '<EOF>' expecting {OPERAND}"]),
        ("-", ["1:2: no viable alternative at input '-'", "1:2: mismatched input '<EOF>' expecting {OPERAND}"]),
        ("- !a", ["1:3: no viable alternative at input '- !'"]),
        (".", ["1:2: no viable alternative at input '.'"]),
        ("(1", ["1:3: missing ')' at '<EOF>'"]),
        ("f(1 2)", ["1:5: extraneous input '2' expecting ')'"]),
        ("[1", ["1:3: mismatched input '<EOF>' expecting {']', ','}"]),
        ("[1,", ["1:4: missing ']' at '<EOF>'"]),
        ("{1:", ["1:4: mismatched input '<EOF>' expecting {OPERAND}"]),
        ("{1", ["1:3: mismatched input '<EOF>' expecting ':'"]),
        ("a{", ["1:3: mismatched input '<EOF>' expecting {'}', ',', '?', IDENTIFIER, ESC_IDENTIFIER}"]),
        ("a{b 1}", ["1:5: missing ':' at '1'"]),
        ("a ? b c", ["1:7: missing ':' at 'c'"]),
        ("a b", ["1:3: extraneous input 'b' expecting <EOF>"]),
        ("1 2 3", ["1:3: mismatched input '2' expecting <EOF>"]),
        ("a = b", ["1:3: token recognition error at: '= '", "1:5: extraneous input 'b' expecting <EOF>"]),
        ("a =b", ["1:3: token recognition error at: '=b'"]),
    ],
)
def test_syntax_error_has_reference_text(source: str, expected: list[str]) -> None:
    with pytest.raises(CelCompileError) as raised:
        compile_expression(source, base_environment())
    found = re.findall(r"ERROR: <input>:(\d+:\d+): Syntax error: (.*)", str(raised.value))
    assert [f"{at}: {text.replace(OPERAND, 'OPERAND')}" for at, text in found] == expected


def test_syntax_error_after_final_dot_does_not_quote_end_of_input() -> None:
    """The message does not quote the end of the input."""
    with pytest.raises(CelCompileError, match=r"<input>:1:6: Syntax error: no viable alternative at input '\.'\n"):
        compile_expression("self.", base_environment())


def test_error_caret_is_below_column_after_wide_characters() -> None:
    with pytest.raises(CelCompileError) as raised:
        compile_expression("'ä€' == nope\t&& naught", base_environment())
    assert str(raised.value) == (
        "compilation failed: ERROR: <input>:1:9: undeclared reference to 'nope' (in container '')"
        "\n | 'ä€' == nope && naught\n | .．．.....^"
        "\nERROR: <input>:1:17: undeclared reference to 'naught' (in container '')"
        "\n | 'ä€' == nope && naught\n | .．．.............^"
    )


def test_errors_after_the_hundredth_are_truncated() -> None:
    with pytest.raises(CelCompileError, match=r"\n20 more errors were truncated$"):
        compile_expression(f"[{', '.join(['x'] * 120)}]", base_environment())


@pytest.mark.parametrize(
    ("source", "cost"),
    [
        ("1 + 1", 1),
        ("[1, 2, 3].all(x, x > 0)", 16),
        ("[1, 2, 3].exists(i, v, i == 1 && v == 2)", 18),
        ("'hello'.contains('l')", 1),
        ("'hello' == 'world'", 1),
        ("'a' in ['a', 'b']", 0),
        ("1 in [1 / 1, 2]", 13),
        ("true ? [1][0] : 2", 1),
        ("[1, 2][true ? 0 : 1]", 2),
        ("{'a': {'b': 1}}[true ? 'a' : 'c'][?true ? 'b' : 'c'].orValue(0)", 3),
        ("has({'a': 1}.a)", 1),
        ("{'a': 1}[?'a'].orValue(2)", 2),
        ("1 / 0 == 1 || true", 2),
        ("[3, 1, 2].sortBy(x, -x)", 74),
        ("format.dns1123Label().validate('abc')", 9),
        ("cel.bind(x, 'abc'.size(), x + x)", 4),
        ("sets.contains([1, 2, 3], [2])", 4),
        ("optional.none().orValue(1) == 1", 2),
    ],
)
def test_evaluation_cost_equals_upstream(source: str, cost: int) -> None:
    assert compile_expression(source, base_environment()).evaluate()[1] == cost


@pytest.mark.parametrize(
    "context",
    ["{}", "{}[0]", "[{}]", "{{'a': {}}}", "[1][{}[0]]", "{}.sum() + 1", "[{}][?0].value()", "cel.bind(x, {}, x)"],
)
def test_upstream_panic_costs_only_preceding_operations(context: str) -> None:
    source = context.format("[1].slice(1, 0).distinct()")
    with pytest.raises(CelEvalError, match=r"is not traits\.Lister") as raised:
        compile_expression(source, base_environment()).evaluate()
    assert raised.value.cost == compile_expression("[1].slice(0, 1)", base_environment()).evaluate()[1]


@pytest.mark.parametrize(
    ("source", "cost"),
    [
        ("[1, 2].map(x, [x].slice(x - 1, x).distinct())", 78),
        ("{1: 1}.transformMap(k, v, [1].slice(1, 0).distinct())", 14),
    ],
)
def test_upstream_panic_in_loop_costs_preceding_iterations(source: str, cost: int) -> None:
    with pytest.raises(CelEvalError, match=r"is not traits\.Lister") as raised:
        compile_expression(source, base_environment()).evaluate()
    assert raised.value.cost == cost


@pytest.mark.parametrize(
    ("source", "cost"),
    [
        ("lists.range(300).filter(x, lists.range(700).map(y, 'a'.matches('b*')).size() > 0)", 1_000_009),
        ("lists.range(100).transformMap(x, v, lists.range(700).transformList(y, w, [y][?x].orValue(1)))", 1_000_001),
        ("lists.range(2).transformMap(k, v, lists.range(500000).size())", 1_000_041),
    ],
)
def test_cost_limit_error_includes_last_charge(source: str, cost: int) -> None:
    with pytest.raises(CelEvalError, match="actual cost limit exceeded") as raised:
        compile_expression(source, base_environment()).evaluate()
    assert raised.value.cost == cost


def test_expression_reads_declared_variables() -> None:
    environment = build_environment(CURRENT, variables={"numbers": list_of(INT), "limit": INT})
    expression = compile_expression("numbers.filter(n, n < limit).size()", environment)
    assert expression.evaluate({"numbers": [1, 5, 9], "limit": 6})[0] == 2
    with pytest.raises(CelEvalError, match=r"no such attribute\(s\): limit"):
        expression.evaluate({"numbers": [1]})


def test_constant_map_with_unhashable_key_is_a_compile_error() -> None:
    with pytest.raises(CelCompileError, match=r"hash of unhashable type types\.Bytes"):
        compile_expression("{b'': 1} == {} || true", base_environment())
