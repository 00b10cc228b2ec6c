"""Warnings: valid configurations that are probably not meant so."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import parse, warnings

SECRET = "hunter2"


def found(
    rules: str = "",
    *,
    policy: str = "",
    upstreams: str = "u: {type: demo}",
    routes: str = "",
    others: str = "",
    more: str = "",
) -> list[str]:
    text = f"""
{more}
upstreams: {{{upstreams}}}
routes: [{routes or "{model: '*', upstream: u, policy: p}"}]
policies: {{p: {{{policy} rules: [{rules}]}}, {others}}}
"""
    return list(warnings(parse(text, "F", Path(), {})))


LISTED = [f"w{number:04}" + "x" * 9_995 for number in range(200)]  # 2,000,000 characters
LESS = [LISTED[0][:-1], *LISTED[1:]]
CASES = {
    "nothing": ({"rules": "{id: r, words: [x]}"}, []),
    "a strength that carry and masks do not have": (
        {"rules": "{id: r, words: [secrets], carry: true, decode: mask, strength: careful}"},
        [
            "policies.p.rules[0].carry: sees through no disguise, code or edit; across answers a word is found as it "
            "is",
            "policies.p.rules[0].decode: the mask sees through no disguise, code or edit; a word so written is left "
            "to the action",
            "routes[0]: upstream u is not of type: vllm, so decode: mask has no effect there; the rules of policy p "
            "act on what is said",
        ],
    ),
    "carry as it is": ({"rules": "{id: r, words: [secrets], carry: true}"}, []),
    "upstream without a route": (
        {"upstreams": "u: {type: demo}, v: {type: demo}"},
        ["upstreams.v: no route uses this upstream"],
    ),
    "upstream that is only asked after another": (
        {
            "upstreams": "u: {type: demo}, v: {type: demo}",
            "routes": "{model: '*', upstreams: [u, v], balance: least_busy, policy: p}",
        },
        [],
    ),
    "azure's deployments without a version": (
        {"upstreams": "u: {base_url: 'https://h/openai/deployments/{model}'}"},
        ["upstreams.u.base_url: is that of Azure's deployments, which ask for an api_version"],
    ),
    "azure's deployments": (
        {"upstreams": "u: {base_url: 'https://h/openai/deployments/{model}', api_version: preview}"},
        [],
    ),
    "the caller's key": ({"upstreams": "u: {base_url: 'https://h/v1', api_key: passthrough}"}, []),
    "the caller's key beside the gateway's": (
        {"upstreams": "u: {base_url: 'https://h/v1', api_key: passthrough}", "more": "auth: {keys: [sk-1]}"},
        [
            "upstreams.u.api_key: passthrough: clients send their own key for it as Authorization, and the gateway's "
            "as x-portcullis-key; the key of a request without x-portcullis-key is not forwarded"
        ],
    ),
    "balance of one upstream": (
        {"routes": "{model: '*', upstreams: [u], balance: least_busy, policy: p}"},
        ["routes[0].balance: has no effect with one upstream"],
    ),
    "admin listener that others can reach": (
        {"more": "listen: {admin: {host: 0.0.0.0, port: 9090}}"},
        ["listen.admin: metrics are readable by everybody who reaches this address; no key is asked for there"],
    ),
    **{
        f"d31 metrics on a public address: {host}": (
            {"more": f"listen: {{host: '{host}'}}\nauth: {auth}"},
            [
                "listen.host: /metrics, with the names of keys, rules and upstreams, is readable by everybody who "
                "reaches this address; no key is asked for there: move it with listen.admin"
            ],
        )
        for host, auth in (("0.0.0.0", "{keys: [k]}"), ("::", "none"), ("10.1.2.3", "{keys: [k]}"), ("box", "none"))
    },
    **{
        f"d31 metrics on {listen}": ({"more": f"listen: {{{listen}}}\nauth: {{keys: [k]}}"}, [])
        for listen in ("host: 0.0.0.0, admin: {port: 9090}", "host: localhost", "host: '::1'", "port: 8080")
    },
    "admin listener for this machine": ({"more": "listen: {admin: {host: '::1', port: 9090}}"}, []),
    "limits without shared state": ({"more": "auth: {keys: [{name: a, key: k, rpm: 1}]}"}, []),
    "key for policies without a route": (
        {"more": f"auth: {{keys: [k, {{name: a, key: {SECRET}, policies: [q]}}]}}", "others": "q: {}"},
        [
            "auth.keys[1].policies: no route uses any of these policies, so the key is of no use",
            "policies.q: no route uses this policy",
        ],
    ),
    "key for one policy with a route": (
        {"more": "auth: {keys: [{name: a, key: k, policies: [q, p]}]}", "others": "q: {}"},
        ["policies.q: no route uses this policy"],
    ),
    "shared state without limits": (
        {"more": f"state: 'redis://:{SECRET}@h'\nauth: {{keys: [k, {{name: a, key: x, models: [m]}}]}}"},
        ["state: no key has a limit (rpm, tpm, max_streams), so there is nothing to share"],
    ),
    "shared state without keys": (
        {"more": "state: 'redis://h'"},
        ["state: no key has a limit (rpm, tpm, max_streams), so there is nothing to share"],
    ),
    "shared state and a limit": (
        {"more": "state: 'redis://h'\nauth: {keys: [k, {name: a, key: x, max_streams: 1}]}"},
        [],
    ),
    "key in the clear": (
        {"upstreams": "u: {base_url: 'http://example.org/v1', api_key: k}"},
        ["upstreams.u.base_url: http to another machine sends api_key unencrypted; use https"],
    ),
    **{
        f"e10 {url}": (
            {"upstreams": f"u: {{base_url: '{url}'}}"},
            [
                "upstreams.u.base_url: has no version in its path, and most servers answer below /v1: write it, "
                "as in https://api.openai.com/v1, unless /chat/completions is directly below this address"
            ],
        )
        for url in ("http://h", "https://h:8000/", "https://h/api", "https://h/version1", "https://h/openai")
    },
    **{
        f"e10 {url}": ({"upstreams": f"u: {{base_url: '{url}'}}"}, [])
        for url in ("http://h/v1", "http://h/api/v3/", "https://h/v1beta/openai", "https://h/v1.0")
    },
    "e10 a list of just less than is told": (
        {"policy": "max_hold: 10000,", "rules": "{id: r, words: [" + ", ".join(LESS) + "]}"},
        [],
    ),
    "e10 a large list": (
        {"policy": "max_hold: 10000,", "rules": "{id: r, words: [" + ", ".join(LISTED) + "]}"},
        [
            "policies.p.rules[0]: to compile 200 words takes about 3 seconds of a core and 60 MB, at every start, "
            "in each worker and at every reload that changes the policy",
        ],
    ),
    "key in the clear to this machine": ({"upstreams": "u: {base_url: 'http://[::1]:1/v1', api_key: k}"}, []),
    "key over https": ({"upstreams": "u: {base_url: 'https://example.org/v1', api_key: k}"}, []),
    "no key over http": ({"upstreams": "u: {base_url: 'http://example.org/v1'}"}, []),
    "shadowed by a star": (
        {"routes": "{model: '**', upstream: u, policy: p}, {model: gpt, upstream: u, policy: p}"},
        ["routes[1]: is never reached, since routes[0] comes first and matches the same models"],
    ),
    "shadowed by its like": (
        {
            "routes": "{model: a, upstream: u, policy: p}, {model: b, upstream: u, policy: p}, "
            "{model: b, upstream: u, policy: p}, {model: '*', upstream: u, policy: p}"
        },
        ["routes[2]: is never reached, since routes[1] comes first and matches the same models"],
    ),
    "policy without a route": (
        {"others": "q: {}"},
        ["policies.q: no route uses this policy"],
    ),
    "long words": (
        {"policy": "max_hold: 4,", "rules": f"{{id: r, words: [abcd, abcde, {SECRET}]}}"},
        [
            "policies.p.rules[0]: 2 of the 3 words of rule r are longer than max_hold (4), "
            "the longest match there can be"
        ],
    ),
    "replacement holds its own word": (
        {"rules": "{id: r, words: [MONKEY], replacement: '<monkeys>'}"},
        ["policies.p.rules[0].replacement: contains a word of rule r"],
    ),
    "replacement holds it in another case": ({"rules": "{id: r, words: [MONKEY], replacement: monkey, fold: []}"}, []),
    "the default replacement holds a word": (
        {"rules": "{id: r, words: [x]}, {id: s, words: [redact], action: flag}"},
        ["policies.p.rules[0].replacement: contains a word of rule s"],
    ),
    "mask is a word": (
        {"rules": "{id: r, words: ['*'], mask: '*'}"},
        ["policies.p.rules[0].mask: contains a word of rule r"],
    ),
    "message holds another rule's word": (
        {"rules": "{id: r, words: [x], action: block, message: 'no yz'}, {id: s, words: [y], mask: '#'}"},
        ["policies.p.rules[0].message: contains a word of rule s"],
    ),
    "block without a message": ({"rules": "{id: r, words: [x], action: block}"}, []),
    "empty replacements": (
        {"rules": "{id: r, words: [x], replacement: ''}, {id: s, words: [y], replacement: ''}"},
        ["policies.p.rules[0].replacement: an empty replacement can join the text around it into a match"],
    ),
}

UNBOUNDED = (
    "policies.p.rules[0].pattern: its matches can be of any length; where one would be longer than max_hold (1024), "
    "on_overflow (release) decides"
)
REOPENS = (
    "policies.p.rules[0].pattern: what ends one match can begin the next, and every substring counts: "
    "the text between two matches is a match, too"
)
UNSEEN = (
    "policies.p.rules[0].pattern: a class in it can never match, because fold (width, invisible, punctuation) changes "
    "or removes each of its characters before they are compared; write what is left of them, or narrow fold"
)
CASES |= {
    "bounded pattern": ({"rules": r"{id: r, pattern: '\bPROJ-\d{1,6}\b'}"}, []),
    "unbounded pattern": ({"rules": "{id: r, pattern: '<[^>]+>'}"}, [UNBOUNDED]),
    "pattern whose delimiter reopens it": ({"rules": """{id: r, pattern: '"[^"]{0,9}"'}"""}, [REOPENS]),
    "unbounded pattern whose delimiter reopens it": (
        {"rules": """{id: r, pattern: '"[^"]*"'}"""},
        [UNBOUNDED, REOPENS],
    ),
    "pattern that cannot match": (
        {"rules": r"{id: r, pattern: 'a\bb'}"},
        ["policies.p.rules[0].pattern: can match nothing; look at what it asks for on the two sides of a \\b, ^ or $"],
    ),
    "pattern longer than max_hold": (
        {"policy": "max_hold: 4,", "rules": r"{id: r, pattern: '\d{3,5}'}"},
        [
            "policies.p.rules[0].pattern: its longest match needs 5 characters, which is more than max_hold (4), "
            "the longest match there can be"
        ],
    ),
    "class of what folding removes": ({"rules": r"{id: r, pattern: 'x[\u200b\u00ad]?y'}"}, [UNSEEN]),
    "class of what folding changes": ({"rules": "{id: r, pattern: '([Ａ-Ｚ]|x)y'}"}, [UNSEEN]),
    "class of accents": (
        {"rules": "{id: r, pattern: '(?i)caf[é]', fold: [accents]}"},
        [UNSEEN.replace("width, invisible, punctuation", "accents")],
    ),
    "class of accents that count": ({"rules": "{id: r, pattern: 'caf[é]'}"}, []),
    "literals that folding changes": ({"rules": "{id: r, pattern: 'ＡＢ\\uFF23é'}"}, []),
    "class with more than what folding changes": ({"rules": r"{id: r, pattern: '[Ａa]\w\S[^b]'}"}, []),
    "replacement holds a match": (
        {"rules": r"{id: r, words: [x]}, {id: s, pattern: '\[[A-Z]{8}\]', replacement: y}"},
        ["policies.p.rules[0].replacement: contains a match of rule s"],
    ),
    "mask is a match": (
        {"rules": r"{id: r, pattern: '#{3,5}', mask: '#'}"},
        ["policies.p.rules[0].mask: contains a match of rule r"],
    ),
    "message holds a match of a rule for prompts": (
        {
            "rules": "{id: r, words: [x], action: block, message: no 12}, "
            r"{id: s, pattern: '\d\d', apply_to: [input], channels: [other], action: flag}"
        },
        ["policies.p.rules[0].message: contains a match of rule s"],
    ),
    "what pseudonymize has no use for": (
        {"rules": "{id: r, words: [x], action: pseudonymize, replacement: x, message: y}"},
        [
            "policies.p.rules[0].replacement: has no effect with action: pseudonymize",
            "policies.p.rules[0].message: has no effect with action: pseudonymize; only action: block shows a message",
        ],
    ),
}


@pytest.mark.parametrize(("parts", "expected"), CASES.values(), ids=list(CASES))
def test_warnings(parts: dict[str, str], expected: list[str]) -> None:
    warned = found(**parts)
    assert warned == expected
    assert SECRET not in "".join(warned)
