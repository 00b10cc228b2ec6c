"""Files of words: what is read of them, and what is refused with its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.policies import SECRET, read_rule, refused, text_of


def test_a_word_list_drops_comments_spaces_and_blank_lines(tmp_path: Path) -> None:
    lines = [
        "\ufeff# comment",
        "// another",
        "  # indented",
        "#tag",
        " two words\t",
        "",
        "  ",
        "naïve\r",
        "a # b",
        "${A}",
    ]
    (tmp_path / "list.txt").write_bytes("\n".join(lines).encode() + b"\n//\nlast")
    rule = read_rule("{id: r, words_file: list.txt}", base_dir=tmp_path)
    assert rule.words == ("#tag", "two words", "naïve", "a # b", "${A}", "last")
    absolute = read_rule(f"{{id: r, words_file: '{tmp_path}/list.txt'}}")
    assert absolute.words == rule.words


BAD_LISTS = {
    "empty": (b"", "list.txt: holds no words"),
    "only comments": (b"# a\n//b\n\n", "list.txt: holds no words"),
    "invalid UTF-8": (SECRET.encode() + b"\n\xff", "list.txt: line 2: not valid UTF-8"),
    "NUL": (b"a\nb\0", "list.txt: line 2: holds a NUL character"),
}


@pytest.mark.parametrize("sign", ["#", "  #", "\t#"])
def test_e9_a_lone_number_sign_is_refused_with_its_line(sign: str, tmp_path: Path) -> None:
    text = text_of(policies="{p: {rules: [{id: r, words_file: list.txt}]}}")
    path = "policies.p.rules[0].words_file"
    for before, line in (("", 1), ("# a\n# \n#tag\n", 4)):
        (tmp_path / "list.txt").write_text(f"{before}{sign}\nb")
        refused(text, path, f"list.txt line {line}: a lone # could be a comment or a word", base_dir=tmp_path)
    hidden = text_of(policies='{p: {rules: [{id: r, words_file: "${S}"}]}}')
    reason = "the file line 4: a lone # could be a comment or a word"
    refused(hidden, path, reason, {"S": "list.txt"}, base_dir=tmp_path)


def test_e9_other_number_signs_are_comments_or_words(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"# a\n# \n#tag\n##\nb #\n")
    assert read_rule("{id: r, words_file: list.txt}", base_dir=tmp_path).words == ("#tag", "##", "b #")
    assert read_rule("{id: r, words: ['#']}").words == ("#",)


@pytest.mark.parametrize(("data", "reason"), BAD_LISTS.values(), ids=list(BAD_LISTS))
def test_bad_word_lists(data: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(data)
    text = text_of(policies="{p: {rules: [{id: r, words_file: list.txt}]}}")
    refused(text, "policies.p.rules[0].words_file", reason, base_dir=tmp_path)


def test_a_directory_as_a_word_list(tmp_path: Path) -> None:
    text = text_of(policies="{p: {rules: [{id: r, words_file: .}]}}")
    refused(text, "policies.p.rules[0].words_file", ".: is a directory", base_dir=tmp_path)


def test_a_word_of_which_folding_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{SECRET}\n\u200b\u200b\n")
    cases = {
        r'words: [x, "\u200b"]': ("words[1]", "after folding (case, invisible, punctuation, space, width)"),
        "words_file: list.txt": ("words_file", "list.txt line 2: nothing of this word is left after folding"),
    }
    for words, (key, reason) in cases.items():
        text = text_of(policies=f"{{p: {{rules: [{{id: r, {words}}}]}}}}")
        path = f"policies.p.rules[0].{key}"
        refused(text, path, reason, base_dir=tmp_path)
    exact = read_rule(r'{id: r, words: ["\u200b"], fold: []}')
    assert exact.words == ("\u200b",)
