"""Detectors: their own examples and near misses, in every surrounding and cut in every way, against a naive search."""

from __future__ import annotations

import random
import re
import string
from base64 import urlsafe_b64encode
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.censor.compile import compile_policy
from gateway.censor.detectors import DETECTORS, Detector
from gateway.censor.lens import Lens
from gateway.censor.stream import Censor
from gateway.config import load
from gateway.policy.model import Channel, Direction, Policy, Rule
from gateway.policy.presets import DEFAULT_DETECTOR_FOLD
from loadtest import false_hits
from tests.censor.near_misses import NEAR_MISSES, SURROUNDINGS, VALUES
from tests.support.examples import examples
from tests.support.found import censored, found, program

ROOT = Path(__file__).parents[2]
DOCUMENTATION = ROOT / "docs" / "detectors.md"
POLICY = ROOT / "deploy" / "policies" / "pii.yaml"

NEAR = [(name, value) for name, values in NEAR_MISSES.items() for value in values]


# The oracle: every substring of the folded text is tried on its own.


@cache
def expression(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def ends_of(detector: Detector, text: str, start: int) -> list[int]:
    """Where a match that begins at `start` ends."""
    forms = [form for form in detector.formats if expression(rf"(?:{form.before})\Z").search(text[:start])]
    # What no way through an expression without conditions begins with is no match, wherever it is to end.
    forms = [form for form in forms if expression(form.body).match(text, start)]
    return [
        end
        for end in range(start + 1, len(text) + 1)
        if any(
            expression(form.body).fullmatch(text, start, end)
            and expression(form.after.replace("$", r"\Z")).match(text[end:])
            and (form.validate or detector.validate or bool)(text[start:end])
            for form in forms
        )
    ]


def naive(detector: Detector, text: str) -> list[str]:
    """The maximal runs of overlapping matches. `text` is as the lens sees it."""
    runs: list[tuple[int, int]] = []
    for start in range(len(text)):
        ends = ends_of(detector, text, start)
        if ends and runs and start < runs[-1][1]:
            runs[-1] = runs[-1][0], max(runs[-1][1], *ends)
        elif ends:
            runs.append((start, max(ends)))
    return [text[start:end] for start, end in runs]


# Their own examples


def test_the_detectors_by_name() -> None:
    assert list(DETECTORS) == [
        *("email", "credit_card", "iban", "us_ssn", "phone", "ipv4", "ipv6", "mac_address", "url", "jwt"),
        *("private_key", "api_key", "credential", "national_id", "passport", "date_of_birth", "coordinates"),
        *("crypto_address", "wallet_secret", "hidden_text"),
    ]
    for name, detector in DETECTORS.items():
        assert detector.name == name
        assert detector.label == name.upper()
        assert "https://" in detector.source
        assert len(detector.examples) >= 3
        assert len(NEAR_MISSES[detector.name]) >= 3
        assert not any(re.search(r"\(\?(?!:|i:)", form.body) for form in detector.formats)  # see `ends_of`


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_an_example_is_found_as_a_whole_in_every_surrounding(name: str, value: str) -> None:
    begin = DETECTORS[name].introduction
    for surrounding in SURROUNDINGS:
        if value[0] == "用" and surrounding[0] in "请是":
            continue  # nothing tells where a word ends and a Chinese name begins
        text = surrounding.format(begin + value)
        assert found(name, text) == [value], text
        assert censored(name, list(text)) == surrounding.format(begin + "[X]"), text


@pytest.mark.parametrize(("name", "value"), NEAR)
def test_in_a_near_miss_nothing_is_found_in_any_surrounding(name: str, value: str) -> None:
    for surrounding in SURROUNDINGS:
        text = surrounding.format(DETECTORS[name].introduction + value)
        assert found(name, text) == [], text
        assert censored(name, list(text)) == text


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_no_cut_changes_anything(name: str, value: str) -> None:
    text = f"It is {DETECTORS[name].introduction}{value}, or so."
    step = 1 + len(text) // examples(200)
    for at in range(random.randint(1, step), len(text), step):  # of a long text, other ones in each run
        assert censored(name, [text[:at], text[at:]]) == text.replace(value, "[X]")


@pytest.mark.parametrize(("name", "value"), [*VALUES, *NEAR])
def test_the_machine_finds_what_a_naive_search_finds(name: str, value: str) -> None:
    for surrounding in ("{}", "say {} now", "{}1", "1{}", "a{}a", "0.{}", "{}-{}", "{} {}"):
        text = Lens(DEFAULT_DETECTOR_FOLD).fold_word(surrounding.format(*2 * [DETECTORS[name].introduction + value]))
        if len(text) <= 100:
            assert found(name, text) == naive(DETECTORS[name], text), text


# Characters near which a shape changes its mind.
SPOILERS = list("0159 .-+:@/_aFgZ'(),=\n请é")


@st.composite
def spoiled_values(draw: st.DrawFn) -> tuple[str, str]:
    name, value = draw(st.sampled_from([(name, value) for name, value in VALUES if len(value) <= 60]))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(value)))
        removed = draw(st.integers(0, 1))
        value = value[:at] + draw(st.sampled_from(["", *SPOILERS])) + value[at + removed :]
    return name, DETECTORS[name].introduction + value


@settings(max_examples=examples(300), deadline=None)
@given(spoiled_values())
def test_a_spoiled_value_is_judged_as_a_naive_search_judges_it(spoiled: tuple[str, str]) -> None:
    name, text = spoiled
    assert found(name, text) == naive(DETECTORS[name], text)


# What the shapes promise beyond their examples


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("credit_card", "card4111111111111111", "4111111111111111"),
        ("credit_card", "#4111-1111-1111-1111", "4111-1111-1111-1111"),
        ("credit_card", "4111 1111 1111 1111 123", "4111 1111 1111 1111"),
        ("credit_card", "4111111111111111 12/26", "4111111111111111"),
        ("credit_card", "1. 4111111111111111\n", "4111111111111111"),
        ("credit_card", "No.4111111111111111.", "4111111111111111"),
        ("credit_card", "7,4111111111111111,12.50", "4111111111111111"),
        ("credit_card", "４１１１ 1111 1111 1111", "４１１１ 1111 1111 1111"),
        ("credit_card", "4111\u00a01111\u20111111\u20131111", "4111\u00a01111\u20111111\u20131111"),
        ("credit_card", "٤١١١١١١١١١١١١١١١", "٤١١١١١١١١١١١١١١١"),
        ("credit_card", "4111\u200b1111\u200b1111\u200b1111", "4111\u200b1111\u200b1111\u200b1111"),
        ("iban", "NO93 8601 1117 947 and", "NO93 8601 1117 947"),
        ("iban", "IBAN:DE89370400440532013000;", "DE89370400440532013000"),
        ("us_ssn", "ssn_123-45-6789", "123-45-6789"),
        ("us_ssn", "1. 123\u201145\u20116789", "123\u201145\u20116789"),
        ("credit_card", "2024-05-01 4111 1111 1111 1111 0926", "4111 1111 1111 1111"),
        ("phone", "tel:+14155552671", "+14155552671"),
        ("phone", "call 020 7946 0958 24 hours a day", "020 7946 0958"),
        ("phone", "415-555-2671x12", "415-555-2671"),
        ("phone", "Tel.030/901820.", "030/901820"),
        ("email", "mailto:bob@example.com?subject=x", "bob@example.com"),
        ("email", "'bob@example.com'", "bob@example.com"),
        ("email", "邮箱bob@example.com吗", "bob@example.com"),
        ("email", "git clone git@github.com:a/b.git", "git@github.com"),
        ("ipv4", "http://10.0.0.1:80/", "10.0.0.1"),
        ("ipv4", "10.0.0.0/8", "10.0.0.0"),
        ("ipv6", "http://[2001:db8::1]:80/", "2001:db8::1"),
        ("ipv6", "address:2001:db8::1/64", "2001:db8::1"),
        ("ipv6", "[IPv6:2001:db8::1]", "2001:db8::1"),
        ("mac_address", "MAC:00:1A:2B:3C:4D:5E", "00:1A:2B:3C:4D:5E"),
        ("url", "(see https://example.com/a).", "https://example.com/a"),
        ("url", "[text](https://example.com/a_(b))", "https://example.com/a_(b)"),
        ("url", "git+https://example.com/x.git@v1", "https://example.com/x.git@v1"),
        ("url", r"https://example.com\nnext", "https://example.com"),
        ("api_key", r"\nAKIAIOSFODNN7EXAMPLE\n", "AKIAIOSFODNN7EXAMPLE"),
        ("api_key", "AWS_KEY=AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_edges(name: str, text: str, value: str) -> None:
    assert found(name, text) == [value]


@pytest.mark.parametrize(
    ("name", "text", "shown"),
    [
        ("credit_card", "4111 1111 1111 1111 5555 5555 5555 4444", "[X] [X]"),
        ("credit_card", "4111-1111-1111-1111 5555-5555-5555-4444 4012 8888 8888 1881.", "[X] [X] [X]."),
        ("credit_card", "Order 1234 4111 1111 1111 1111", "Order 1234 [X]"),
        ("credit_card", "1111 2222 4111 1111 1111 1111", "1111 2222 4111 1111 1111 1111"),
        ("email", "see...bob@example.com", "see...[X]"),
        ("api_key", "_AKIAIOSFODNN7EXAMPLE_", "_[X]_"),
        ("api_key", "**AKIAIOSFODNN7EXAMPLE**, __AKIAIOSFODNN7EXAMPLE__", "**[X]**, __[X]__"),
        ("api_key", "...AKIAIOSFODNN7EXAMPLE.", "...[X]."),
        ("email", "bob..smith@example.com", "bob..smith@example.com"),
    ],
)
def test_what_may_stand_around_a_value(name: str, text: str, shown: str) -> None:
    assert censored(name, list(text)) == censored(name, [text]) == shown


E8_FALSE_HITS = {
    "a picture for screens of double density": ("email", "![logo](logo@2x.png) and logo@2x.jpg"),
    "a unit of systemd": ("email", "systemctl restart getty@tty1.service getty@tty2.Service"),
    "a line of /etc/passwd": ("ipv6", "redis:x:102:105::/var/lib/redis:/usr/sbin/nologin"),
    "a slice": ("ipv6", "y = z[337::617]"),
    "a German article number": ("credit_card", "EAN 4000000000006"),
    "digits of a hexadecimal number": ("credit_card", "at 0x4111111111111111 and 0XAB4111111111111111"),
    "dotted groups of digits as a hardware address": ("mac_address", "serial 1234.5678.9012"),
    "dotted groups of digits as a telephone number": ("phone", "serial 0123.4567.8901"),
    "coordinates, degrees": ("phone", "+40.20361-075.00417/ and +40.203610-075.004170/"),
    "coordinates, minutes": ("phone", "+4012-07500/ +4012.22-07500.25/"),
    "coordinates, seconds": ("phone", "+401213-0750015/ +401213.1-0750015.1/"),
    "coordinates with a height": ("phone", "+27.591600+086.564000+8850CRSWGS_84/"),
    "a part's number": ("us_ssn", "part PN-123-45-6789, 123-45-6789-REV.B and AB-536-90-4399"),
}
E8_HOSTS = {
    "an address": ("email", "an info@日本語.jp.", "an [X]."),
    "an address in a sentence": ("email", "連絡先はinfo@日本語.jpまで", "連絡先は[X]まで"),
    "an address with a name in kana": ("email", "かな@テスト.com", "[X]"),
    "Korean": ("email", "mail admin@한국.kr now", "mail [X] now"),
    "a label that is mixed": ("email", "bob@abc公司.com", "[X]"),
    "labels before and behind": ("email", "bob@mail.公司.com.cn", "[X]"),
    "text behind an address": ("email", "写信给alice@example.com或bob.com", "写信给[X]或bob.com"),
    "a page": ("url", "(https://日本語.jp/x?y=1#z)", "([X])"),
    "a page's host alone": ("url", "见https://例子.com。", "见[X]。"),
    "a port": ("url", "http://例え.jp:8080/ now", "[X] now"),
    "no host": ("url", "以https://开头的网址", "以https://开头的网址"),
}


@pytest.mark.parametrize("name", E8_FALSE_HITS)
def test_e8_what_only_looks_like_a_value_comes_back(name: str) -> None:
    detector, text = E8_FALSE_HITS[name]
    for surrounding in SURROUNDINGS:
        assert found(detector, surrounding.format(text)) == []
        assert censored(detector, list(surrounding.format(text))) == surrounding.format(text)


@pytest.mark.parametrize("name", E8_HOSTS)
def test_e8_hosts_in_scripts_without_spaces(name: str) -> None:
    detector, text, shown = E8_HOSTS[name]
    for at in range(len(text)):
        assert censored(detector, [text[:at], text[at:]]) == shown
    assert censored(detector, list(text)) == shown


def test_e8_what_a_domain_may_be_that_begins_like_a_file() -> None:
    text = "a@b.se, a@b.services, a@b.jp, a@b.website, a@b.so and a@b.pn"
    assert censored("email", list(text)) == "[X], [X], [X], [X], [X] and [X]"


def test_an_email_address_is_replaced_before_it_is_complete() -> None:
    censor = Censor(program("email"))
    assert [censor.feed(piece) for piece in ("to bob", "@example", ".co", "m. ", "Bye")] == ["to ", "", "[X]", ". ", ""]
    assert censor.finish() == "Bye"


def base64_of(length: int) -> str:
    return (string.ascii_letters + string.digits + "+/") * (length // 64) + "A" * (length % 64)


@pytest.mark.parametrize(
    "line_end", ["\n", "\r\n", "\\n", "\\r\\n", '\\n"\n    "', "\n    ", "\n> ", "\n# ", "\n * ", "\n// ", "<br>\n"]
)
def test_a_long_private_key_leaves_nothing_behind(line_end: str) -> None:
    body = base64_of(max(960, examples(3200)))
    lines = [body[at : at + 64] for at in range(0, len(body), 64)]
    key = line_end.join(["-----BEGIN RSA PRIVATE KEY-----", *lines, "-----END RSA PRIVATE KEY-----"])
    assert censored("private_key", list(f"Here: {key} Done.")) == "Here: [X] Done."
    cut = key[: key.rindex(lines[-1]) + 10]
    assert censored("private_key", list(f"Here: {cut}")) == "Here: [X]"


def test_a_private_key_is_certain_with_its_first_line() -> None:
    censor = Censor(program("private_key"))
    assert censor.feed("-----BEGIN PRIVATE KEY-----") == "[X]"
    assert [censor.feed(char) for char in "\nMC4CAQAw"] == [""] * 9
    assert censor.held == 0 or censor.finish() == ""


def test_a_key_on_one_line_is_swallowed_and_prose_behind_it_is_not() -> None:
    key = " ".join(["-----BEGIN PRIVATE KEY-----", *["q3kW0vZ7m5oO2gC9Xx1TjH8y"] * 60])
    assert censored("private_key", list(f"{key} is the key")) == "[X] is the key"
    assert censored("private_key", list("The line -----BEGIN PRIVATE KEY----- begins it")) == "The line [X] begins it"


@pytest.mark.parametrize("length", [20, 127, 128, 129, 400, 3000])
def test_a_token_of_any_length_leaves_nothing_behind(length: int) -> None:
    header = urlsafe_b64encode(b'{"kid":"1","alg":"RS512"}').decode().rstrip("=")
    payload, signature = base64_of(length).replace("/", "_").replace("+", "-"), base64_of(683).replace("/", "_")
    token = f"{header}.{payload}.{signature.replace('+', '-')}"
    assert censored("jwt", list(f"Bearer {token}. Then")) == "Bearer [X]. Then"


@pytest.mark.parametrize("padding", range(6))
@pytest.mark.parametrize("space", ["", " ", "\n "])
def test_a_token_header_may_have_its_algorithm_anywhere(padding: int, space: str) -> None:
    header = f'{{"k":"{"x" * padding}",{space}"alg":{space}"none"}}'
    token = f"{urlsafe_b64encode(header.encode()).decode().rstrip('=')}.e30.c2ln"
    assert found("jwt", f"<{token}>") == [token]


def test_a_url_longer_than_what_may_be_held_is_one_match() -> None:
    url = "https://example.com/?" + "&".join(f"key{number}=value.{number}" for number in range(300))
    assert censored("url", list(f"<{url}>")) == "<[X]>"
    assert found("url", f"<{url}>") == [url]


def test_false_hits_are_counted_by_sentence() -> None:
    text = "Since version 1.15.5.4. Ask 10.0.0.1 or 10.0.0.2, or a@example.com. Nothing else.\n\n"
    counted = false_hits.count([text, text], all_false=False)
    assert counted.sentences == 6
    assert {name: len(sentences) for name, sentences in counted.touched.items()} == {"ipv4": 4, "email": 2}
    assert {name: len(sentences) for name, sentences in counted.falsely.items() if sentences} == {"ipv4": 2}
    assert counted.hits["ipv4", "10.0.0.2"] == 2
    assert "  ipv4 x2 FALSE: Since version >>>1.15.5.4<<<. Ask 10.0.0.1 or 10" in false_hits.report("text", counted)


# Flagged or left out.
LEFT_BY_THE_POLICY = (
    *("ipv4", "ipv6", "mac_address", "url", "date_of_birth", "coordinates", "crypto_address", "wallet_secret"),
)


def test_the_shipped_policy_is_made_of_detectors() -> None:
    policy = load(str(POLICY), {}).policies["pii"]
    assert {rule.detector for rule in policy.rules} == {*DETECTORS} - {"url", "wallet_secret"}
    compiled = compile_policy(policy)
    outputs = {}
    for name, detector in DETECTORS.items():
        censor = Censor(compiled.program(Direction.OUTPUT, Channel.CONTENT))
        begin = f"<{detector.introduction}"
        outputs[name] = (censor.feed(f"{begin}{detector.examples[0]}>") + censor.finish()).removeprefix(begin)
    assert outputs == {
        "email": "[EMAIL]>",
        "credit_card": "[CARD]>",
        "iban": "[IBAN]>",
        "us_ssn": "[SSN]>",
        "phone": "[PHONE]>",
        "private_key": "[PRIVATE KEY]>",
        "api_key": "[API KEY]>",
        "jwt": "[TOKEN]>",
        "credential": "[CREDENTIAL]>",
        "national_id": "[ID NUMBER]>",
        "passport": "[PASSPORT]>",
        "hidden_text": "[HIDDEN TEXT]>",
        **{name: f"{DETECTORS[name].examples[0]}>" for name in LEFT_BY_THE_POLICY},
    }


def test_detectors_do_not_get_into_each_others_way() -> None:
    rules = tuple(Rule(id=name, detector=name, replacement=f"[{name}]") for name in DETECTORS)
    compiled = compile_policy(Policy(name="test", rules=rules)).program(Direction.OUTPUT, Channel.CONTENT)
    text = "; ".join(each.introduction + each.examples[0] for each in DETECTORS.values())
    outputs = set()
    for cut in (1, 3, 7, len(text)):
        censor = Censor(compiled)
        edges = [*range(0, len(text), cut), len(text)]
        outputs.add("".join(censor.feed(text[a:b]) for a, b in pairwise(edges)) + censor.finish())
    assert outputs == {"; ".join(f"{each.introduction}[{name}]" for name, each in DETECTORS.items())}
