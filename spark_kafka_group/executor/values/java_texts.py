"""Numbers, dates and timestamps as to_json writes them: Java's text of floats and decimals, and Spark's of times."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from spark_kafka_group.executor.values.java_numbers import float_of, text_of_digits
from spark_kafka_group.executor.values.java_times import DAY_S, MICROS, Zone

CYCLE_DAYS, CYCLE_YEARS = 146_097, 400
EPOCH_DAY = 719_162  # days before it since 0001-01-01
NANOS = 1_000_000_000


def float_as_text(value: float) -> str:
    """Java's ``Float.toString``, of Java 19 and newer: as few digits as tell a float of 32 bits, and two at least."""
    if value != value or value in (float("inf"), float("-inf")) or value == 0:
        return text_of_digits(value, "0")
    for more in range(1, 9):
        found = [text for text in _near(abs(value), more) if float_of(text) == abs(value)]
        if found:
            break
    nearest = min(found, key=lambda text: abs(float(text) - abs(value)))
    return text_of_digits(value, nearest)


def _near(value: float, more: int) -> list[str]:
    """The decimals next to `value` that have `more` digits behind the first."""
    digits, _, exponent = f"{value:.{more}e}".partition("e")
    number = int(digits.replace(".", ""))
    return [f"{near}e{int(exponent) - more}" for near in (number, number - 1, number + 1)]


def decimal_as_text(unscaled: int, scale: int) -> str:
    """Java's ``BigDecimal.toString``, which has an exponent where there are many zeros behind the point."""
    sign, digits = "-" if unscaled < 0 else "", str(abs(unscaled))
    exponent = len(digits) - 1 - scale
    if scale == 0:
        return sign + digits
    if scale > 0 and exponent >= -6:
        digits = digits.rjust(scale + 1, "0")
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{sign}{digits[0]}{fraction}E{exponent:+d}"


def date_as_text(days: int) -> str:
    """A date, by days since 1970-01-01: ``yyyy-MM-dd``, with a sign before years beyond 9999."""
    cycles, of_cycle = divmod(days + EPOCH_DAY, CYCLE_DAYS)
    day = datetime(1, 1, 1) + timedelta(days=of_cycle)
    year = day.year + CYCLE_YEARS * cycles
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{day.month:02d}-{day.day:02d}"


def local_as_text(micros: int) -> str:
    """A timestamp without zone: ``yyyy-MM-ddTHH:mm:ss.SSS``; what is behind milliseconds is left out."""
    seconds, rest = divmod(micros, MICROS)
    days, second = divmod(seconds, DAY_S)
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{date_as_text(days)}T{clock}.{rest // 1000:03d}"


def instant_as_text(micros: int, zone: Zone) -> str:
    """A timestamp in a zone, with the zone's offset behind it."""
    offset, _, _ = utc_offset(zone, micros // MICROS)
    return local_as_text(micros + offset * MICROS) + offset_as_text(offset)


def offset_as_text(offset: int) -> str:
    """An offset from UTC: ``Z``, ``+HH:mm``, or with seconds, as zones had before they had a standard time."""
    minutes, seconds = divmod(abs(offset), 60)
    behind = f":{seconds:02d}" if seconds else ""
    return "Z" if not offset else f"{'-' if offset < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}{behind}"


def time_as_text(nanos: int) -> str:
    """A time of a day, with as many digits of a second as there are."""
    second, rest = divmod(nanos, NANOS)
    fraction = f".{rest:09d}".rstrip("0") if rest else ""
    return f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}{fraction}"


def utc_offset(zone: Zone, second: int) -> tuple[int, int, int]:
    """The offset of a zone at a second since the epoch, and the span of seconds of its day that has the same one."""
    first = second - second % DAY_S
    end, offset = first + DAY_S, _offset(zone, second)
    if _offset(zone, first) == _offset(zone, end - 1) == offset:
        return offset, first, end
    low, high = first, end - 1  # one of them has another offset: the change between
    before = _offset(zone, first)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return (offset, first, high) if second < high else (offset, high, end)


def _offset(zone: Zone, second: int) -> int:
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    # Rules repeat with the calendar, and the first years of it have the offset of those before them.
    days, of_day = divmod(second, DAY_S)
    cycle = (days + EPOCH_DAY) // CYCLE_DAYS
    days += CYCLE_DAYS * (min(max(cycle, 1), 23) - cycle)
    utc = datetime(1970, 1, 1) + timedelta(days=days, seconds=of_day)
    offset = zone.utcoffset(zone.fromutc(utc.replace(tzinfo=zone)))
    assert offset is not None
    return int(offset.total_seconds())
