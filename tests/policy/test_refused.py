"""Refused configurations: each with its exact key path and without secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.policy.model import (
    DEFAULT_FOLD,
    Rule,
)
from tests.support.policies import PARTS, SECRET, read_parts, read_rule, refused, text_of

# Text that is no configuration

NOT_A_CONFIGURATION = {
    "empty": ("", "", "the file is empty"),
    "only a comment": ("# nothing\n", "", "the file is empty"),
    "a list": ("- a", "", "must be a mapping with keys such as listen, auth, upstreams, not a list"),
    "text": ("hello", "", "must be a mapping with keys such as listen, auth, upstreams, not 'hello'"),
    "nothing": ("---\n", "", "not nothing"),
    "two documents": (text_of() + "\n---\n" + text_of(), "", "a file is one document: remove the line `---`"),
    "syntax": ("listen: {host: x\nauth: y", "", "line 2, column 5: not valid YAML: "),
    "half JSON": ('{"listen": {', "", "line 1, column 13: not valid YAML: "),
    "unquoted reference": ("auth: {keys: [${A}]}", "", "quotes around values that hold , : # ' [ ] { }"),
    "comment within a list": ("auth:\n  keys: [a #b]\n", "", "quotes around values that hold , : # ' [ ] { }"),
    "missing comma": ("listen: {host: a port: 1}", "", "put a comma between entries"),
    "value continues behind a bracket": ("a:\n  b: [0-9]{3}", "", "put the whole value in quotes"),
    "value continues behind a quotation mark": ('a:\n  b: "c" d', "", "put the whole value in quotes"),
    "no blank behind a dash": ("routes:\n  -{model: a, upstream: b}", "", "a space after the - of an entry"),
    "no blank behind the only dash": ("routes:\n  -model: a", "routes", "put a space after the -"),
    "no blank behind the dash of a text": ("auth:\n  keys:\n    -a", "auth.keys", "put a space after the -"),
    "no blank behind a colon": ("listen: {port:8080}", "listen.port:8080", "unknown key; put a space after the colon"),
    "no blank behind the only colon": ("listen:\n  port:8080", "listen", "'port:8080'; put a space after the colon"),
    "no-break spaces": ("listen: {\xa0port: 1}", r"listen.'\xa0port'", "write plain spaces around 'port'"),
    "unquoted star": (f"auth: {{keys: [*{SECRET}]}}", "", "line 1, column 15: not valid YAML: found undefined alias"),
    "tab as indentation": ("listen:\n\thost: x", "", "that cannot start any token; indent with spaces"),
    "star as a glob": ("routes: [{model: *, upstream: a}]", "", "begins with * or & in quotes, as in '*'"),
    "pattern in double quotes": ('a: "\\d"', "", r"write '\d' in single quotes"),
    "colon in a value": ("a: b: c", "", "put a value that holds `: ` in quotes"),
    "uneven indentation": ("a:\n  b: 1\n c: 2", "", "look at the indentation of this line"),
    "open quote": ('a: "x', "", "close the quotation mark"),
    "unknown tag handle": (f"auth: !{SECRET}!x y", "", "line 1, column 7: not valid YAML: found undefined tag handle"),
    "sign that begins no value": ("listen: @x", "", "found character '@' that cannot start any token"),
    "bad escape": ('listen: "\\UFFFFFFFF"', "", "an escape such as \\U names no character"),
    "NUL": ("listen:\n  {host: a\0b}", "", "line 2: the character U+0000 is not allowed in YAML"),
    "lone surrogate in the text": ("listen: \ud800", "", "line 1: the character U+D800 is not allowed"),
    "very deep YAML": ("listen: " + "[" * 5000, "", "nested too deeply"),
    "very deep JSON": ('{"listen": ' + "[" * 100_000, "", "nested too deeply"),
    "tag": (f"auth: !{SECRET} x", "auth", "YAML tags are not supported"),
    "tag of a mapping": ("listen: !!set {a, b}", "listen", "YAML tags are not supported"),
    "alias inside itself": ("listen: &a [*a]", "listen[0]", "an alias stands inside the value that it repeats"),
    "merge key": ("listen: {<<: {port: 1}}", "listen", "merge keys (<<) are not supported"),
    "list as a key": ("listen: {? [a] : b}", "listen", "a key must be text, not a list or a mapping"),
    "boolean as a key": ("listen: {on: 1}", "listen.on", "reads the key on as true or false: quote it"),
    "number as a key": ("policies: {007: {}}", "policies.007", "reads the key 007 as a number: quote it"),
    "date as a key": ("policies: {2026-01-02: {}}", "policies.2026-01-02", "as a date: quote it"),
    "tagged key": ("policies: {!x y: {}}", "policies.y", "a key must be text"),
    "same key twice": (
        "listen:\n  port: 1\n  host: h\n  port: 1",
        "listen.port",
        "'port' is written twice, again on line 4",
    ),
    "same key twice in JSON": ('{"listen": {"port": 1, "port": 1}}', "listen.port", "the key 'port' is written twice"),
    "same key at the top": ("listen: {}\nlisten: {}", "listen", "the key 'listen' is written twice"),
    "half a pair in a value": (r'auth: {keys: ["\ud83d"]}', "auth.keys[0]", "holds half of a surrogate pair"),
    "half a pair in JSON": (r'{"auth": {"keys": ["\ude00\ud83d"]}}', "auth.keys[0]", "half of a surrogate pair"),
    "half a pair in a key": (r'listen: {"\ud83d": 1}', "listen", "half of a surrogate pair"),
}


@pytest.mark.parametrize("case", NOT_A_CONFIGURATION.values(), ids=list(NOT_A_CONFIGURATION))
def test_text_that_is_no_configuration(case: tuple[str, str, str]) -> None:
    refused(*case)


def test_a_variable_that_is_no_text() -> None:
    refused(text_of(auth="{keys: ['${A}']}"), "auth.keys[0]", "half of a surrogate pair", {"A": "\udcff"})


FILES = {
    "invalid UTF-8": (b"listen:\n  host: \xff\n", "line 2: not valid UTF-8"),
    "UTF-16": ("listen: {}".encode("utf-16"), "line 1: not valid UTF-8"),
    "UTF-16 without a mark": ("# x\nlisten: {}".encode("utf-16-le"), "line 1: holds a NUL character"),
    "empty": (b"", "the file is empty"),
}


@pytest.mark.parametrize(("data", "reason"), FILES.values(), ids=list(FILES))
def test_files_that_cannot_be_text(data: bytes, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "F"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert str(caught.value).startswith(f"{file}: {reason}")


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, reason in {tmp_path / "none": "file not found", tmp_path: "is a directory, not a file"}.items():
        with pytest.raises(ConfigError) as caught:
            load(path, {})
        assert str(caught.value) == f"{path}: {reason}"
    (tmp_path / "file").touch()
    for path in (tmp_path / "file/below", "a\0b"):
        with pytest.raises(ConfigError, match="cannot be read: "):
            load(path, {})


# Keys and values

REFUSED_PARTS = [
    # Unknown keys, with the nearest known one
    ('"a\\nb"', "1", "'a\\nb'", "unknown key"),
    ("auht", "none", "auht", "unknown key; did you mean 'auth'?"),
    ("xyzzy", "1", "xyzzy", "unknown key; known: listen, auth, upstreams, routes"),
    ("listen", "{prot: 1}", "listen.prot", "unknown key; did you mean 'port'?"),
    ("auth", "{key: [a]}", "auth.key", "unknown key; did you mean 'keys'?"),
    ("limits", "{max_boddy: 1}", "limits.max_boddy", "did you mean 'max_body'?"),
    ("upstreams", "{u: {url: x}}", "upstreams.u.url", "unknown key"),
    ("upstreams", "{u: {timeouts: {conect: 1}}}", "upstreams.u.timeouts.conect", "did you mean 'connect'?"),
    ("routes", "[{modle: x}]", "routes[0].modle", "did you mean 'model'?"),
    ("policies", "{p: {rule: []}}", "policies.p.rule", "did you mean 'rules'?"),
    ("policies", "{p: {rules: [{word: x}]}}", "policies.p.rules[0].word", "did you mean 'words'?"),
    # Later versions
    ("otel", "", "otel", "not available in this version; use telemetry"),
    ("upstreams", "{u: {tokenizer: x}}", "upstreams.u.tokenizer", "means nothing with type: openai; it is"),
    # listen
    ("listen", "[]", "listen", "must be a mapping with keys such as host, port, admin, not a list"),
    ("listen", "", "listen", "must be a mapping with keys such as host, port, admin, not nothing"),
    ("listen", "{port: 65536}", "listen.port", "must be a whole number from 0 to 65535, not 65536"),
    ("listen", "{port: -1}", "listen.port", "must be a whole number from 0 to 65535, not -1"),
    ("listen", "{port: 0o17}", "listen.port", "not '0o17'"),
    ("listen", "{port: 0100}", "listen.port", "not 0100"),
    ("listen", "{port: 0x50}", "listen.port", "not 0x50"),
    ("listen", "{port: 8_080}", "listen.port", "not 8_080"),
    ("listen", "{port: 1:30}", "listen.port", "not 1:30"),
    ("listen", "{port: 80.0}", "listen.port", "not 80.0"),
    ("listen", "{port: yes}", "listen.port", "not yes"),
    ("listen", "{port: '8080'}", "listen.port", "not '8080'; remove the quotes"),
    ("listen", f"{{port: {'9' * 5000}}}", "listen.port", "must be a whole number from 0 to 65535, not 999"),
    ("listen", "{port: [1]}", "listen.port", "must be a whole number from 0 to 65535, not a list"),
    ("listen", "{host: 1}", "listen.host", "must be text, not 1; unquoted, YAML reads this as a number: quote it"),
    ("listen", "{host: ''}", "listen.host", "is empty"),
    ("listen", "{host: '[::1]'}", "listen.host", "an IP address (without brackets) or a host name, not '[::1]'"),
    ("listen", "{host: 0.0.0.0}", "listen.host", "'0.0.0.0' can be reached from other machines: set auth.keys, or"),
    ("listen", "{host: '::'}", "listen.host", "can be reached from other machines"),
    # auth
    ("auth", "", "auth", "must be none, or a mapping with keys, not nothing; to let everybody in, write auth: none"),
    ("auth", "~", "auth", "not nothing"),
    ("auth", "no", "auth", "to let everybody in, write auth: none"),
    ("auth", SECRET, "auth", "(the value is not shown)"),
    ("auth", "{}", "auth.keys", "is required"),
    ("auth", "[]", "auth", "not a list"),
    ("auth", "{keys: []}", "auth.keys", "is an empty list; list at least one key, or write auth: none"),
    ("auth", f"{{keys: {SECRET}}}", "auth.keys", "must be a list (the value is not shown); write [...] around it"),
    ("auth", "{keys: ['']}", "auth.keys[0]", "is empty"),
    ("auth", f"{{keys: [a, '{SECRET} x']}}", "auth.keys[1]", "cannot travel in a header"),
    ("auth", f"{{keys: ['{SECRET}é']}}", "auth.keys[0]", "cannot travel in a header"),
    ("auth", "{keys: [12345678]}", "auth.keys[0]", "must be text (the value is not shown); unquoted, YAML reads"),
    ("auth", "{keys: [[a]]}", "auth.keys[0]", "must be text, not a list"),
    # limits
    ("limits", "{max_body: 0}", "limits.max_body", "must be a size from 1 B to 1024 GiB"),
    ("limits", "{max_body: 1025GiB}", "limits.max_body", "not '1025GiB'"),
    ("limits", "{max_event: 1.5MiB}", "limits.max_event", "not '1.5MiB'"),
    ("limits", "{max_event: 4M}", "limits.max_event", "a unit out of B, kB, MB, GB, KiB, MiB, GiB, not '4M'"),
    ("limits", "{max_event: '4'}", "limits.max_event", "not '4'"),
    ("limits", "{max_event: 1.0}", "limits.max_event", "not 1.0"),
    ("limits", "{max_event: true}", "limits.max_event", "not true"),
    ("limits", "{max_streams: 0}", "limits.max_streams", "from 1 to 1000000, not 0"),
    ("limits", "{send_timeout: 0}", "limits.send_timeout", "must be a positive number of seconds, not 0"),
    ("limits", "{send_timeout: yes}", "limits.send_timeout", "not yes"),
    ("limits", "{send_timeout: .inf}", "limits.send_timeout", "not .inf"),
    ("limits", "{send_timeout: 5s}", "limits.send_timeout", "not '5s'"),
    ("limits", f"{{send_timeout: 1{'0' * 400}}}", "limits.send_timeout", "must be a positive number of seconds"),
    # upstreams
    ("upstreams", "{}", "upstreams", "is an empty mapping; it needs at least one entry"),
    ("upstreams", "[]", "upstreams", "must be a mapping of names, not a list"),
    ("upstreams", "{'a b': {}}", "upstreams", "the name 'a b' must be 1 to 64 of the characters"),
    ("upstreams", "{u: demo}", "upstreams.u", "keys such as type, base_url, api_key, not 'demo'"),
    ("upstreams", "{u: {}}", "upstreams.u.base_url", "is required"),
    ("upstreams", "{u: {type: azure}}", "upstreams.u.type", "must be one of openai, vllm, demo, not 'azure'"),
    ("upstreams", "{u: {type: demo, base_url: x}}", "upstreams.u.base_url", "means nothing with type: demo"),
    ("upstreams", "{u: {type: demo, api_key: x}}", "upstreams.u.api_key", "means nothing with type: demo"),
    ("upstreams", "{u: {base_url: 'http://h', api_key: ''}}", "upstreams.u.api_key", "is empty"),
    ("upstreams", "{u: {base_url: 'http://h', api_key: $KEY}}", "upstreams.u.api_key", "written with braces: ${NAME}"),
    ("auth", "{keys: [$KEY]}", "auth.keys[0]", "written with braces: ${NAME}"),
    ("upstreams", "{'u:{type': 'demo}'}", "upstreams", "_ . : -; put a space after the colon"),
    ("upstreams", "{u: {base_url: 'http://h', timeouts: {idle: -1}}}", "upstreams.u.timeouts.idle", "not -1"),
    # routes
    ("routes", "[]", "routes", "is an empty list; it needs at least one entry"),
    ("routes", "{}", "routes", "must be a list, not a mapping"),
    ("routes", "[{upstream: u, policy: p}]", "routes[0].model", "is required"),
    ("routes", "[{model: '', upstream: u, policy: p}]", "routes[0].model", "is empty"),
    ("routes", "[{model: 4, upstream: u, policy: p}]", "routes[0].model", "quote it"),
    ("routes", "[{model: m, policy: p}]", "routes[0]", "exactly one of upstream and upstreams; it has neither"),
    ("routes", "[{model: m, upstream: v, policy: p}]", "routes[0].upstream", "unknown upstream 'v'; known: u"),
    ("routes", "[{model: m, upstream: u}]", "routes[0].policy", "is required"),
    ("routes", "[{model: m, upstream: u, policy: q}]", "routes[0].policy", "unknown policy 'q'; known: p"),
    ("routes", "[{model: m, upstream: u, policy: p, rename: ''}]", "routes[0].rename", "is empty"),
    # policies
    ("policies", "{}", "policies", "is an empty mapping"),
    ("policies", "{p: }", "policies.p", "must be a mapping with keys such as mode, max_hold, on_overflow, not nothing"),
    ("policies", "{p: {mode: off}}", "policies.p.mode", "must be one of enforce, observe, not off"),
    ("policies", "{p: {max_hold: 0}}", "policies.p.max_hold", "from 1 to 1000000, not 0"),
    ("policies", "{p: {max_hold: 1000001}}", "policies.p.max_hold", "from 1 to 1000000, not 1000001"),
    ("policies", "{p: {on_overflow: drop}}", "policies.p.on_overflow", "one of release, redact, block, not 'drop'"),
    ("policies", "{p: {unknown: 1}}", "policies.p.unknown", "must be one of scan, drop, refuse, not 1"),
    ("policies", "{p: {rules: }}", "policies.p.rules", "must be a list, not nothing"),
    ("policies", "{p: {rules: [x]}}", "policies.p.rules[0]", "must be a mapping with keys such as id, words"),
    ("policies", "{p: {rules: [{id: a, words: [x]}, {id: a}]}}", "policies.p.rules[1]", "it has none"),
]  # fmt: skip


@pytest.mark.parametrize(("part", "value", "path", "reason"), REFUSED_PARTS)
def test_refused_parts(part: str, value: str, path: str, reason: str) -> None:
    refused(text_of(**{part: value}), path, reason)


def test_rule_ids_are_unique_within_a_policy_only() -> None:
    rules = "[{id: a, words: [x]}, {id: b, words: [x]}, {id: a, words: [y]}]"
    reason = "must be an id that no earlier rule of the policy has, not 'a'"
    refused(text_of(policies=f"{{p: {{rules: {rules}}}}}"), "policies.p.rules[2].id", reason)
    config = read_parts(policies="{p: {rules: [{id: a, words: [x]}]}, q: {rules: [{id: a, words: [x]}]}}")
    assert [policy.rules[0].id for policy in config.policies.values()] == ["a", "a"]


@pytest.mark.parametrize("part", PARTS)
def test_required_parts(part: str) -> None:
    text = "\n".join(f"{key}: {value}" for key, value in PARTS.items() if key != part)
    refused(text, part, "is required")


BAD_URLS = {
    "ftp://h": "must be an http or https URL with a host, such as https://api.openai.com/v1, not 'ftp://h'",
    "api.openai.com/v1": "not 'api.openai.com/v1'",
    "http://": "not 'http://'",
    "http:///v1": "not 'http:///v1'",
    "http://h:0": "not 'http://h:0'",
    "http://h:99999": "not 'http://h:99999'",
    "http://h:x": "not 'http://h:x'",
    "http://[::1": "not 'http://[::1'",
    "http://h /v1": "in ASCII without spaces",
    "http://hé": "in ASCII without spaces",
    "http://h\\x": "in ASCII without spaces",
    f"http://user:{SECRET}@h": "(the value is not shown); without user name, query and fragment",
    f"http://h/?key={SECRET}": "(the value is not shown)",
    f"http://h/#{SECRET}": "(the value is not shown)",
    f"user:{SECRET}@h": "(the value is not shown)",
    "": "not ''",
}


@pytest.mark.parametrize(("url", "reason"), BAD_URLS.items())
def test_bad_base_urls(url: str, reason: str) -> None:
    refused(text_of(upstreams=f"{{u: {{base_url: '{url}'}}}}"), "upstreams.u.base_url", reason)


def test_long_values_are_cut() -> None:
    error = refused(text_of(policies=f"{{p: {{mode: {'x' * 1000}}}}}"), "policies.p.mode", "x…'")
    assert len(str(error)) < 200


# Rules

REFUSED_RULES = [
    ("{words: [x]}", "id", "is required"),
    ("{id: 007, words: [x]}", "id", "must be text, not 007; unquoted, YAML reads this as a number: quote it"),
    ("{id: '', words: [x]}", "id", "must be 1 to 64 of the characters A-Z a-z 0-9 _ . : -, not ''"),
    ("{id: a b, words: [x]}", "id", "not 'a b'"),
    (f"{{id: {'a' * 65}, words: [x]}}", "id", "must be 1 to 64 of the characters"),
    ("{id: r}", "", "needs exactly one of words, words_file, pattern, detector, protect; it has none of them"),
    (
        "{id: r, words: [x], words_file: y}",
        "",
        "one of words, words_file, pattern, detector, protect; it has words and",
    ),
    ("{id: r, protect: x}", "protect", "must be one of system_prompt, not 'x'"),
    ("{id: r, protect: system_prompt, min_words: 1}", "min_words", "must be a whole number from 2 to 64, not 1"),
    ("{id: r, words: [x], min_words: 4}", "min_words", "is for protect only"),
    ("{id: r, protect: system_prompt, secret: true}", "secret", "is for words only"),
    ("{id: r, protect: system_prompt, whole_word: true}", "whole_word", "is for words only; min_words says"),
    ("{id: r, protect: system_prompt, guard_tail: 3}", "guard_tail", "is for words and patterns"),
    ("{id: r, protect: system_prompt, apply_to: [input, output]}", "apply_to", "must be [output] with protect"),
    ("{id: r, protect: system_prompt, decode: mask}", "decode", "is for words only"),
    ("{id: r, protect: system_prompt, carry: true}", "carry", "is for words only; a protect is looked for"),
    ("{id: r, pattern: x, carry: true}", "carry", "is for words only; a pattern is looked for in each answer"),
    ("{id: r, words: [x], carry: true, apply_to: [input]}", "carry", "is for answers"),
    ("{id: r, words: [x], carry: true, channels: [reasoning]}", "carry", "is for the channel content"),
    ("{id: r, words: [x], variants: [reversed]}", "variants[0]", "must be one of reverse, rot13, base64"),
    ("{id: r, words: [x], variants: 0}", "variants", "must be a list, not 0"),
    (
        "{id: r, words: [x], edits: 1}",
        "words[0]",
        "this word has 1 characters, and edits: 1 is for",
    ),
    ("{id: r, words: [abcdefgh], edits: 2}", "words[0]", "this word has 8 characters, and edits: 2 is for words of at"),
    ("{id: r, words: [abcdefgh], edits: 3}", "edits", "must be a whole number from 0 to 2, not 3"),
    ("{id: r, pattern: x, edits: 1}", "edits", "is for words only"),
    ("{id: r, pattern: x, variants: [hex]}", "variants", "is for words only"),
    ("{id: r, detector: email, fold: [leet]}", "fold[0]", "is for words only: leet, markup, repeats, spacing, url"),
    ("{id: r, words: [x], edits: 3}", "edits", "must be a whole number from 0 to 2, not 3"),
    (
        "{id: r, words: [x], action: censor}",
        "action",
        "one of redact, block, flag, rollback, pseudonymize, not",
    ),
    (
        "{id: r, words: [x], fold: [upper]}",
        "fold[0]",
        "must be one of case, width, accents, invisible, space, punctuation, confusables, leet",
    ),
    ("{id: r, words: [x], fold: case}", "fold", "must be a list, not 'case'; write [...] around it"),
    (f"{{id: r, words: {SECRET}}}", "words", "must be a list (the value is not shown); write [...] around it"),
    (f"{{id: r, words: {{{SECRET}: x}}}}", "words", "must be a list, not a mapping"),
    ("{id: r, words: []}", "words", "is an empty list; it needs at least one entry"),
    ("{id: r, words: [a, '']}", "words[1]", "is empty; a word needs at least one character"),
    ("{id: r, words: [a, b, yes]}", "words[2]", "(the value is not shown); unquoted, YAML reads this as true or false"),
    ("{id: r, words: [007]}", "words[0]", "unquoted, YAML reads this as a number: quote it"),
    ("{id: r, words: [7.5]}", "words[0]", "unquoted, YAML reads this as a decimal number: quote it"),
    ("{id: r, words: [2026-01-02]}", "words[0]", "unquoted, YAML reads this as a date: quote it"),
    ("{id: r, words: [=]}", "words[0]", "unquoted, YAML reads this as a sign of YAML's own: quote it"),
    ("{id: r, words: [<<]}", "words[0]", "quote it"),
    ("{id: r, words: [null]}", "words[0]", "must be text, not nothing; quote it if it begins with #"),
    ("{id: r, words: [&x ]}", "words[0]", "must be text, not nothing; quote it if it begins with #, &"),
    (f"{{id: r, words: [{SECRET}: y]}}", "words[0]", "must be text, not a mapping"),
    ("{id: r, words: [x], mask: ''}", "mask", "must be exactly one character, not ''"),
    ("{id: r, words: [x], mask: '**'}", "mask", "must be exactly one character, not '**'"),
    ("{id: r, words: [x], mask: '*', replacement: y}", "mask", "give either mask or replacement, not both"),
    ("{id: r, words: [x], replacement: 1}", "replacement", "quote it"),
    ("{id: r, words: [x], action: block, message: [y]}", "message", "must be text, not a list"),
    ("{id: r, words: [x], guard_tail: -1}", "guard_tail", "must be a whole number, at least 0, not -1"),
    ("{id: r, words: [x], guard_tail: true}", "guard_tail", "not true"),
    ("{id: r, words: [x], secret: 1}", "secret", "must be true or false, not 1"),
    ("{id: r, words: [x], whole_word: 'yes'}", "whole_word", "must be true or false, not 'yes'"),
    ("{id: r, words: [x], whole_word: !!bool maybe}", "whole_word", "must be true or false, not maybe"),
    ("{id: r, words: [x], apply_to: []}", "apply_to", "is an empty list"),
    ("{id: r, words: [x], apply_to: input}", "apply_to", "must be a list, not 'input'; write [...] around it"),
    ("{id: r, words: [x], apply_to: [inptu]}", "apply_to[0]", "must be one of input, output, not 'inptu'"),
    ("{id: r, words: [x], channels: []}", "channels", "is an empty list"),
    ("{id: r, words: [x], channels: [audio]}", "channels[0]", "must be one of content, refusal, reasoning"),
    ("{id: r, words_file: ''}", "words_file", "is empty"),
    ("{id: r, words_file: none.txt}", "words_file", "none.txt: file not found"),
]


@pytest.mark.parametrize(("rule", "key", "reason"), REFUSED_RULES)
def test_refused_rules(rule: str, key: str, reason: str) -> None:
    text = text_of(policies=f"{{p: {{rules: [{{id: first, words: [w]}}, {rule}]}}}}")
    path = "policies.p.rules[1]" + (f".{key}" if key else "")
    refused(text, path, reason)


def test_rule_defaults() -> None:
    rule = read_rule("{id: A-z0.9_:x, words: [' ', '#tag']}")
    assert rule == Rule(id="A-z0.9_:x", words=(" ", "#tag"))
    assert rule.fold == DEFAULT_FOLD
    assert rule.guard_tail is None
