"""Numbers with a check: payment cards, bank accounts, US social security numbers.

Digits are those of any script, since a model can be asked for Arabic or Devanagari ones; hyphens are also the
typographic ones that models like to print. The width fold has already turned full-width digits and the other spaces
and hyphens into plain ones.
"""

from __future__ import annotations

from typing import NamedTuple

from stdnum import ean, iban, luhn
from stdnum.us import ssn

from gateway.censor.detectors.model import Detector, Format

# Inside a class: hyphen-minus, hyphen, figure dash, en dash, minus sign.
DASHES = r"\-\u2010\u2012\u2013\u2212"


def digits(text: str) -> str:
    """The decimal digits of `text`, of whatever script, as ASCII."""
    return "".join(str(int(char)) for char in text if char.isdecimal())


class _Range(NamedTuple):
    """Issuer identification numbers, by their first six digits, and how many digits the numbers below them have."""

    low: int
    high: int
    lengths: frozenset[int]


def _range(low: str, high: str, *lengths: int) -> _Range:
    return _Range(int(low.ljust(6, "0")), int(high.ljust(6, "9")), frozenset(lengths))


_ISSUERS = (
    _range("4", "4", 13, 16, 19),  # Visa
    _range("51", "55", 16),  # Mastercard
    _range("2221", "2720", 16),
    _range("34", "34", 15),  # American Express
    _range("37", "37", 15),
    _range("300", "305", 14, 16, 17, 18, 19),  # Diners Club
    _range("3095", "3095", 14, 16, 17, 18, 19),
    _range("36", "36", 14, 15, 16, 17, 18, 19),
    _range("38", "39", 14, 16, 17, 18, 19),
    _range("3528", "3589", 16, 17, 18, 19),  # JCB
    _range("6011", "6011", 16, 17, 18, 19),  # Discover
    _range("644", "659", 16, 17, 18, 19),
    _range("62", "62", 16, 17, 18, 19),  # UnionPay
    _range("81", "82", 16, 17, 18, 19),  # UnionPay, RuPay
    _range("60", "60", 16),  # RuPay
    _range("508", "508", 16),
    *(_range(low, high, *range(12, 20)) for low, high in (("5018", "5018"), ("5020", "5020"), ("5038", "5038"))),
    *(_range(low, high, *range(12, 20)) for low, high in (("5893", "5893"), ("6304", "6304"), ("6759", "6763"))),
    _range("5019", "5019", 16),  # Dankort
    _range("2200", "2204", 16, 17, 18, 19),  # Mir
    _range("506099", "506198", 16, 18, 19),  # Verve
    _range("506699", "506778", 16),  # Elo
    _range("509", "509", 16),
    _range("636297", "636368", 16),
    _range("9792", "9792", 16),  # Troy
)


def is_card_number(text: str) -> bool:
    """Is this a number of a known issuer, of a length it uses, with a right check digit? Goods from Germany to
    Japan have 13 digits that begin with a 4 and a check digit of another kind."""
    number = digits(text)
    issuer = int(number[:6])
    if len(number) == 13 and ean.is_valid(number):
        return False
    known = any(each.low <= issuer <= each.high and len(number) in each.lengths for each in _ISSUERS)
    return known and luhn.is_valid(number)


def is_iban(text: str) -> bool:
    """Length and structure of the country, and check digits. Checks within a national account number are left out:
    they would turn away accounts of banks that do not follow them."""
    return iban.is_valid(text, check_country=False)


def is_social_security_number(text: str) -> bool:
    number = digits(text)
    return ssn.is_valid(f"{number[:3]}-{number[3:5]}-{number[5:]}")


_GAP = f"[ {DASHES}]"

# No further digit, and no decimal point between digits.
# Nor the digits of a hexadecimal number: letters before it begin a word, or are none of those digits.
_NUMBER_BEFORE = r"^|[^\dA-Za-z.]|(?:^|\D)\.|[G-WYZg-wyz]|(?:^|[^0])[xX]|(?:^|[^\dA-Za-z])[A-Za-z]+"
_NUMBER_AFTER = r"$|[^\d.]|\.(?:$|\D)"
# Rows of groups of four stand in tables, where each tenth row of four has a right check digit. So a card may follow one
# such group, or other cards, and not stand just anywhere in a row.
_ROW_BEFORE = rf"^|[^\d. {DASHES}]|(?:^|\D)[. {DASHES}]"
_GROUP_BEFORE = (
    rf"{_ROW_BEFORE}|(?:^|\D)(?:\d{{1,3}}|\d{{5,}}){_GAP}"
    rf"|(?:{_ROW_BEFORE})(?:\d{{4}}{_GAP}|(?:(?:\d{{4}}{_GAP}){{4}})+)"
)

CREDIT_CARD = Detector(
    name="credit_card",
    label="CREDIT_CARD",
    title="Payment card number",
    formats=(
        Format(r"\d{12,19}", _NUMBER_BEFORE, _NUMBER_AFTER),
        # As printed: 4-4-4-4 with up to three more digits, 4-4-5, 4-6-4, 4-6-5 and 6-13.
        Format(
            rf"\d{{4}}(?:{_GAP}\d{{4}}){{2}}{_GAP}(?:\d{{2,4}}|\d{{4}}{_GAP}\d{{1,3}})",
            _GROUP_BEFORE,
            _NUMBER_AFTER,
        ),
        Format(rf"\d{{4}}{_GAP}(?:\d{{4}}{_GAP}\d{{5}}|\d{{6}}{_GAP}\d{{4,5}})", _GROUP_BEFORE, _NUMBER_AFTER),
        Format(rf"\d{{6}}{_GAP}\d{{13}}", _GROUP_BEFORE, _NUMBER_AFTER),
    ),
    validate=is_card_number,
    examples=(
        "4111111111111111",
        "4111 1111 1111 1111",
        "4012-8888-8888-1881",
        "5555 5555 5555 4444",
        "2223003122003222",
        "3782 822463 10005",
        "371449635398431",
        "6011 1111 1111 1117",
        "3056 930902 5904",
        "3530111333300000",
        "6200000000000005",
        "6759649826438453",
        "4222222222222",
    ),
    source=(
        "ISO/IEC 7812-1 (length, check digit, issuer identification number), https://www.iso.org/standard/70484.html; "
        "the card schemes' published ranges"
    ),
    note=(
        "12 to 19 digits as issuers print them, with single spaces or hyphens. A card verification value or a date "
        "beside the number does not hide it. Numbers of issuers that are not listed are left out, and other groupings."
    ),
)

IBAN = Detector(
    name="iban",
    label="IBAN",
    title="International bank account number",
    formats=(
        Format(
            rf"[A-Za-z]{{2}}[0-9]{{2}}(?:{_GAP}?[A-Za-z0-9]{{4}}){{2,7}}(?:{_GAP}?[A-Za-z0-9]{{1,3}})?",
            before=r"^|[^A-Za-z0-9]",
            after=r"$|[^A-Za-z0-9]",
        ),
    ),
    validate=is_iban,
    examples=(
        "DE89370400440532013000",
        "DE89 3704 0044 0532 0130 00",
        "GB29 NWBK 6016 1331 9268 19",
        "gb29nwbk60161331926819",
        "FR14 2004 1010 0505 0001 3M02 606",
        "NO93 8601 1117 947",
        "NL91-ABNA-0417-1643-00",
        "MT84 MALT 0110 0001 2345 MTLC AST0 01S",
    ),
    source=(
        "ISO 13616-1 and the SWIFT IBAN registry, "
        "https://www.swift.com/standards/data-standards/iban-international-bank-account-number"
    ),
    note=(
        "Upper or lower case, in one piece or in groups of four with single spaces or hyphens. Other groupings are "
        "left out."
    ),
)


def _no_longer(gaps: str) -> tuple[str, str]:
    """What stands around a number that is no part of a longer one, or of a part's name, whose parts are joined by one
    of `gaps`."""
    return (
        rf"^|[^\dA-Za-z{gaps}]|(?:^|[^\dA-Za-z])[{gaps}]|[Ss][Ss][Nn][{gaps}]|[A-Za-z][. ]",
        rf"$|[^\dA-Za-z{gaps}]|[{gaps}](?:$|[^\dA-Za-z])|[. ][A-Za-z]",
    )


_HYPHENED = _no_longer(f"{DASHES}.")
_SPACED = _no_longer(f"{DASHES}. ")

US_SSN = Detector(
    name="us_ssn",
    label="US_SSN",
    title="US social security number",
    formats=(
        Format(rf"\d{{3}}[{DASHES}]\d{{2}}[{DASHES}]\d{{4}}", *_HYPHENED),
        Format(r"\d{3} \d{2} \d{4}", *_SPACED),
    ),
    validate=is_social_security_number,
    examples=("123-45-6789", "536-90-4399", "536 90 4399", "899-12-3456"),
    source=(
        "US Social Security Administration, Program Operations Manual RM 10201.035 (invalid numbers), "
        "https://secure.ssa.gov/poms.nsf/lnx/0110201035"
    ),
    note=(
        "Three, two and four digits with hyphens or spaces. Nine digits in a row are left out, since nothing tells "
        "them from other numbers; so are the three numbers known from advertisements."
    ),
)
