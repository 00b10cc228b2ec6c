"""What identifies people, places and wallets, in its surroundings; and what only looks like it."""

from __future__ import annotations

import pytest

from tests.support.found import censored

MRZ = ("P<UTOERIKSSON<<ANNA<MARIA<<<<<<<<<<<<<<<<<<<", "L898902C36UTO7408122F1204159ZE184226B<<<<<10")
WORDS = "legal winner thank year wave sausage worth useful legal winner thank yellow"
PHRASE = WORDS.split()
LONG_PHRASE = [*["abandon"] * 23, "art"]

# A detector, a text with [[ ]] around each value.
FOUND = (
    # Numbers that are just digits, behind their names.
    ("national_id", "Steuer-ID: [[36 574 261 809]]."),
    ("national_id", "Meine Steueridentifikationsnummer ist [[36574261809]]"),
    ("national_id", "NHS number [[943-476-5870]]"),
    ("national_id", "BSN: [[1112.22.333]]"),
    ("national_id", '{"PESEL": "[[44051401359]]"}'),
    ("national_id", "SIN [[123-456-782]], TFN [[123 456 782]]"),
    ("national_id", "T.C. Kimlik No: [[17291716060]]"),
    ("national_id", "マイナンバー：[[1234-5678-9018]]"),
    ("national_id", "ИНН [[500100732259]]"),
    ("national_id", "ID 8001015009087, national ID [[7503305044089]]"),
    ("national_id", "CPF [[39053344705]] or [[390.533.447-05]]"),
    ("national_id", "NINO=[[AB123456C]];"),
    # Passports.
    ("passport", "Passport number: [[123456789]]"),
    ("passport", "Reisepass-Nr. [[C01X00T47]]"),
    ("passport", "passeport n° [[12AB34567]]"),
    ("passport", "护照号码：[[E12345678]]"),
    ("passport", f"[[{MRZ[0]}\n{MRZ[1]}]]\n"),
    ("passport", f"second line: [[{MRZ[1]}]]"),
    # Dates of birth.
    ("date_of_birth", "DOB: [[03/12/1980]], age 45"),
    ("date_of_birth", '{"birthDate": "[[1980-03-12]]"}'),
    ("date_of_birth", "date_of_birth=x, Date of Birth: [[12 March 1980]]"),
    ("date_of_birth", "geboren am [[12. März 1980]] in Ulm"),
    ("date_of_birth", "geb. [[12.03.1980]]"),
    ("date_of_birth", "née le [[1er mars 1980]] à Paris"),
    ("date_of_birth", "Fecha de nacimiento: [[12 de marzo de 1980]]"),
    ("date_of_birth", "nascida em [[12/03/1980]]"),
    ("date_of_birth", "**Birthday:** [[March 12th, 1980]]."),
    # Positions.
    ("coordinates", "at [[40.7128° N, 74.0060° W]]."),
    ("coordinates", "[[40°42'46\"N 74°00'22\"W]] is New York"),
    ("coordinates", "Coordinates: [[40.7128, -74.0060]]"),
    ("coordinates", "geo:[[48.2010,16.3695]];u=40"),
    ("coordinates", "https://maps.example/?q=[[48.2010,16.3695]]"),
    ("coordinates", '{"lat": [[48.2010]], "lng": [[16.3695]]}'),
    ("coordinates", "latitude = [[-33.8688]]\nlongitude = [[151.2093]]"),
    ("coordinates", "GPS position: ([[40.7128, −74.0060]])"),
    # Wallets.
    ("crypto_address", "Send it to bitcoin:[[1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa]]?amount=1"),
    ("crypto_address", "ETH: [[0x52908400098527886E0F7030069857D2E4169EE7]]."),
    ("wallet_secret", f"The phrase: [[{' '.join(PHRASE)}]]."),
    ("wallet_secret", f"[[{' '.join(LONG_PHRASE)}]]"),
    ("wallet_secret", "\n".join(["1. [[legal", *(f"{n}. {word}" for n, word in enumerate(PHRASE[1:], 2))]) + "]]\n"),
    ("wallet_secret", f"words: [[{', '.join(PHRASE)}]], and"),
    ("wallet_secret", '["[[' + '", "'.join(PHRASE) + ']]"]'),
    ("wallet_secret", "[[" + "\n".join(PHRASE) + "]]"),
    ("wallet_secret", f"so my seed phrase is [[{' '.join(PHRASE)}]] and nothing else"),
)  # fmt: skip

LEFT = (
    ("national_id", "order 44051401359, parcel 943476587012, ein Paket 123456782"),
    ("national_id", "PAN 12345, SIN(x) = 0.123456789, DNI"),
    ("national_id", "ISBN 978-3-16-148410-0 and 12.345.678/0001-95"),
    ("passport", "The passport costs 123456789012 of something; call 5551234567890"),
    ("passport", MRZ[1].replace("7408122", "7408123")),
    ("date_of_birth", "The company was founded on 12 March 1980, and born in 1980."),
    ("date_of_birth", "released 1980-03-12, updated 03/12/1980"),
    ("coordinates", "0.1234, 0.5678 are the weights; the ratio is 40.7128, not 74.0060"),
    ("coordinates", "position: 12.5, 13.5, latitude unknown"),
    ("coordinates", "It is 40° N of here, and 20 °C"),
    ("crypto_address", "sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709, TheQuickBrownFoxJumpsoverTheLazyDog"),
    ("wallet_secret", "able about above absent absorb abstract absurd abuse access accident account"),
    (
        "wallet_secret",
        "The quick brown fox jumps over the lazy dog while many other small dogs watch from afar with envy",
    ),
)


@pytest.mark.parametrize(("name", "text"), FOUND)
def test_each_value_goes_whatever_the_cut(name: str, text: str) -> None:
    plain = text.replace("[[", "").replace("]]", "")
    parts = text.replace("]]", "[[").split("[[")
    shown = "".join(part if place % 2 == 0 else "[X]" for place, part in enumerate(parts))
    for at in range(0, len(plain), 1 + len(plain) // 60):
        assert censored(name, [plain[:at], plain[at:]]) == shown
    assert censored(name, list(plain)) == shown


@pytest.mark.parametrize(("name", "text"), LEFT)
def test_what_only_looks_like_it_comes_back(name: str, text: str) -> None:
    assert censored(name, list(text)) == censored(name, [text]) == text
