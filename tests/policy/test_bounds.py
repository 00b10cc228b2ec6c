"""How large a configuration may be: just within passes, just past is refused, and nothing is waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from gateway.policy import constraints, files, rules, yaml_source
from gateway.policy.files import MAX_CONFIG, MAX_LIST, FileTooLarge, NotRegular, read_regular
from gateway.serving.reload import fingerprint
from tests.support.policies import read, read_rule, refused, text_of


def policy_with(rule: str) -> str:
    return text_of(policies=f"{{p: {{rules: [{rule}]}}}}")


def listing(name: str) -> str:
    return policy_with(f"{{id: r, words_file: {name}}}")


AT = "policies.p.rules[0].words_file"


# What stands in the place of a file


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/null", "pipe", "link"])
def test_d30_a_list_is_a_regular_file(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match=f"^F: {AT.replace('[', '.').replace(']', '.')}: .*is a pipe or a device"):
        read(listing(name), base_dir=tmp_path)


def test_d30_a_folder_is_no_list(tmp_path: Path) -> None:
    (tmp_path / "lists").mkdir()
    with pytest.raises(ConfigError, match="lists: is a directory, not a file"):
        read(listing("lists"), base_dir=tmp_path)


def test_d30_a_list_that_is_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("x")
    (tmp_path / "link").symlink_to("words.txt")
    assert read(listing("link"), base_dir=tmp_path).policies["p"].rules[0].words == ("x",)


def test_d30_a_configuration_that_never_ends_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^/dev/zero: is larger than 4 MiB, and such a file may not be"):
        load("/dev/zero", {})


def test_d30_what_is_watched_is_never_waited_for(tmp_path: Path) -> None:
    """A reload may name anything, and what it names is watched although it was refused."""
    os.mkfifo(tmp_path / "pipe")
    names = [str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)]
    assert fingerprint(names) == fingerprint(names)


def test_d30_a_file_has_a_largest_size(tmp_path: Path) -> None:
    file = tmp_path / "words.txt"
    file.write_bytes(b"x" * 10)
    assert read_regular(file, 10) == b"x" * 10
    with pytest.raises(FileTooLarge):
        read_regular(file, 9)
    with pytest.raises(NotRegular):
        read_regular(Path("/dev/zero"), 9)
    assert (MAX_CONFIG, MAX_LIST) == (4 * 1024**2, 32 * 1024**2)


def test_d30_a_list_past_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MAX_LIST", 2 * 1024**2)
    words = tmp_path / "words.txt"
    words.write_bytes(b"word\n" * (2 * 1024**2 // 5) + b"ab")
    assert words.stat().st_size == 2 * 1024**2
    assert len(read(listing("words.txt"), base_dir=tmp_path).policies["p"].rules[0].words) == 2 * 1024**2 // 5 + 1
    with words.open("ab") as file:
        file.write(b"c")
    with pytest.raises(ConfigError, match=r"words.txt: is larger than 2 MiB"):
        read(listing("words.txt"), base_dir=tmp_path)


def test_d30_a_configuration_past_its_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = policy_with("{id: r, words: [x]}")
    monkeypatch.setattr(files, "MAX_CONFIG", len(text))
    file = tmp_path / "portcullis.yaml"
    file.write_text(text)
    load(file, {})
    file.write_text(text + " ")
    with pytest.raises(ConfigError, match="is larger than 0 MiB"):
        load(file, {})


# Words


@pytest.mark.parametrize("source", ["words", "words_file"])
def test_d30_a_word_has_a_longest_length(source: str, tmp_path: Path) -> None:
    def rule(length: int) -> str:
        (tmp_path / "words.txt").write_text("x\n" + "y" * length)
        return f"{{id: r, {source}: {'words.txt' if source == 'words_file' else ['x', 'y' * length]}}}"

    assert len(read_rule(rule(10_000), base_dir=tmp_path).words[1]) == 10_000
    with pytest.raises(ConfigError) as refused:
        read_rule(rule(10_001), base_dir=tmp_path)
    assert "this word has 10001 characters, and 10000 are allowed" in refused.value.reason
    assert "yyy" not in str(refused.value)


@pytest.mark.parametrize(("limit", "most"), [("MAX_WORDS", 5), ("MAX_CHARACTERS", 10)])
def test_d30_all_lists_together_have_a_bound(
    limit: str, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rules of two policies count together, in place and in files."""
    monkeypatch.setattr(rules, limit, most)
    (tmp_path / "words.txt").write_text("aa\nbb\ncc\n")

    def policies(last: str) -> str:
        first = "{rules: [{id: r, words_file: words.txt}, {id: s, words: [dd]}]}"
        return text_of(policies=f"{{p: {first}, q: {{rules: [{{id: r, words: [{last}]}}]}}}}")

    assert read(policies("ee"), base_dir=tmp_path).policies["q"].rules[0].words == ("ee",)
    with pytest.raises(ConfigError) as refused:
        read(policies("ee, f, g, h"), base_dir=tmp_path)
    assert refused.value.others == ()  # once, and not for each word from there on
    assert refused.value.key_path == "policies.q.rules[0].words[1]"
    assert "with this word the rules of the file have more than" in refused.value.reason


def test_d30_the_bounds_of_lists_are_those_that_were_measured() -> None:
    assert (rules.MAX_WORDS, rules.MAX_CHARACTERS, rules.MAX_WORD) == (1_000_000, 10_000_000, 10_000)


# Aliases


def schema(levels: int, width: int = 8) -> str:
    """A schema whose last property has `width ** levels` values in it, in `levels` lines."""
    lines = ["l0: &l0 {type: string}"]
    for i in range(1, levels + 1):
        lines.append(f"l{i}: &l{i} {{{', '.join(f'k{j}: *l{i - 1}' for j in range(width))}}}")
    return f"{{p: {{constrain: {{require: false, json_schema: {{{', '.join(lines)}}}}}}}}}"


@pytest.mark.parametrize("levels", [9, 40])
def test_d30_aliases_in_a_schema_do_not_grow_without_bound(levels: int) -> None:
    error = refused(text_of(policies=schema(levels)), "policies.p.constrain.json_schema.l7", "holds more than 1000000")
    assert error.reason.endswith("those counted each time that an alias repeats; shorten it")


def test_d30_a_schema_has_a_bound_of_its_own() -> None:
    refused(text_of(policies=schema(6)), "policies.p.constrain.json_schema", "holds more than 10000 values")
    assert read(text_of(policies=schema(3))).policies["p"].constrain is not None


def test_d30_the_edge_of_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    # The mapping, two properties of two values each, and what the second alias repeats.
    text = text_of(policies="{p: {constrain: {require: false, json_schema: {a: &a {type: string}, b: *a}}}}")
    monkeypatch.setattr(constraints, "MAX_SCHEMA", 5)
    read(text)
    monkeypatch.setattr(constraints, "MAX_SCHEMA", 4)
    refused(text, "policies.p.constrain.json_schema", "holds more than 4 values")


def test_d30_the_edge_of_all_values(monkeypatch: pytest.MonkeyPatch) -> None:
    # The file is one value, and in it are upstreams with 3, routes with 5 and policies with 8.
    text = policy_with("{id: r, words: [x, y]}")
    monkeypatch.setattr(yaml_source, "MAX_NODES", 17)
    read(text)
    monkeypatch.setattr(yaml_source, "MAX_NODES", 16)
    refused(text, "", "holds more than 16 values")


@pytest.mark.parametrize("where", ["auth: {keys: *l}", "routes: *l", "limits: {x: *l}"])
def test_d30_aliases_do_not_grow_anywhere(where: str) -> None:
    levels = ", ".join(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9))
    text = f"state: [&a0 x, {levels}]\n" + text_of().replace("routes:", "routes_:") + "\n" + where.replace("*l", "*a8")
    with pytest.raises(ConfigError, match="holds more than 1000000 values"):
        read(text)
