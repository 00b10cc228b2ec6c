"""Numbers that identify people: identity, tax, social security and health numbers, and passports.

Of the numbers whose form tells them from others the form is enough; those that are just digits need their name before
them, or check digits that a chance number hardly has. The checks are python-stdnum's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from functools import cache
from typing import Any, cast

from stdnum import get_cc_module

from gateway.censor.detectors.model import Detector, Format
from gateway.censor.detectors.numbers import DASHES, digits

_PLAIN = {ord(dash): "-" for dash in "\u2010\u2012\u2013\u2212"}
_BEFORE = rf"^|[^\dA-Za-z.{DASHES}/_]|(?:^|\D)[.{DASHES}]|\\[nrt]"
_AFTER = rf"$|[^\dA-Za-z{DASHES}./_]|[.{DASHES}/_](?:$|[^\dA-Za-z])"


@cache
def _number(country: str, kind: str) -> Any:
    """The module of a kind of number, loaded when the first one is met."""
    module = get_cc_module(country, kind)
    assert module is not None, (country, kind)
    return module


def _of(*kinds: str) -> Callable[[str], bool]:
    """Is a text a valid number of one of these kinds, each written as country.kind?"""
    named = [kind.split(".") for kind in kinds]

    def is_valid(text: str) -> bool:
        plain = "".join(str(int(char)) if char.isdecimal() else char for char in text.translate(_PLAIN))
        return any(cast(bool, _number(*name).is_valid(plain)) for name in named)

    return is_valid


def is_national_insurance_number(text: str) -> bool:
    """The prefixes that His Majesty's Revenue and Customs does not give out."""
    lead = text[:2].upper()
    return lead not in {"BG", "GB", "KN", "NK", "NT", "TN", "ZZ"}


def is_registration_number(text: str) -> bool:
    """A Korean one: of a date, and of eight kinds of people."""
    number = digits(text)
    century = {"1": 1900, "2": 1900, "5": 1900, "6": 1900, "3": 2000, "4": 2000, "7": 2000, "8": 2000}.get(number[6])
    return century is not None and _is_date(century + int(number[:2]), int(number[2:4]), int(number[4:6]))


def is_singapore_number(text: str) -> bool:
    """The check letter of Singapore's identity cards."""
    weighted = sum(int(digit) * weight for digit, weight in zip(text[1:8], (2, 7, 6, 5, 4, 3, 2), strict=True))
    weighted += {"T": 4, "G": 4, "M": 3}.get(text[0], 0)
    letters = {"S": "JZIHGFEDCBA", "T": "JZIHGFEDCBA", "M": "KLJNPQRTUWX"}.get(text[0], "XWUTRQPNMLK")
    return letters[weighted % 11] == text[8]


def is_snils(text: str) -> bool:
    """Russia's pension insurance number: the sum of the digits, each times its place from behind, modulo 101."""
    number = digits(text)
    total = sum(int(digit) * (9 - place) for place, digit in enumerate(number[:9]))
    return total % 101 % 100 == int(number[9:])


def _is_date(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


# Short names are in capitals, as they are words in some language otherwise.
_NAMES = (
    r"(?:(?i:steuer[\- ]?(?:id(?:entifikationsnummer)?|nummer|nr)|tax[ \-]?(?:id|payer|file)|national (?:id|insurance)"
    r"|social (?:security|insurance)|burgerservicenummer|aadhaar|aadhar|my ?number|kimlik|rodné číslo|numéro fiscal"
    r"|personnummer|fødselsnummer|sozialversicherungsnummer|rijksregisternummer|pesel|снилс|инн|рнокпп|isikukood"
    r"|asmens kodas|kennitala|adószám|cédula|mã số thuế|cartão de cidadão|teudat zehut|thai id|mykad|south african id"
    r"|αφμ|tax (?:number|no\b)|マイナンバー|個人番号|身份证|주민등록번호|주민번호|เลขประจำตัวประชาชน)"
    r"|IdNr|NHS|UTR|BSN|NIF|NINO|TFN|SIN|PPSN?|CNP|EGN|CUI[LT]|DNI|CPF|RU[TN]|INN|PAN|AMKA|ITIN|CPR|SVNR|NI[PKT]|EIN"
    r"|CNPJ|NPWP|KTP|NRIC|CNIC|RNTRC|OIB|IRD|RUC|RRN|EMŠO|JMBG|AFM)"
)
_INTRODUCED = rf"(?:^|[^A-Za-z]){_NAMES}(?:[^\d\n.;]{{0,16}}[^\dA-Za-z\n])?"
_UNLABELLED = (
    "de.idnr", "de.stnr", "gb.nhs", "gb.utr", "nl.bsn", "pl.pesel", "pt.nif", "au.tfn", "ca.sin", "ie.pps", "ro.cnp",
    "bg.egn", "ar.cuit", "ar.dni", "br.cpf", "cl.rut", "ru.inn", "in.aadhaar", "jp.in_", "tr.tckimlik", "gr.amka",
    "cz.rc", "us.itin", "at.vnr", "il.idnr", "za.idnr", "dk.cpr", "pl.nip", "pt.cc", "br.cnpj", "gr.vat", "us.ein",
    "at.tin", "id.npwp", "id.nik", "th.pin", "my.nric", "pk.cnic", "ua.rntrc", "hr.oib", "ee.ik", "lt.asmens",
    "nz.ird", "co.nit", "pe.ruc", "vn.mst", "fr.nif", "be.nn", "kr.rrn", "is.kennitala", "hu.anum", "si.emso", "ec.ci",
    "uy.rut", "eg.tn",
)  # fmt: skip

_SHAPES: tuple[tuple[str, Callable[[str], bool]], ...] = (
    # United Kingdom: AB 12 34 56 C
    (r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?\d\d ?\d\d ?\d\d ?[A-D]", is_national_insurance_number),
    # Spain: 54362315K, X-2482300W; Italy: RCCMNL83S18D969H; France: 2 95 10 99 126 111 93
    (r"\d{8}-?[A-HJ-NP-TV-Z]|[XYZ]-?\d{7}-?[A-HJ-NP-TV-Z]", _of("es.dni", "es.nie")),
    (r"[A-Z]{6}[0-9]{2}[A-EHLMPR-T][0-9]{2}[A-Z][0-9]{3}[A-Z]", _of("it.codicefiscale")),
    (r"[12] \d\d \d\d (?:\d\d|2[AB]) \d{3} \d{3} \d\d|[12]\d{4}(?:\d\d|2[AB])\d{6} ?\d\d", _of("fr.nir")),
    # Belgium: 85.07.30-033 28; Switzerland: 756.9217.0769.85
    (rf"\d\d\.\d\d\.\d\d-\d{{3}}[ .{DASHES}]\d\d", _of("be.nn")),
    (r"756\.?\d{4}\.?\d{4}\.?\d\d", _of("ch.ssn")),
    # Sweden: 880320-0016; Finland: 131052-308T; Norway: 15108695088
    (r"(?:\d\d)?\d{6}[+\-]\d{4}", _of("se.personnummer")),
    (r"\d{6}[+\-A-FU-Y]\d{3}[0-9A-FHJ-NPR-Y]", _of("fi.hetu")),
    (r"\d{6} ?\d{5}", _of("no.fodselsnummer")),
    # Russia: 112-233-445 95; Korea: 971013-1019024; China: 360426199101010071; Singapore: S1234567D
    (rf"\d{{3}}-\d{{3}}-\d{{3}}[ {DASHES}]\d\d", is_snils),
    (r"\d{6}-[1-8]\d{6}", is_registration_number),
    (r"[1-9]\d{16}[0-9Xx]", _of("cn.ric")),
    (r"[FGMST][0-9]{7}[A-Z]", is_singapore_number),
    # Brazil: 390.533.447-05; Chile: 12.531.909-2; Argentina: 20-05536168-2; Mexico: BOXW310820HNERXN09
    (r"\d{3}\.\d{3}\.\d{3}-\d\d", _of("br.cpf")),
    (r"\d{1,2}\.\d{3}\.\d{3}-[0-9Kk]", _of("cl.rut")),
    (r"(?:20|23|24|27)-\d{8}-\d", _of("ar.cuit")),
    (r"[A-Z]{4}[0-9]{6}[HMX][A-Z]{5}[0-9A-Z][0-9]", _of("mx.curp")),
    # India: ACUPA7085R
    (r"[A-Z]{3}[ABCFGHLJPT][A-Z][0-9]{4}[A-Z]", _of("in.pan")),
)

NATIONAL_ID = Detector(
    name="national_id",
    label="NATIONAL_ID",
    title="National identity, tax or insurance number",
    formats=(
        *(Format(shape, _BEFORE, _AFTER, validate) for shape, validate in _SHAPES),
        # India: 2341 2341 2346, and no part of a row of such groups.
        Format(
            rf"[2-9]\d{{3}}[ {DASHES}]\d{{4}}[ {DASHES}]\d{{4}}",
            rf"^|[^\dA-Za-z. {DASHES}/_]|(?:^|[^\dA-Za-z])[. ]|[A-Za-z][. ]",
            rf"$|[^\dA-Za-z. {DASHES}/_]|[. ](?:$|\D)",
            _of("in.aadhaar"),
        ),
        # Mexico: OTHC760826XWL, and no document of the IETF.
        Format(
            rf"[A-ZÑ&]{{3,4}}[ {DASHES}]?\d{{6}}[ {DASHES}]?[A-Z0-9]{{3}}",
            r"(?:^|[^A-Za-z])RFC[^0-9A-Za-z\n]{1,8}",
            _AFTER,
            _of("mx.rfc"),
        ),
        # What is just digits, behind its name.
        Format(
            rf"\d[ {DASHES}]?\d(?:[ .{DASHES}/]?\d){{4,14}}"
            rf"(?:[ {DASHES}]?[A-Za-z0-9]{{1,3}})?",
            _INTRODUCED,
            _AFTER,
            _of(*_UNLABELLED),
        ),
    ),
    validate=None,
    examples=(
        "AB 12 34 56 C",
        "AB123456C",
        "54362315K",
        "X-2482300W",
        "RCCMNL83S18D969H",
        "2 95 10 99 126 111 93",
        "85.07.30-033 28",
        "756.9217.0769.85",
        "880320-0016",
        "131052-308T",
        "15108695088",
        "112-233-445 95",
        "971013-1019024",
        "360426199101010071",
        "S1234567D",
        "390.533.447-05",
        "12.531.909-2",
        "20-05536168-2",
        "BOXW310820HNERXN09",
        "ACUPA7085R",
        "2341 2341 2346",
    ),
    source="The issuers' rules as python-stdnum cites them, https://arthurdejong.org/python-stdnum/",
    note=(
        "By their form and check digits: Argentina, Belgium, Brazil, Chile, China, Finland, France, India, Italy, "
        "Korea, Mexico, Norway, Russia, Singapore, Spain, Sweden, Switzerland and the United Kingdom. After their "
        "names, as in BSN: 1112.22.333, also those that are just digits: Australia, Austria, Bulgaria, Canada, "
        "Colombia, Croatia, the Czech Republic, Denmark, Ecuador, Egypt, Estonia, Germany, Greece, Hungary, Iceland, "
        "Indonesia, Ireland, Israel, Japan, Lithuania, Malaysia, the Netherlands, New Zealand, Pakistan, Peru, Poland, "
        "Portugal, Romania, Slovenia, South Africa, Thailand, Turkey, Ukraine, Uruguay, Vietnam, and tax numbers of "
        "Brazil, Mexico, the United Kingdom and the United States. us_ssn is a separate detector."
    ),
)

_DOCUMENT = (
    r"(?i:passport|reisepass|passeport|pasaporte|passaport[eo]|paspoort|паспорт|護照|护照|旅券|パスポート|여권"
    r"|travel document)(?:[^\n.;]|[Nn][OoRr]?\.){0,30}"
    r"[^0-9A-Za-z\n]"
)
_MRZ = "[A-Z0-9<]{9}[0-9][A-Z<]{3}[0-9]{7}[FMX<][0-9]{7}[A-Z0-9<]{14}[0-9<][0-9]"
_WEIGHTS = (7, 3, 1)


def is_passport_number(text: str) -> bool:
    """Are there as many digits as in any country's numbers, and is this no date?"""
    return sum(map(str.isdigit, text)) >= 5 and not re.fullmatch(r"(?:19|20)\d{6}", text)


def is_machine_readable(text: str) -> bool:
    """Are the check digits of the number, the date of birth and the date of expiry right?"""
    line = text[-44:]
    return all(_check(line[begin:end]) == line[end] for begin, end in ((0, 9), (13, 19), (21, 27)))


def _check(text: str) -> str:
    values = (0 if char == "<" else int(char, 36) for char in text)
    return str(sum(value * _WEIGHTS[place % 3] for place, value in enumerate(values)) % 10)


PASSPORT = Detector(
    name="passport",
    label="PASSPORT",
    title="Passport number",
    formats=(
        Format(
            "[A-Z]{0,3}[0-9]{6,9}|[A-Z][0-9]{7}[A-Z]|[0-9]{2}[A-Z]{2}[0-9]{5}|[CFGHJKLMNPRTVWXYZ][CFGHJKLMNPRTVWXYZ0-9]{8}",
            _DOCUMENT,
            _AFTER,
        ),
        Format(rf"(?:P[A-Z<][A-Z<]{{42}}\s{{1,2}})?{_MRZ}", "^|[^A-Z0-9<]", "$|[^A-Z0-9<]", is_machine_readable),
    ),
    validate=is_passport_number,
    introduction="passport no. ",
    examples=("123456789", "C01X00T47", "12AB34567", "K1234567", "AAA123456"),
    source="ICAO Doc 9303 parts 3 and 4 (machine-readable zone), https://www.icao.int/publications/doc-series/doc-9303",
    note=(
        "After the word passport in twelve languages, at most 30 characters later; and the machine-readable "
        "zone with its check digits, whatever is before it."
    ),
)
