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
    ("national_id", "NIP [[227-724-25-91]], CNPJ: [[72.853.276/8197-77]]"),
    ("national_id", "PPSN [[3669750F]], EIN [[50-0475199]]"),
    ("national_id", "**RFC:** [[OTHC760826XWL]] | NPWP | [[14.129.364.7-810.228]] |"),
    ("national_id", "Thai ID [[8-2483-62483-70-2]]; NRIC [[861009-45-0795]]; CNIC [[3143101399294]]"),
    ("national_id", "RNTRC [[3895119570]], OIB [[68607033290]], isikukood [[83308030824]]"),
    ("national_id", "NIT [[662.962.590-3]], IRD [[89909074]], mã số thuế [[1324564248]], RUC [[15897676319]]"),
    ("national_id", "주민등록번호: [[5711141766140]], kennitala [[301276-5679]]"),
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
    ("passport", "passaporto n. [[K1234567A]]"),
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
    ("date_of_birth", "| Date of birth | [[12-Mar-1980]] |"),
    ("date_of_birth", '{"date_of_birth": "[[1980-03-12]]"}'),
    ("date_of_birth", "Data di nascita: [[12/03/1980]]"),
    # Positions.
    ("coordinates", "[[N 40° 42.767 W 074° 00.367]] and [[40.7128N, 74.0060W]]"),
    ("coordinates", "| Coordonnées | [[48.8588, 2.2943]] | **Location:** [[48.8588, 2.2943]]"),
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
    ("crypto_address", "XRP: [[rEb8TK3gBgk5auZkwc6sHnwrGVJH8DuaLh]], ATOM"),
    ("crypto_address", "XLM [[GAAZI4TCR3TY5OJHCTJC2A4QSY6CJWJH5IAJTGKIN2ER7LBNVKOCCWN7]]"),
    ("wallet_secret", f"[[{' | '.join(PHRASE)}]] or [[{'-'.join(PHRASE)}]]"),
    ("wallet_secret", "- [[" + "\n- ".join(PHRASE).upper() + "]]"),
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
    ("national_id", "per RFCs 2045-2047, RFC 2373 2.5.2 and RFC 822; 12:00 MST 2021-03-04"),
    ("national_id", "ISBN 978-3-16-148410-0 and 12.345.678/0001-95"),
    ("passport", "The passport costs 123456789012 of something; call 5551234567890"),
    ("passport", MRZ[1].replace("7408122", "7408123")),
    ("date_of_birth", "The company was founded on 12 March 1980, and born in 1980."),
    ("date_of_birth", "released 1980-03-12, updated 03/12/1980"),
    ("coordinates", "0.1234, 0.5678 are the weights; the ratio is 40.7128, not 74.0060"),
    ("coordinates", "position: 12.5, 13.5, latitude unknown"),
    ("coordinates", "It is 40° N of here, and 20 °C"),
    ("crypto_address", "sha1 da39a3ee5e6b4b0d3255bfef95601890afd80709, TheQuickBrownFoxJumpsoverTheLazyDog"),
    ("crypto_address", "rEb8TK3gBgk5auZkwc6sHnwrGVJH8DuaLi, rectangleRectangleRectangle"),
    ("coordinates", "N 95.1234 E 12.1234, 4.12 S, 5.12 E"),
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
