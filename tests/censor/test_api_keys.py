"""API keys: one of each form, the kept rule set included, and names that begin like keys."""

from __future__ import annotations

import random
import re
import string

import pytest

from gateway import censor_stream
from gateway.automata.regex import Alternation, Chars, Concat, Node, Repeat, parse
from gateway.censor.detectors import DETECTORS
from gateway.censor.detectors.issuers import KEPT, Kept, branches, is_random
from gateway.censor.detectors.keys import OWN, checksum
from loadtest import secret_rules
from tests.support.found import censored, found

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"


def random_text(seed: str, length: int, alphabet: str = ALNUM) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=length))


# A key for each form of our own that the examples leave out; in two halves, so that scanners of repositories do not
# take them for leaks.
MORE_KEYS = (
    "ghs_" + "1234567_eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJnaXRodWIifQ.c2lnbmF0dXJl-_",
    "glpat-" + f"{'aB_' * 9}.01.0a1b2c3d4",
    "whsec_" + "aB3" * 12,
    "shpat_" + "0a" * 16,
    "dapi" + "0a" * 16,
    "glsa_" + f"{'aB' * 16}_{'0a' * 4}",
    "gsk_" + "aB" * 26,
    "rubygems_" + "0a" * 24,
    "sk-or-v1-" + "0a" * 32,
    "GOCSPX-" + "aB" * 14,
    "xapp-1-" + "A0123456789-0123456789-0a1b2c3d",
    "dckr_pat_" + "aB-" * 9,
    "hvs." + "aB_" * 20,
    "pplx-" + "aB" * 24,
    "xai-" + "aB" * 40,
    "AGE-SECRET-KEY-1" + "QZ" * 29,
    "secret_" + random_text("notion", 43),
    "EAAB" + random_text("meta", 150),
    random_text("mailchimp", 32, HEX) + "-us12",
    "123456789:" + f"AA{random_text('telegram', 33)}",
    "MTk4NjIyNDgzNDcxOTI1MjQ4." + "Cl2FMQ." + random_text("discord", 38),
    "AAAA" + f"{random_text('f', 7)}:{random_text('firebase', 140)}",
    "1//0" + random_text("refresh", 60),
    "sq0csp-" + random_text("square", 43),
    "https://discord.com/api/webhooks/" + f"123456789012345678/{random_text('webhook', 68)}",
    "discordapp.com/api/webhooks/" + f"123456789012345678/{random_text('webhook', 68)}",
    "webhook.office.com/webhookb2/"
    + "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f@0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f/IncomingWebhook/"
    + f"{'0a' * 16}/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f",
    "hooks.slack.com/services/" + f"T01234567/B01234567/{random_text('slack', 24)}",
    "hooks.zapier.com/hooks/catch/" + "123456/abc12de",
    "ya29." + f"a0Af{random_text('google', 180)}",
    "ya29." + random_text("google", 2000),
    "fm2_" + random_text("fly", 200),
    "xoxd-" + random_text("cookie", 150) + "%2B" + random_text("cookie", 20),
    "gcntfy-" + "my_service-26785a09-ab16-4eb0-8407-a37497a57506-3d844edf-8d35-48ac-975b-e847b4f122b0",
    "sl." + f"u.{random_text('dropbox', 1300)}",
    "bedrock-api-key-" + random_text("bedrock", 1200),
    random_text("relic", 36, HEX) + "NRAL",
    random_text("gun", 32, HEX) + "-0a1b2c3d-4e5f6a7b",
    "123456789012345|" + random_text("app", 27),
    "1/1234567890123456:" + random_text("asana", 32, HEX),
    "2/1234567890123456/6543210987654321:" + random_text("asana", 32, HEX),
    "AstraCS:" + f"{random_text('astra', 24)}:{random_text('astra', 64, HEX)}",
    "access_token$production$" + f"{random_text('tree', 16, '0a1b2c3d4e')}${random_text('tree', 32, HEX)}",
    "0.0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f." + f"{random_text('warden', 30)}:{random_text('warden', 22)}==",
    "00D" + f"{random_text('force', 12)}!{random_text('force', 96)}",
    "0.A" + f"{random_text('graph', 60)}.AgABAAE{random_text('graph', 200)}",
    "hook.eu1.make.com/" + random_text("make", 32, "0a1b2c3d4e"),
    "maker.ifttt.com/trigger/door/with/key/" + random_text("ifttt", 22),
    "chat.googleapis.com/v1/spaces/AAAA0a1b/messages?key="
    + f"AIza{random_text('c', 35)}&token={random_text('chat', 43)}",
    "logic.azure.com:443/workflows/"
    + f"{random_text('flow', 32, HEX)}/triggers/manual/paths/invoke?api-version=1&sig={random_text('flow', 43)}",
)
BEHIND_KEYS = (
    ("Microsoft Entra ID", "abc8", "Q~" + random_text("entra", 34)),
    ("Mattermost", "https://chat.example.com", "/hooks/" + random_text("matter", 26, "0a1b2c3d4e")),
    ("HCP Terraform", "abcdefghij1234", ".atlasv1." + random_text("terraform", 67)),
)


def test_each_issuer_of_our_own_has_an_example() -> None:
    keys = (*DETECTORS["api_key"].examples, *MORE_KEYS, *(key for _, _, key in BEHIND_KEYS))
    for issuer in OWN:
        assert issuer.page == "" or issuer.page.startswith("https://")
        assert any(re.fullmatch(issuer.form, key) for key in keys), issuer


def test_checksums() -> None:
    assert checksum("zQWBuTSOoRi4A9spHcVY5ncnsDkxkJ") == "0mLq17"
    assert checksum("") == "000000"


@pytest.mark.parametrize("lead", ["ghp_", "ghs_", "npm_"])
def test_a_key_with_the_right_checksum_is_found_whatever_it_looks_like(lead: str) -> None:
    for body in ("ZjUMRAYDWzcwtknvAdhvvpFbwhLHMw", "x" * 30, "mxAgpdnQKugFrmnNDNNZVCwfhgafmR"):
        key = lead + body + checksum(body)
        assert found("api_key", f"TOKEN={key}") == [key]
        assert censored("api_key", list(f"It is {key}.")) == "It is [X]."


def test_the_number_before_the_secret_of_an_application_need_not_look_random() -> None:
    key = "404094575895439|uwPLxmvhJTyflxMYyZNBxFSASDp"
    assert not is_random(key) and is_random(key.rpartition("|")[2])
    assert found("api_key", f"token={key}") == [key]


def test_a_key_without_the_right_checksum_looks_random() -> None:
    for lead in ("ghp_", "gho_", "npm_"):
        key = lead + random_text(lead, 36)
        assert found("api_key", f"TOKEN={key}") == [key]
        for placeholder in ("x" * 36, "1234567890abcdefghijklmnopqrstuvwxyz"):
            assert censored("api_key", [lead + placeholder]) == lead + placeholder


@pytest.mark.parametrize("key", MORE_KEYS, ids=[key[:20] for key in MORE_KEYS])
def test_more_keys(key: str) -> None:
    assert found("api_key", f"export KEY={key}\n") == [key]
    assert censored("api_key", list(f"It is {key}.")) == "It is [X]."


@pytest.mark.parametrize(("issuer", "before", "key"), BEHIND_KEYS)
def test_what_any_word_may_begin_with_stays(issuer: str, before: str, key: str) -> None:
    assert censored("api_key", list(f"It is {before}{key} now")) == f"It is {before}[X] now"


def sample(node: Node, source: random.Random) -> str:
    """A text in the language."""
    match node:
        case Chars(chars):
            return source.choice([char for char in map(chr, range(33, 127)) if char in chars])
        case Concat(parts):
            return "".join(sample(part, source) for part in parts)
        case Alternation(options):
            return sample(source.choice(options), source)
        case Repeat(inner, low, high):
            count = low if high is None else source.randint(low, min(high, low + 10))
            return "".join(sample(inner, source) for _ in range(count))
    raise AssertionError(node)


def key_of(kept: Kept) -> str:
    source = random.Random(kept.name)
    while not is_random(rest := sample(parse(kept.rest), source)):
        pass
    return source.choice(kept.leads) + rest


@pytest.mark.parametrize("kept", KEPT, ids=[kept.name for kept in KEPT])
def test_a_key_of_each_kept_rule_is_found(kept: Kept) -> None:
    key = key_of(kept)
    for text in ("export KEY={}\n", "It is {}.", '{{"key": "{}"}}', "`{}`, or", "请看{}。"):
        assert found("api_key", text.format(key)) == [key]
    at = len(key) // 2
    assert censored("api_key", ["It is ", key[:at], key[at:], ", or so."]) == "It is [X], or so."


def test_the_kept_rules_are_those_of_many_issuers() -> None:
    issuers = {kept.name.partition("-")[0] for kept in KEPT} | {issuer.name.lower() for issuer in OWN}
    assert len(issuers) >= 150
    assert not {kept.name for kept in KEPT} & secret_rules.LEFT_OUT


@pytest.mark.parametrize(
    "text",
    [
        "lip_sync_animation_controller_state",
        "prf_performance_counters_enabled",
        "tss_segment_descriptor_of_the_kernel",
        "STS.AssumeRoleWithWebIdentity",
        "API-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
        "cursor key_" + "0" * 64,
        "pina_colada_recipe_with_coconut_cream",
        "sm_pat_xxxxxxxxxxxxxxxx",
        "sbp_" + "x" * 40,
        "hooks.slack.com/services/T000/B000/XXXX",
        "https://discord.com/api/webhooks/",
        "secret_manager_configuration_for_production_use",
        "sha256~deadbeef",
        "1234567890:AA",
        "pat.riot, sat.urday",
        "EAAB is no token",
        "ya29.short",
        "key-value, pubkey-only, access-sandbox-1",
    ],
)
def test_names_and_placeholders_are_no_keys(text: str) -> None:
    assert censored("api_key", list(text)) == text


@pytest.mark.parametrize(
    ("words", "expression"),
    [
        (["abc"], "abc"),
        (["abc", "abd"], "ab(?:c|d)"),
        (["ab", "abc", "x."], "ab(?:c)?|x\\."),
        (["a", "abc", "abd", "abcd"], "a(?:b(?:c(?:d)?|d))?"),
    ],
)
def test_beginnings_share_what_they_have_in_common(words: list[str], expression: str) -> None:
    assert "|".join(branches(words)) == expression
    for word in words:
        assert re.fullmatch(expression, word)


RULES = r"""# This file has been auto-generated. Do not edit manually.
# If you would like to contribute new rules, please use

[[rules]]
id = "plain.1"
regex = '''\b(ab[cd]_[a-f0-9]{32})(?:\\?['"\x60]|[\s;]|\\[nr]|$)'''
[[rules]]
id = "flags-in-the-middle"
regex = '''dp\.pt\.(?i)[a-z0-9]{43}'''
[[rules]]
id = "assigned"
regex = '''(?i)(?:relic)[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}(NRAK-[a-z0-9]{27})\b'''
[[rules]]
id = "alternatives"
regex = '''\b(bka_[\w-]{9}|bkj_(?:[a-z]{2})?x{3,})(?:$|[^A-Za-z0-9_-])'''
[[rules]]
id = "without-a-beginning"
regex = '''\b([a-z0-9]{32})\b'''
[[rules]]
id = "of-little-confidence"
regex = '''\b(abc_[a-z0-9]{32})\b'''
confidence = "low"
[[rules]]
id = "of-anything"
regex = '''\b(abc_.{32})\b'''
[[rules]]
id = "jwt"
regex = '''\b(eyJ[a-z0-9]{32})\b'''
description = '''the last one'''
"""


@pytest.mark.parametrize("behind", ["", "\0and so on"])
def test_the_table_is_made_of_the_rule_set(behind: str, tmp_path) -> None:
    path = tmp_path / "rules"
    path.write_text(("" if not behind else "before") + RULES + behind)
    assert list(secret_rules.lines(secret_rules.rules(path))) == [
        "",
        "[words]",
        "alternatives-2 = {leads = ['bkj_'], rest = '(?:[a-z]{2})?x{3,}'}",
        "assigned = {leads = ['NRAK-'], rest = '[a-zA-Z0-9]{27}'}",
        "flags-in-the-middle = {leads = ['dp.pt.'], rest = '[a-zA-Z0-9]{43}'}",
        "plain = {leads = ['abc_', 'abd_'], rest = '[a-f0-9]{32}'}",
        "",
        "[tokens]",
        "alternatives = {leads = ['bka_'], rest = '[0-9A-Z_a-z\\-]{9}'}",
        "",
        "[others]",
    ]


def test_a_key_is_found_whatever_one_character_fills_it_up() -> None:
    """Of a key without a fixed length, what is repeated behind it hides nothing."""
    for key in (f"sk_live_4eC39HqLyjWDarjtT1zdp7dc{'x' * 20}", f"glpat-Zk3v9QmT7wPz4LbRx2Yc{'0' * 16}"):
        text = f"key {key}, {key[:6]}{'x' * 24}"
        for pieces in ([text], list(text)):
            shown = "".join(censor_stream(pieces, {"detector": "api_key", "replacement": "#"}))
            assert key[8:26] not in shown and shown.startswith("key #")
