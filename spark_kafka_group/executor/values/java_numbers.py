"""Numbers as Java reads and writes them: decimals, floats of 32 bits, and a double as text."""

from __future__ import annotations

import re
import struct
from decimal import Decimal
from fractions import Fraction

_decimal = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?)(\d+))?").fullmatch
MAX_EXPONENT_DIGITS = 10
INT_MAX = 2**31 - 1

_FLOAT_MAX = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]
_TO_INFINITY = 2.0**128 - 2.0**103
"""Half a step above the largest float: from here on Java rounds to infinity."""


def decimal_of(text: str, precision: int, scale: int) -> Decimal | None:
    """Java's ``BigDecimal`` of `text`, rounded half up to `scale`; None if it is none, or has more than `precision`.

    No number is made of the digits before they are known to be few.
    """
    found = _decimal(text)
    if found is None:
        return None
    sign, digits, minus, exponent_digits = found.groups()
    exponent = 0
    if exponent_digits:
        stripped = exponent_digits.lstrip("0")
        if len(exponent_digits) > MAX_EXPONENT_DIGITS and len(stripped) > MAX_EXPONENT_DIGITS:
            return None
        exponent = int(stripped or "0") * (-1 if minus == "-" else 1)
    whole, _, fraction = digits.partition(".")
    if not -INT_MAX <= len(fraction) - exponent <= INT_MAX:
        return None
    digits = (whole + fraction).lstrip("0")
    # the value is 0.digits times ten to the power of `point`
    point = exponent - len(fraction) + len(digits)
    kept = point + scale
    if not digits or kept < 0:
        unscaled = 0
    elif kept > precision:
        return None
    else:
        unscaled = int(digits[:kept].ljust(kept, "0") or "0") + (len(digits) > kept and digits[kept] >= "5")
    if unscaled >= 10**precision:
        return None
    return Decimal((int(sign == "-" and unscaled > 0), tuple(map(int, str(unscaled))), -scale))


def float_of(text: str) -> float:
    """Java's ``Float.parseFloat``: one rounding, from the digits to 32 bits."""
    near = float(text)
    if abs(near) >= _TO_INFINITY:
        return float("inf") if near > 0 else float("-inf")
    if near in (0.0, float("inf"), float("-inf")):
        return near
    rounded: float = _FLOAT_MAX if near > _FLOAT_MAX else -_FLOAT_MAX if near < -_FLOAT_MAX else _as_float(near)
    error = abs(rounded - near)
    other = _neighbour(rounded, near > rounded)
    if error and other is not None and abs(other - near) == error:
        # `near` is half way between two floats, and may be rounded itself
        exact, middle = Fraction(text), Fraction(near)
        if exact != middle:
            return max(rounded, other) if exact > middle else min(rounded, other)
    return rounded


def _as_float(value: float) -> float:
    found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    return found


def _neighbour(value: float, up: bool) -> float | None:
    (bits,) = struct.unpack("<i", struct.pack("<f", value))
    if value == 0.0:
        bits = 1 if up else -(2**31) + 1
    else:
        bits += 1 if up == (value > 0) else -1
    found: float = struct.unpack("<f", struct.pack("<i", bits))[0]
    return found if abs(found) <= _FLOAT_MAX else None


def double_as_text(value: float) -> str:
    """Java's ``Double.toString``, of Java 19 and newer: as few digits as tell the value, and two at least."""
    if value != value or value in (float("inf"), float("-inf")):
        return text_of_digits(value, "0")
    shortest = Decimal(repr(value)).normalize()
    return text_of_digits(value, str(abs(shortest)) if len(shortest.as_tuple().digits) > 1 else f"{abs(value):.1e}")


def text_of_digits(value: float, digits: str) -> str:
    """Java's text of a number that has these digits, or is not finite."""
    if value != value:
        return "NaN"
    minus = "-" if str(value)[0] == "-" else ""
    if value in (float("inf"), float("-inf")):
        return f"{minus}Infinity"
    _, figures, exponent = Decimal(digits).as_tuple()
    text = "".join(map(str, figures)).strip("0")
    assert isinstance(exponent, int)
    point = exponent + len(figures) if text else 1
    text = text or "0"
    if text == "0" or 1e-3 <= abs(value) < 1e7:
        if point <= 0:
            return f"{minus}0.{'0' * -point}{text}"
        return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
