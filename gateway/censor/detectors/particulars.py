"""Particulars of people and places: dates of birth, and positions on earth."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.numbers import DASHES

_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january jan januar janvier enero gennaio janeiro januari",
            "february feb februar février febrero febbraio fevereiro februari",
            "march mar märz mars marzo março maart",
            "april apr avril abril aprile",
            "may mai mayo maggio maio mei",
            "june jun juni juin junio giugno junho",
            "july jul juli juillet julio luglio julho",
            "august aug août agosto augustus",
            "september sep sept septembre septiembre settembre setembro",
            "october oct oktober octobre octubre ottobre outubro okt",
            "november nov novembre noviembre novembro",
            "december dec dezember décembre diciembre dicembre dezembro dez",
        ),
        start=1,
    )
    for name in names.split()
}
_NUMBER_OR_NAME = re.compile(r"\d+|[^\W\d_]{3,}")
_BORN_ON = (
    r"(?:(?i:born(?: on)?|date[ _]?of[ _]?birth|birth[ _]?date|birthday|geboren(?: am| op)?|geburtsdatum|née?(?: le)?"
    r"|nacid[oa](?: el)?|date de naissance|fecha de nacimiento|data d[ei] nas[a-z]{4,7}|nascid[oa](?: em)?|nat[oa] il"
    r"|geboortedatum)|\b[Gg]eb\.|\bDOB|\bD\.O\.B\.)"
)
_BORN = (
    rf"{_BORN_ON}[\"'`*]{{0,3}}(?:[ \t]?[:=][\"'` \t*]{{0,4}}|[ \t]{{0,20}}\|[ \t]{{0,20}}|[ \t]{{1,2}})"
    r"(?:(?i:is|the|in|on|am) ){0,2}[\"'`]?"
)
_SIGN = rf"[./{DASHES}]"


def is_birth_date(text: str) -> bool:
    """Is there a day, a month and a year of the last two centuries, in one of the orders in use?"""
    parts = [part.lower() for part in _NUMBER_OR_NAME.findall(text)]
    named = [_MONTHS.get(part, 0) for part in parts if not part.isdigit()]
    numbers = [int(part) for part in parts if part.isdigit()]
    if named:
        month, (day, year) = named[0], sorted(numbers) if len(numbers) == 2 else (0, 0)
        return len(named) == 1 and _is_date(year, month, day)
    if len(numbers) != 3:
        return False
    if numbers[0] > 31:
        return _is_date(*numbers)
    first, second, year = numbers
    year += 1900 * (year < 100)
    return _is_date(year, second, first) or _is_date(year, first, second)


def _is_date(year: int, month: int, day: int) -> bool:
    return 1850 <= year <= date.max.year and 1 <= month <= 12 and 1 <= day <= monthrange(year, month)[1]


DATE_OF_BIRTH = Detector(
    name="date_of_birth",
    label="DATE_OF_BIRTH",
    title="Date of birth",
    formats=(
        Format(
            rf"[0-9]{{4}}{_SIGN}[0-9]{{1,2}}{_SIGN}[0-9]{{1,2}}"
            rf"|[0-9]{{1,2}}{_SIGN} ?[0-9]{{1,2}}{_SIGN} ?(?:[0-9]{{2}}){{1,2}}"
            r"|[0-9]{1,2}(?:st|nd|rd|th|\.|º|er)? (?:de |of )?[^\W\d_]{3,10}\.?,? (?:de )?[0-9]{4}"
            r"|[A-Z][a-z]{2,8}\.? [0-9]{1,2}(?:st|nd|rd|th)?,? [0-9]{4}"
            r"|[0-9]{1,2}-[A-Z][a-z]{2,8}-[0-9]{4}",
            _BORN,
            rf"$|[^\dA-Za-z{DASHES}./]|[.{DASHES}/](?:$|\D)",
        ),
    ),
    validate=is_birth_date,
    introduction="born on ",
    examples=(
        "1980-03-12",
        "12.03.1980",
        "03/12/1980",
        "12 March 1980",
        "12th of March 1980",
        "March 12, 1980",
        "12. März 1980",
    ),
    source="ISO 8601 (numeric dates), https://www.iso.org/iso-8601-date-and-time-format.html",
    note=(
        "After words such as born on, date of birth, DOB, geboren am, né le or fecha de nacimiento. A year alone is "
        "left out. Dates of birth of people in encyclopedias are found, too."
    ),
)

_SECONDS = r"[0-9]{1,2}(?:\.[0-9]{1,4})?(?:[\"”]|[″′'’]{1,2}) ?"
_MINUTES = rf"[0-9]{{1,2}}(?:\.[0-9]{{1,6}})?[′'’] ?(?:{_SECONDS})?"
_DEGREES = rf"[0-9]{{1,3}}(?:\.[0-9]{{1,8}})?[°º] ?(?:{_MINUTES})?"
_DECIMAL = r"[+\-\u2212]?[0-9]{1,3}\.[0-9]{3,15}"
_IS = r"[\"'`*)]{0,3}(?: (?:is|are|at))?[ \t]{0,20}[:=|]?[*]{0,2}[ \t]{0,20}[\[({\"'`]{0,2}"
_BOTH = (
    r"(?:(?i:geo:|lat(?:itude)?[/, ]{1,3}(?:lon|lng|long|longitude)|latl(?:on|ng)|koordinaten"
    r"|coord(?:inate|onnée|enada)?s?|gps(?: position)?"
    rf"|position|location|/@|[?&]q=|[?&]ll=){_IS})"
)
_ONE = rf"(?:^|[^A-Za-z])(?i:lat(?:itude)?|lon(?:gitude)?|lng){_IS}"
_AFTER = r"$|[^\dA-Za-z.]|\.(?:$|\D)"
_NUMBER = re.compile(r"[+\-]?[0-9]+(?:\.[0-9]+)?")


def is_position(text: str) -> bool:
    """Is this a latitude and then a longitude, or one of them?"""
    numbers = map(float, _NUMBER.findall(text))
    return all(abs(number) <= limit for number, limit in zip(numbers, (90, 180), strict=False))


def is_position_in_degrees(text: str) -> bool:
    """Are degrees, minutes and seconds where they may be?"""
    halves = re.split("(?<=[NSns])", text, maxsplit=1)
    parts = [list(map(float, re.findall(r"[0-9]+(?:\.[0-9]+)?", half))) for half in halves]
    return all(
        half and half[0] <= limit and max(half[1:], default=0) < 60
        for half, limit in zip(parts, (90, 180), strict=False)
    )


def is_position_with_letters(text: str) -> bool:
    """Are degrees, and minutes if there are some, where they may be?"""
    numbers = list(map(float, re.findall(r"[0-9]+(?:\.[0-9]+)?", text)))
    limits = (90, 180) if len(numbers) == 2 else (90, 60, 180, 60)
    return len(numbers) in (2, 4) and all(number <= limit for number, limit in zip(numbers, limits, strict=True))


COORDINATES = Detector(
    name="coordinates",
    label="COORDINATES",
    title="Position on earth",
    formats=(
        Format(
            rf"{_DEGREES}[NSns][,;/]? {{0,2}}{_DEGREES}[EWew]",
            r"^|[^0-9A-Za-z.]",
            r"$|[^A-Za-z0-9]",
            is_position_in_degrees,
        ),
        Format(
            r"[NS] ?[0-9]{1,2}(?:\.[0-9]{3,8}|° ?[0-9]{1,2}(?:\.[0-9]{1,6})?['′]?),? ?"
            r"[EW] ?[0-9]{1,3}(?:\.[0-9]{3,8}|° ?[0-9]{1,2}(?:\.[0-9]{1,6})?['′]?)"
            r"|[0-9]{1,2}\.[0-9]{3,8} ?[NS],? ?[0-9]{1,3}\.[0-9]{3,8} ?[EW]",
            r"^|[^0-9A-Za-z.]",
            r"$|[^A-Za-z0-9]",
            is_position_with_letters,
        ),
        Format(rf"{_DECIMAL}[,;] ?{_DECIMAL}", _BOTH, _AFTER, is_position),
        Format(_DECIMAL, _ONE, _AFTER),
        # ISO 6709: +40.7128-074.0060/
        Format(
            r"[+\-][0-9]{2}\.[0-9]{2,8}[+\-][01][0-9]{2}\.[0-9]{2,8}(?:[+\-][0-9.]{1,8})?(?:CRS[A-Z0-9_]{3,12})?/",
            r"^|[^0-9A-Za-z.+\-]",
            "",
            is_position,
        ),
    ),
    validate=None,
    examples=(
        "40°42'46\"N 74°00'22\"W",
        "40.7128° N, 74.0060° W",
        "48°51′30″N, 2°17′40″E",
        "+40.7128-074.0060/",
    ),
    source="ISO 6709 (representation of points), RFC 5870 (geo addresses), https://www.iso.org/standard/75147.html",
    note=(
        "With degrees and letters for north and east, in ISO 6709, and as decimal numbers of three places or more "
        "after words such as latitude, coordinates, GPS, geo: or location. Two numbers alone are left out."
    ),
)
