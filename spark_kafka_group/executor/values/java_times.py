"""Dates and timestamps in strings as Spark reads them (``SparkDateTimeUtils``), with Java's time zones and years."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MICROS = 1_000_000
DAY_S = 86_400
SHORT_IDS = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
"""Java's ``ZoneId.SHORT_IDS``."""
NOT_JAVAS = ("right/", "posix/", "posixrules", "localtime", "Factory")
MAX_OFFSET_S = 18 * 3600
TRIMMED = bytes(range(33)) + b"\x7f"
SPACES = "".join(map(chr, range(33)))
YEAR_DIGITS = 6  # of timestamps

Zone = ZoneInfo | timezone

_single_hour = re.compile(r"([+-])(\d):", re.ASCII)
_single_minute = re.compile(r"([+-])(\d\d):(\d)$", re.ASCII)
_offset = re.compile(r"([+-])(?:(\d)|(\d\d)(?:(\d\d)(\d\d)?|:(\d\d)(?::(\d\d))?)?)", re.ASCII).fullmatch
_region = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+").fullmatch
_day = re.compile(rb"([+-]?)(\d{4,7})(?:-(\d\d?)(?:-(\d\d?)(?:[ T].*)?)?)?", re.DOTALL).fullmatch
_integer = re.compile(r"[+-]?\d+").fullmatch


@lru_cache(maxsize=256)
def zone_of(name: str) -> Zone | None:
    """Java's zone of this name, with Spark's short forms of offsets; None if there is none."""
    name = _single_hour.sub(r"\g<1>0\2:", name, count=1)
    name = _single_minute.sub(r"\1\2:0\3", name, count=1)
    name = SHORT_IDS.get(name, name)
    if name == "Z" or name in {"UTC", "GMT", "UT"}:
        return UTC
    if name.startswith(("+", "-")):
        return _fixed(name)
    for prefix in ("UTC", "GMT", "UT"):
        if name.startswith(prefix) and name[len(prefix) : len(prefix) + 1] in ("+", "-"):
            return _fixed(name[len(prefix) :])
    if not _region(name) or name.startswith(NOT_JAVAS):
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _fixed(text: str) -> timezone | None:
    found = _offset(text)
    if not found:
        return None
    sign, hour, hours, minutes, seconds, colon_minutes, colon_seconds = found.groups()
    minutes, seconds = minutes or colon_minutes or "0", seconds or colon_seconds or "0"
    if int(minutes) > 59 or int(seconds) > 59:
        return None
    total = int(hour or hours) * 3600 + int(minutes) * 60 + int(seconds)
    if total > MAX_OFFSET_S:
        return None
    return timezone(timedelta(seconds=-total if sign == "-" else total))


def days_of(year: int, month: int, day: int) -> int | None:
    """Days since 1970-01-01 in the proleptic Gregorian calendar, for any year; None if there is no such day."""
    cycles, of_cycle = divmod(year - 1, 400)
    try:
        return date(of_cycle + 1, month, day).toordinal() - 719_163 + cycles * 146_097
    except ValueError:
        return None


def offset_s(zone: Zone, days: int, second: int) -> int:
    """Of a local time: before the change where a change leaves a gap, and the first of two where it repeats an hour."""
    if isinstance(zone, timezone):
        return int(zone.utcoffset(None).total_seconds())
    # Before the year 1 the offset is that of the zone's first years, and after 9999 rules repeat with the calendar.
    cycles = (days + 719_162) // 146_097
    days -= 146_097 * (cycles if cycles < 0 else max(cycles - 23, 0))
    local = datetime(1970, 1, 1) + timedelta(days=days, seconds=second)
    offset = zone.utcoffset(local)
    assert offset is not None
    return int(offset.total_seconds())


def steady_offset(zone: Zone, days: int, seconds: Iterable[int]) -> int | None:
    """The zone's offset where it is the same for each of these local times of a day; else None."""
    found = {offset_s(zone, days, second) for second in seconds}
    return found.pop() if len(found) == 1 else None


def date_of(text: str) -> int | None:
    """Days since 1970-01-01, as from_json reads a DATE; None if it cannot."""
    found = _date(text.encode("utf-8", "replace"))
    if found is None and "GMT" in text:
        found = _date(text.replace("GMT", "").encode("utf-8", "replace"))
    if found is None and _integer(text):
        # what Spark 1.5 wrote: days
        digits = text.lstrip("+-").lstrip("0")
        number = int(digits or "0") if len(digits) <= 10 else 2**40
        number = -number if text.startswith("-") else number
        return _julian_to_gregorian(number) if -(2**31) <= number < 2**31 else None
    return found


def _date(text: bytes) -> int | None:
    found = _day(text.strip(TRIMMED))
    if not found:
        return None
    sign, year, month, day = found.groups()
    days = days_of(-int(year) if sign == b"-" else int(year), int(month or 1), int(day or 1))
    return days if days is not None and -(2**31) <= days < 2**31 else None


def _julian_to_gregorian(days: int) -> int | None:
    """Days of the calendar that Java had, to those of the day with the same date in the Gregorian one."""
    if days >= -141_427:  # 1582-10-15
        return days
    # the Julian calendar: 1461 days in four years, from 0000-03-01, which is two days before the Gregorian one
    since = days + 719_470
    cycles, of_cycle = divmod(since, 1461)
    years = min(of_cycle // 365, 3)
    of_year = of_cycle - 365 * years
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5
    year = 4 * cycles + years + (month >= 10)
    first = days_of(year, month + 3 if month < 10 else month - 9, 1)
    assert first is not None
    found = first + day
    return found if found >= -(2**31) else None


def timestamp_of(text: str, zone: Zone, now: Callable[[], float]) -> int | None:
    """Microseconds since 1970-01-01 UTC, as from_json reads a TIMESTAMP; None if it cannot."""
    found = _timestamp(text, zone, now)
    if found is None and "GMT" in text:
        found = _timestamp(text.replace("GMT", ""), zone, now)
    return found


def _timestamp(text: str, zone: Zone, now: Callable[[], float]) -> int | None:
    parts = _parts(text.encode("utf-8", "replace"))
    if parts is None:
        return None
    day, second, micros, name = parts
    if name is not None:
        own = zone_of(name)
        if own is None:
            return None
        zone = own
    if day is None:
        day = (datetime.fromtimestamp(now(), UTC).astimezone(zone).date() - date(1970, 1, 1)).days
    total = (day * DAY_S + second - offset_s(zone, day, second)) * MICROS + micros
    return total if -(2**63) <= total < 2**63 else None


def local_timestamp_of(text: str) -> int | None:
    """Microseconds since 1970-01-01, as from_json reads a TIMESTAMP_NTZ; None if it cannot, or there is a zone."""
    parts = _parts(text.encode("utf-8", "replace"))
    if parts is None:
        return None
    day, second, micros, name = parts
    if day is None or name is not None:
        return None
    total = (day * DAY_S + second) * MICROS + micros
    return total if -(2**63) <= total < 2**63 else None


def _parts(text: bytes) -> tuple[int | None, int, int, str | None] | None:
    """Day (None: only a time), second of the day, microseconds, and the zone's name."""
    found = _segments(text)
    if found is None:
        return None
    (year, month, day, hour, minute, second, micros), zone, only_time = found
    if hour > 23 or minute > 59 or second > 59:
        return None
    days = None
    if not only_time:
        days = days_of(year, month, day)
        if days is None:
            return None
    return days, hour * 3600 + minute * 60 + second, micros, zone


def _segments(text: bytes) -> tuple[list[int], str | None, bool] | None:  # noqa: C901
    """Spark's steps through ``[+-]yyyy-[m]m-[d]d[ T][h]h:[m]m:[s]s.ffffff[zone]`` and the parts of it that it takes."""
    # One loop as Spark's: what a character means depends on all that were read before it.
    start = len(text) - len(text.lstrip(TRIMMED))
    text = text.rstrip(TRIMMED)
    if start >= len(text):
        return None
    segments = [1, 1, 1, 0, 0, 0, 0]
    zone: str | None = None
    only_time = False
    sign = 0
    at, index, digits = start, 0, bytearray()
    if text[at] in b"+-":
        sign = -1 if text[at] == ord("-") else 1
        at += 1

    def fits(segment: int) -> bool:
        if segment == 0:
            return 4 <= len(digits) <= YEAR_DIGITS
        return segment in (6, 7) or 1 <= len(digits) <= 2

    while at < len(text):
        byte = text[at : at + 1]
        if byte in (b"0", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9"):
            digits += byte
            at += 1
            continue
        segment = index
        if at == 0 and byte == b"T":
            only_time = True
            index = 3
            at += 1
            continue
        if index < 2 and byte == b"-":
            index += 1
        elif index == 0 and byte == b":" and not sign:
            only_time = True
            segment, index = 3, 4
        elif (index == 2 and byte in (b" ", b"T")) or (index in (3, 4) and byte == b":"):
            index += 1
        elif index == 5 and byte == b".":
            index = 6
        elif index in (5, 6):
            zone = text[at:].decode("utf-8", "replace").strip(SPACES)
            at, index = len(text), 7
        else:
            return None
        if not fits(segment):
            return None
        segments[segment] = int(digits[:6].ljust(6, b"0") if segment == 6 else digits)
        digits.clear()
        at += 1
    if not fits(index):
        return None
    if index < 7:
        segments[index] = int((digits[:6].ljust(6, b"0") if index == 6 else digits) or b"0")
    if sign:
        segments[0] *= sign
    return segments, zone, only_time
