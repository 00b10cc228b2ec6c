"""Telephone numbers: international ones, and the common ways to write national ones."""

from __future__ import annotations

import re

from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.numbers import DASHES, digits

# ITU-T E.164 country codes. No code is the beginning of another one.
_COUNTRY_CODE = re.compile(
    r"1|7|2(?:0|7|1[12368]|[2346]\d|5[0-8]|9[01789])|3(?:[0123469]|[578]\d)|4(?:[013456789]|2[013])|"
    r"5(?:[1-8]|0\d|9\d)|6(?:[0-6]|7[02-9]|8[0-35-9]|9[0-2])|8(?:[1246]|0[08]|5[02356]|7[0-48]|8[0-368])|"
    r"9(?:[0-58]|6[0-8]|7[0-79]|9[2-68])"
)
# Where numbers within the country all have the same length.
_LENGTHS = {"1": 10, "7": 10, "33": 9, "34": 9, "45": 8, "48": 9, "91": 10, "351": 9, "420": 9}
# Where they may begin with 0 even when called from abroad.
_LEADING_ZERO = frozenset({"39", "225", "229", "241", "242", "378"})

_SEPARATOR = r"(?: [/\-] |[ ./\-])"
_INTERNATIONAL = re.compile(rf"(?:\+|00 ?)\d+(?: ?\(\d{{1,5}}\)[ .\-]?\d+)?(?:{_SEPARATOR}\d+)*")
_NORTH_AMERICAN = re.compile(r"(?:1[ .\-]?)?\(?([2-9]\d\d)\)?[ ./\-]?([2-9]\d\d)[ .\-]\d{4}")
_TRUNK_ZERO = re.compile(
    rf"(?:\(0[1-9]\d{{0,4}}\) ?|0[1-9]\d{{0,4}}{_SEPARATOR})\d{{2,}}(?:([ .\-])\d{{2,}}(?:\1\d{{2,}})*)?"
)
_MOBILE = re.compile(r"0[67]\d{8}|07\d{9}|01[5-7]\d{8,9}")
_OTHER = re.compile(r"\(\d\d\) ?9?\d{4}-\d{4}|1[3-9]\d[ \-]\d{4}[ \-]\d{4}")
# A date and what follows it; an American postal code of nine digits.
_NO_NUMBER = re.compile(r"0\d[.\-]\d\d[.\-](?:19|20)\d\d.*|0\d{4}-\d{4}")
# A place on earth as ISO 6709 writes it, degrees with or without minutes and seconds; and a hardware address.
_COORDINATES = re.compile(r"\+\d{2,6}\.\d+-[01]\d{2,6}\.\d+|\+\d{4}-[01]\d{4}|\+\d{6}-[01]\d{6}")
_DOTTED = re.compile(r"\d{4}(?:\.\d{4}){2,3}")
_DECIMAL = re.compile(r"\+(\d+)\.\d+")

_PLAIN = {ord(dash): "-" for dash in "\u2010\u2012\u2013\u2212"}


def is_phone_number(text: str) -> bool:
    """Is this a number that could be assigned: an international one, or one of a national plan that is supported?"""
    plain = "".join(str(int(char)) if char.isdecimal() else char for char in text.translate(_PLAIN))
    if _COORDINATES.fullmatch(plain.rstrip("/")) or _DOTTED.fullmatch(plain):
        return False
    if plain.startswith(("+", "00")):
        return _INTERNATIONAL.fullmatch(plain) is not None and _is_assigned(plain)
    if found := _NORTH_AMERICAN.fullmatch(plain):
        return not found[1].endswith("11") and not found[2].endswith("11")
    if _TRUNK_ZERO.fullmatch(plain):
        return 9 <= len(digits(plain)) <= 12 and not _NO_NUMBER.fullmatch(plain)
    return bool(_MOBILE.fullmatch(plain) or _OTHER.fullmatch(plain))


def _is_assigned(plain: str) -> bool:
    # +49 (0)30: the zero is dialled only within the country.
    number = digits(plain.replace("(0", "(")).removeprefix("00")
    code = _COUNTRY_CODE.match(number)
    if code is None or not 7 <= len(number) <= 15:
        return False
    # +1.4155552671 is how registries write numbers (RFC 5733), +3.14159265 is none.
    if (point := _DECIMAL.fullmatch(plain)) and point[1] != code[0]:
        return False
    national = number[code.end() :]
    if code[0] == "1" and (national[0] < "2" or national[3:4] < "2"):
        return False
    if national.startswith("0") and code[0] not in _LEADING_ZERO:
        return False
    return len(national) == _LENGTHS.get(code[0], len(national))


_DASH = f"[{DASHES}]"
_GAP = f"[ .{DASHES}]"
_GAPS = f"[ ./{DASHES}]"
_SIGN = f"[./{DASHES}]"
# No part of a longer number, date, amount or version.
_BEFORE = rf"^|[^\dA-Za-z+.,/{DASHES}]|(?:^|\D)[.,/{DASHES}]"
_AFTER = rf"$|[^\dA-Za-z.{DASHES}]|[.{DASHES}](?:$|\D)|[xX]\d"
# Groups that spaces divide also stand in tables and in large numbers: no number before, and none behind. Where the form
# is less common, one of at most two digits may follow, as in "24 hours a day".
_ALONE_BEFORE = rf"^|[^\dA-Za-z+.,/ {DASHES}]|(?:^|\D)[.,/ {DASHES}]"
_ALONE_AFTER = rf"$|[^\dA-Za-z. {DASHES}]|[. {DASHES}](?:$|\D)"
_APART_AFTER = rf"{_ALONE_AFTER}| \d(?:$|\D|\d(?:$|\D))"

PHONE = Detector(
    name="phone",
    label="PHONE",
    title="Telephone number",
    formats=(
        Format(rf"\+[1-9][\d ()./{DASHES}]{{5,24}}\d", r"^|[^\dA-Za-z+]", r"$|[^\dA-Za-z.+\-]|[.+\-](?:$|\D)|[xX]\d"),
        Format(
            rf"00 ?[1-9][\d ()./{DASHES}]{{7,24}}\d",
            rf"^|[^\dA-Za-z+.,:/ {DASHES}]|[A-Za-z][.:]|(?:^|\D) ",
            _APART_AFTER,
        ),
        # (212) 555-0123, 212-555-0123, 1-212-555-0123, 212.555.0123, 212 555-0123
        Format(
            rf"(?:1{_GAP}?)?(?:\([2-9]\d\d\){_GAP}?[2-9]\d\d{_GAP}|[2-9]\d\d{_GAPS}[2-9]\d\d[.{DASHES}])\d{{4}}",
            _BEFORE,
            _AFTER,
        ),
        Format(r"(?:1 )?[2-9]\d\d [2-9]\d\d \d{4}", _ALONE_BEFORE, _ALONE_AFTER),
        # (020) 7946 0958, 07700 900123, 030/123456, 044 668 18 00, 03-1234-5678, 01 23 45 67 89
        Format(
            rf"(?:\(0[1-9]\d{{0,4}}\) ?|0[1-9]\d{{1,4}}{_SIGN}|0[1-9]{_SIGN}\d{{3}})[\d ./{DASHES}]{{3,13}}\d",
            _BEFORE,
            _AFTER,
        ),
        Format(rf"(?:0[1-9]\d{{1,4}} |0[1-9] \d{{3}})[\d ./{DASHES}]{{3,13}}\d", _ALONE_BEFORE, _APART_AFTER),
        Format(rf"0[1-9](?:{_GAP}\d\d){{4}}", _ALONE_BEFORE, _ALONE_AFTER),
        Format(r"0[167]\d{8,10}", _BEFORE, _AFTER),
        # (11) 91234-5678, 138 1234 5678
        Format(rf"\(\d\d\) ?9?\d{{4}}{_DASH}\d{{4}}", _BEFORE, _AFTER),
        Format(rf"1[3-9]\d[ {DASHES}]\d{{4}}[ {DASHES}]\d{{4}}", _ALONE_BEFORE, _ALONE_AFTER),
    ),
    validate=is_phone_number,
    examples=(
        "+14155552671",
        "+1 (415) 555-2671",
        "+44 20 7946 0958",
        "+49 (0)30 901820",
        "+33 1 23 45 67 89",
        "+39 06 6982 1234",
        "+1.4155552671",
        "+91 98765 43210",
        "0049 30 901820",
        "(415) 555-2671",
        "415-555-2671",
        "415.555.2671",
        "415 555 2671",
        "1-800-555-0199",
        "020 7946 0958",
        "07700 900123",
        "030/901820",
        "0171 1234567",
        "01 23 45 67 89",
        "0612345678",
        "03-1234-5678",
        "(11) 91234-5678",
        "138 1234 5678",
    ),
    source=(
        "ITU-T E.164 (international numbers) and E.123 (how they are written), https://www.itu.int/rec/T-REC-E.164; "
        "the North American Numbering Plan, https://www.nanpa.com"
    ),
    note=(
        "National numbers are found where they look like nothing else: North American ones in three parts; those with "
        "a trunk 0 in parts, of 9 to 12 digits; French, Dutch, British and German mobile numbers in one piece; "
        "Brazilian and Chinese mobile numbers in parts. Local numbers without an area code, and North American "
        "ones in one piece, are left out."
    ),
)
