"""Quantities: parsing, canonical form, arithmetic, and the reference's 64-bit results."""

import copy
import math
from decimal import ROUND_UP, Decimal, localcontext

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resourceapi.objects import Quantity, QuantityError
from tests.cases import Case, recorded

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-3"]
FACTORS = {
    "n": "1e-9",
    "u": "1e-6",
    "m": "1e-3",
    "k": "1e3",
    "M": "1e6",
    "G": "1e9",
    "T": "1e12",
    "P": "1e15",
    "E": "1e18",
}

numbers = st.from_regex(r"\A[+-]?[0-9]{1,25}(\.[0-9]{0,12})?\Z")
quantities = st.builds(lambda number, suffix: Quantity.parse(number + suffix), numbers, st.sampled_from(SUFFIXES))


@recorded("quantity/quantities.json")
def test_recorded_upstream_quantities_are_reproduced(case: Case) -> None:
    case.run()


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("0", "0"),
        ("1.5", "1500m"),
        ("1.5Gi", "1536Mi"),
        ("1024Mi", "1Gi"),
        ("1023", "1023"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("0.5Ki", "512"),
        ("0.5Mi", "512Ki"),
        ("0.0001Ki", "102400u"),
        ("1e3", "1e3"),
        ("10e3", "10e3"),
        ("100Ei", "9223372036854775807"),
        ("12345.67M", "12345670k"),
        ("1000E", "1e21"),
        ("1000000000000000000000000", "1e24"),
    ],
)
def test_quantity_is_printed_in_canonical_form(text: str, canonical: str) -> None:
    assert str(Quantity.parse(text)) == canonical


@pytest.mark.parametrize("text", ["", " 1", "1 ", "1_0", "1.2.3", "0x1", "NaN", "inf", "1KiB", "٣", "1\n", "\0"])
def test_malformed_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError) as raised:
        Quantity.parse(text)
    assert str(raised.value) == WRONG_FORMAT


@pytest.mark.parametrize("text", ["--1", "1ki", "1i", "1KiMi", "1e99999999999999999999", "1e", "1e-"])
def test_invalid_suffix_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^unable to parse quantity's suffix$"):
        Quantity.parse(text)


@pytest.mark.parametrize("text", ["Pi", ".Ei", "9" * 5000, "12345678901234567890e2000000000"])
def test_invalid_number_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match=r"^unable to parse numeric part of quantity$"):
        Quantity.parse(text)


def test_huge_texts_and_exponents_take_bounded_time() -> None:
    for text in ("0" * 200_000 + "x", "1e" + "9" * 200_000, "k" * 200_000, "." * 200_000):
        with pytest.raises(QuantityError):
            Quantity.parse(text)
    huge = Quantity.parse("1e2000000000")
    assert huge > Quantity.parse("1E")
    assert huge.value() == 0
    assert huge.as_float() == math.inf
    assert huge.as_int64() is None
    assert str(huge) == "100e1999999998"
    with pytest.raises(QuantityError, match="too far apart"):
        huge + Quantity.parse("1")
    for text in (
        "0e2000000000",
        "0.0e2000000000",
        "-0e2000000000",
        "0e-2000000000",
        "0.000e-2000000000",
        "1e-2000000000",
    ):
        assert Quantity.parse(text).value() == Quantity.parse(text).milli_value() == (text[0] == "1")
        assert Quantity.parse(text) + Quantity.parse("1n") <= Quantity.parse("2n")
    steps = (Quantity.parse(f"1e{exponent}") for exponent in range(5000, 0, -500))
    with pytest.raises(QuantityError, match="too large"):
        sum(steps, start=Quantity.parse("1e5500"))


def test_equality_order_and_hash_depend_on_value() -> None:
    ordered = [
        Quantity.parse(text) for text in ("-1Gi", "-1", "0", "1n", "999m", "1", "50M", "50Mi", "1e2000", "1e2001")
    ]
    assert sorted(set(ordered)) == ordered
    for index, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            assert left.compare(right) == (index > other) - (index < other)
            assert (left <= right, left >= right) == (index <= other, index >= other)
    same = [Quantity.parse(text) for text in ("200M", "0.2G", "200000000", "200000000.000", "2e8")]
    assert len(set(same)) == 1
    assert Quantity.parse("1e2000") == Quantity.parse("10e1999")
    assert hash(Quantity.parse("1e2000")) == hash(Quantity.parse("10e1999"))
    assert Quantity.parse("1") != 1
    assert not Quantity.parse("0Ki")


def test_is_identical_distinguishes_equal_values_in_other_notation() -> None:
    assert Quantity.parse("1Ki").is_identical(Quantity.parse("1Ki"))
    assert not Quantity.parse("1Ki").is_identical(Quantity.parse("1024"))
    printed = Quantity.parse("2048Ki")
    str(printed)
    assert printed.is_identical(Quantity.parse("2048Ki"))
    big = Quantity.parse("9.5Ei")
    assert not big.is_identical(big)


def test_sum_has_format_of_first_nonzero_quantity() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1G")) == "2073741824"
    assert str(Quantity.parse("1Gi") + Quantity.parse("24Mi")) == "1048Mi"
    assert str(Quantity.parse("0") + Quantity.parse("1Gi")) == "1Gi"
    assert str(Quantity.parse("0") - Quantity.parse("1Gi")) == "-1Gi"
    assert str(Quantity.parse("50k") + Quantity.parse("20")) == "50020"
    total = Quantity.of(2**63 - 1) + Quantity.of(1)
    assert str(total) == "9223372036854775808"
    assert total.as_int64() is None
    assert total.value() == -(2**63)  # wraps like the reference


def test_sum_with_zero_keeps_64_bit_results() -> None:
    zero = Quantity.of(0)
    narrow, wide = Quantity.parse("1e25"), Quantity.parse("100Ei")
    assert (narrow + zero).value() == narrow.value() == 0
    assert (wide + zero).as_int64() is wide.as_int64() is None
    assert (zero + wide).as_int64() is None


def test_arithmetic_does_not_change_operands() -> None:
    quantity = Quantity.parse("9999999999999999999999")
    assert quantity + Quantity.parse("1") < quantity + Quantity.parse("2")
    assert str(quantity) == "9999999999999999999999"
    assert copy.deepcopy(quantity) == quantity


def test_quantity_is_built_from_number_and_exponent() -> None:
    assert str(Quantity.of(2**31, "BinarySI")) == "2Gi"
    assert str(Quantity.of(15, exponent=-1)) == "1500m"
    assert repr(Quantity.of(7)) == "Quantity.parse('7')"
    with pytest.raises(QuantityError):
        Quantity.of(1, exponent=-10)


def test_integer_value_is_rounded_away_from_zero() -> None:
    assert [Quantity.parse(text).value() for text in ("1.1", "-1.1", "1m", "-1m", "0")] == [2, -2, 1, -1, 0]
    assert Quantity.parse("1u").milli_value() == 1


@given(quantities)
def test_parsing_canonical_form_returns_same_quantity(quantity: Quantity) -> None:
    parsed = Quantity.parse(str(quantity))
    assert parsed == quantity
    assert str(parsed) == str(quantity)


@given(numbers, st.sampled_from(sorted(FACTORS)))
def test_decimal_value_is_exact_in_nano_units(number: str, suffix: str) -> None:
    with localcontext(prec=200):
        nanos = (Decimal(number) * Decimal(FACTORS[suffix]) * 10**9).to_integral_value(ROUND_UP)
    assert Quantity.parse(number + suffix) == Quantity.of(int(nanos), exponent=-9)


@given(quantities, quantities, quantities)
def test_addition_and_comparison_obey_arithmetic_laws(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert (a - b).sign == a.compare(b)
    assert a.compare(b) == -b.compare(a)


@given(st.text(max_size=20))
def test_any_text_is_parsed_as_quantity_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantityError:
        return
    assert Quantity.parse(str(quantity)) == quantity
