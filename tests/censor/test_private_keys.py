"""Private keys in every form of the table, cut in many ways; and what stands near one comes back."""

from __future__ import annotations

import random
import re
import string
import tomllib
from base64 import b64encode
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import pytest

from gateway.censor.stream import Censor
from tests.support.examples import SHARE, examples
from tests.support.found import censored as censored_by
from tests.support.found import program

Form = dict[str, Any]
TABLE: dict[str, list[Form]] = tomllib.loads(Path(__file__).with_name("private_keys.toml").read_text(encoding="utf-8"))
ENCODE = {
    None: str,
    "url": lambda line: quote(line, safe=""),
    "form": quote_plus,
    "slashes": lambda line: line.replace("/", r"\/"),
}
CASES = {None: str, "title": str.title, "lower": str.lower}
BODY = "MIIE" + "".join(random.Random("key").choices(string.ascii_letters + string.digits + "+/", k=2000))


def of(kind: str) -> Any:
    return pytest.mark.parametrize("form", TABLE[kind], ids=[form["name"] for form in TABLE[kind]])


def lines_of(form: Form, label: str = "PRIVATE KEY", size: int = 134, width: int = 64) -> list[str]:
    """A PEM, whose last line of base64 is short."""
    dashes, case = form.get("dashes", "-----"), CASES[form.get("case")]
    space = " " * dashes.endswith(" ")
    open_, close = (dashes + case(f"{word} {label}") + space + dashes.rstrip() for word in ("BEGIN", "END"))
    body = BODY[: size - 2] + "=="
    lines = [open_, *(body[at : at + width] for at in range(0, size, width)), close]
    encode = ENCODE[form.get("encode")]
    # What is written as escapes already stays so.
    return [line if "\\" in dashes else encode(line.replace("%2D", "-")).replace("-", "%2D" if "%" in dashes else "-")
            for line in lines]  # fmt: skip


def written(form: Form, lines: list[str]) -> tuple[str, str]:
    """The text with the key in it, and what is left of it."""
    template = form.get("line", "{}")
    parts = [template.replace("{n}", str(number)) for number, _ in enumerate(lines, start=1)]
    whole = [part.replace("{}", line) for part, line in zip(parts, lines, strict=True)]
    before, after = "Here it is: " + form.get("before", ""), form.get("after", "") + " And now to something else."
    text = before + form["join"].join(whole) + after
    return text, before + parts[0].partition("{}")[0] + "[X]" + parts[-1].partition("{}")[2] + after


def censored(pieces: list[str]) -> str:
    return censored_by("private_key", pieces)


def cuts(text: str) -> Iterator[list[str]]:
    for size in (len(text), 1, 3, 7):
        yield [text[at : at + size] for at in range(0, len(text), size)]
    step = 1 + len(text) // examples(50)
    places = range(random.randint(1, step), len(text), step)  # other ones in each run
    half = len(places) // 2
    for at, then in zip_longest(places[:half], places[half:], fillvalue=0):  # two in each text
        yield [text[:at], text[at:then], text[then:]]


def test_the_forms_have_names() -> None:
    names = [form["name"] for forms in TABLE.values() for form in forms]
    assert len(set(names)) == len(names)
    assert len(TABLE["form"]) >= 57


@of("form")
def test_e1_a_key_leaves_nothing_behind_in_any_form(form: Form) -> None:
    text, expected = written(form, lines_of(form))
    for pieces in cuts(text):
        assert censored(pieces) == expected


# Label, characters of base64 and of a line. Every form has one of them, and in a longer run each.
KINDS = [("RSA PRIVATE KEY", 1620, 64), ("OPENSSH PRIVATE KEY", 372, 70), ("PGP PRIVATE KEY BLOCK", 304, 76)]


@of("form")
def test_e1_keys_of_other_kinds(form: Form) -> None:
    at = TABLE["form"].index(form) % len(KINDS)
    for kind in KINDS if SHARE >= 1 else KINDS[at : at + 1]:
        text, expected = written(form, lines_of(form, *kind))
        assert censored([text]) == expected


@of("form")
def test_e1_a_key_that_breaks_off_shows_none_of_its_whole_lines(form: Form) -> None:
    lines = lines_of(form, size=256)[:-1]
    shown = censored([written(form, lines)[0]])
    assert not any(line[8:40] in shown for line in lines[1:])


@pytest.mark.parametrize("gap", [" ", "  ", "\n"])
@pytest.mark.parametrize("size", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("end", ["\n-----END PRIVATE KEY-----", " Nevertheless"])
def test_a_key_that_is_divided_into_equal_pieces_goes_as_a_whole(size: int, gap: str, end: str) -> None:
    key = gap.join(BODY[at : at + size] for at in range(0, 67, size))
    rest = end if "END" not in end else ""
    for pieces in cuts(f"see -----BEGIN PRIVATE KEY-----\n{key}{end} and so on"):
        assert censored(pieces) == f"see [X]{rest} and so on"


DIVIDERS = {
    "blanks": " ", "tabs": "\t", "commas": ",", "a list": '", "', "one in lines": "',\n    '", "plus": '" + "',
    "side by side": '" "', "points": ".", "bars": " | ", "hyphens": "--", "arrows": " -> ", "a Markdown list": "\n- ",
    "emphasis": "** **", "code in Markdown": "`, `", "brackets": "] [", "tags": "<wbr>", "calls": '");\nkey.push("',
    "functions between": '", CHAR(10), "', "assignments": '"\npart = "', "escapes": r"\n",
}  # fmt: skip


@pytest.mark.parametrize("divider", DIVIDERS)
def test_a_key_in_pieces_of_any_size_shows_none_of_them(divider: str) -> None:
    """Sizes that lengths alone tell, others, and sizes that change."""
    between, source = DIVIDERS[divider], random.Random(divider)
    quote_ = next((sign for sign in "\"'`" if sign in between), "")
    first = between.replace("--", "\n")
    for size in source.sample(range(1, 20), 1 + examples(3)):
        pieces = [BODY[at : at + size] for at in range(0, 200, size)]
        text = f"k = {quote_}-----BEGIN PRIVATE KEY-----{first}{between.join(pieces)}{quote_}\n"
        for end in (f"{quote_}-----END PRIVATE KEY-----{quote_}", "That was it, my friend."):
            shown = censored([text + end])
            assert not any(piece in shown for piece in pieces if len(piece) > 3), shown
            assert len(re.sub("[^A-Za-z0-9+/]", "", shown.replace("[X]", ""))) <= 40, shown
            assert censored(list(text + end)) == shown
    sizes = iter(source.choices(range(3, 12), k=60))
    text, rest = f"-----BEGIN PRIVATE KEY-----\n{quote_}", BODY[:240]
    while rest:
        piece, rest = rest[: (size := next(sizes))], rest[size:]
        text += piece + between
    assert len(censored([text])) < 60


def encodings() -> dict[str, str]:
    """What the table's names in braces stand for."""

    def pem(label: str) -> bytes:
        return "\n".join([*lines_of({}, label, size=256), ""]).encode()

    def encoded(label: str, before: bytes = b"") -> str:
        return b64encode(before + pem(label)).decode()[-(-len(before) * 8 // 6) :]

    key = pem("PRIVATE KEY")
    ssh2 = "\n".join(lines_of({"dashes": "---- "}, "SSH2 ENCRYPTED PRIVATE KEY")).encode()
    dump = [f"{at:08x}: {key[at : at + 16].hex(' ', 2)}" for at in range(0, len(key), 16)]
    return {
        "base64": encoded("PRIVATE KEY"),
        "base64_1": encoded("PRIVATE KEY", b"\n"),
        "base64_2": encoded("PRIVATE KEY", b"\r\n"),
        "base64_rsa": encoded("RSA PRIVATE KEY"),
        "base64_openssh": encoded("OPENSSH PRIVATE KEY"),
        "base64_encrypted": encoded("ENCRYPTED PRIVATE KEY"),
        "base64_certificate": encoded("CERTIFICATE"),
        "base64_public": encoded("PUBLIC KEY"),
        "base64_lines": "\n  ".join(re.findall(".{1,76}", encoded("PRIVATE KEY"))),
        **{
            f"base64_{size}": '", "'.join(re.findall(f".{{1,{size}}}", encoded("PRIVATE KEY").rstrip("=")))
            for size in (12, 20)
        },
        "base64_java": '" +\n    "'.join(re.findall(".{1,76}", encoded("PRIVATE KEY"))),
        "base64_twice": b64encode(encoded("PRIVATE KEY").encode()).decode(),
        "base64_ssh2": b64encode(ssh2).decode(),
        "hex_ssh2": ssh2.hex(),
        "dump": "\n".join(dump)[10:],
        "dump_text": "\n".join(
            f"{line}  {key[16 * n :][:16].decode()}".replace("\n", ".") for n, line in enumerate(dump[:12])
        )[10:]
        + "\n"
        + dump[12],
        "line": BODY[:180],
        "lines": "\n".join([BODY[:64], BODY[64:128], BODY[128:148]]),
        "lines_bytes": "\\n'\n    b'".join([BODY[:64], BODY[64:128], BODY[128:148]]),
        "lines_numbered": f"{BODY[:64]}\n11  {BODY[64:128]}\n12  {BODY[128:148]}",
        "lines_json": r"\n".join([BODY[:64], BODY[64:128], BODY[128:148]]),
        "hex_lines": "\n".join(re.findall(".{32}", BODY[:128].encode().hex())),
        "age": "AGE-SECRET-KEY-1" + "QZ" * 29,
        "hex": key.hex(),
        "hex_upper": key.hex().upper(),
        "hex_spaces": key.hex(" "),
        "hex_colons": key.hex(":"),
        "hex_c": key.hex("/").replace("/", ", 0x"),
        "hex_x": key.hex("/").replace("/", r"\x"),
        "decimal": str(list(key))[1:-1],
        "hex_certificate": pem("CERTIFICATE").hex(),
        "prime": BODY[:171].replace("/", "_").replace("+", "-"),
        "xml": BODY[:342] + "==",
        "xml_lines": "\n    ".join(re.findall(".{1,76}", BODY[:170] + "==")),
    }


ENCODINGS = encodings()


def filled(text: str) -> str:
    return re.sub(r"\{([a-z0-9_]+)\}", lambda name: ENCODINGS.get(name[1], name[0]), text)


@of("whole")
def test_e1_other_encodings_and_formats(form: Form) -> None:
    before, key, after = re.split(r"\[\[|\]\]", filled(form["text"]))
    for pieces in cuts(before + key + after):
        assert censored(pieces) == f"{before}[X]{after}"


@of("none")
def test_e1_what_is_no_private_key_comes_back(form: Form) -> None:
    text = filled(form["text"])
    for pieces in cuts(text):
        assert censored(pieces) == text


@of("near")
def test_e1_what_is_near_a_key_comes_back(form: Form) -> None:
    text = filled(form["text"])
    for pieces in cuts(text):
        assert censored(pieces) == filled(form["output"])


@pytest.mark.parametrize("inner", range(3))
@pytest.mark.parametrize("outer", range(3))
def test_e1_base64_of_base64_at_any_byte(inner: int, outer: int) -> None:
    coded = b64encode(bytes(outer) + b64encode(bytes(inner) + "\n".join(lines_of({})).encode())).decode()
    for pieces in cuts(f"key: {coded}."):
        assert re.fullmatch(r"key: [A-Za-z0-9]{0,7}\[X\]\.", censored(pieces))


def test_e1_what_follows_an_end_line_is_not_held() -> None:
    censor = Censor(program("private_key"))
    text, _ = written({"join": "\n"}, lines_of({}))
    key, after = text[: text.index(" And")], " And now."
    censor.feed(key)
    assert censor.feed(after) == after
    assert censor.held == 0
