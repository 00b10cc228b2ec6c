"""How words are written in ordinary text, and by those who hide them: one character or several, wrapped, quoted."""

from __future__ import annotations

import unicodedata

import pytest

from gateway import Action, Fold, Policy, Rule, censor_stream
from gateway.censor.compile import compile_policy
from gateway.censor.lens import MAX_FREE, Lens
from gateway.censor.readings import MAX_READINGS
from gateway.censor.stream import Censor
from gateway.policy.model import DEFAULT_FOLD, DEFAULT_MAX_HOLD, Channel, Direction

CONFUSABLES = DEFAULT_FOLD | {Fold.CONFUSABLES}


def shown(rule: Rule, text: str) -> str:
    """What comes out; the same for every cut in two, and character by character."""
    whole = "".join(censor_stream([text], rule))
    for cut in range(1, len(text), 1 + len(text) // 50):
        assert "".join(censor_stream([text[:cut], text[cut:]], rule)) == whole
    assert "".join(censor_stream(text, rule)) == whole
    return whole


def word(text: str, **keys: object) -> Rule:
    return Rule(id="r", words=(text,), replacement="<>", **keys)  # type: ignore[arg-type]


@pytest.mark.parametrize("folds", [DEFAULT_FOLD, frozenset(), frozenset({Fold.CASE}), CONFUSABLES])
@pytest.mark.parametrize("text", ["café", "각하", "ガラス", "Ελλάδα", "Nguyễn Văn Thật", "Åse", "क़लम", "ñandú"])
def test_canonically_equivalent_words_are_one(text: str, folds: frozenset[Fold]) -> None:
    forms = {unicodedata.normalize(form, text) for form in ("NFC", "NFD")}
    for listed in forms:
        for written in forms:
            assert shown(word(listed, fold=folds), f"a {written}.") == "a <>."


@pytest.mark.parametrize("written", ["ậ", "ạ\u0302", "â\u0323", "a\u0323\u0302", "a\u0302\u0323"])
def test_marks_may_be_composed_in_part_and_in_any_equal_order(written: str) -> None:
    assert shown(word("mật"), f"a m{written}t.") == "a <>."
    assert shown(word(f"m{written}t"), "a mật.") == "a <>."
    assert shown(Rule(id="r", pattern=r"m[aậ]?ật", replacement="<>"), f"m{written}t.") == "<>."


@pytest.mark.parametrize("text", ["ậ" * 40, "ガ" * 40, "각 " * 40 + "x", "a b c d e f g h", "ậ b ậ c ậ d ậ"])
def test_spellings_are_bounded(text: str) -> None:
    lens = Lens(DEFAULT_FOLD)
    folded = lens.fold_word(text)
    spellings = list(lens.spellings(folded))
    assert spellings[0] == folded
    assert len(spellings) == len(set(spellings)) <= 4 * MAX_FREE
    assert {lens.fold_word(unicodedata.normalize(form, text)) for form in ("NFC", "NFD")} == {folded}
    assert lens.fold_word(unicodedata.normalize("NFD", text)) in spellings


@pytest.mark.parametrize(
    "written",
    [
        *(
            "Project Heron",
            "Project  Heron",
            "Project\nHeron",
            "Project\r\n\r\nHeron",
            "project\theron",
            "Project\u00a0Heron",
        ),
        *("Project\u2009\u3000Heron", "Project\u2028Heron", "Project-Heron", "Project\u2011Heron", "Project\n> Heron"),
        *("Project\n> > Heron", "Project \n  - Heron", "Project\n* Heron", "Project |\n| Heron"[:8] + "\n| Heron"),
        *("Project\n// Heron", "Project\n# Heron", "Project\n\u200b>\u200b Heron", "Pro\u200bject \x1b[1m\nHeron"),
    ],
)
def test_a_blank_takes_white_space_and_the_marks_of_lines(written: str) -> None:
    rule = word("Project Heron")
    assert shown(rule, f"The {written}s") == "The <>s"
    assert shown(word("project  heron", whole_word=True), f"The {written}.") == "The <>."


@pytest.mark.parametrize(
    "written", ["ProjectHeron", "Project--Heron", "Project > Heron", "Project\n1 Heron", "Project - Heron"]
)
def test_a_blank_takes_no_more(written: str) -> None:
    assert shown(word("Project Heron"), written) == written


def test_marks_of_lines_hide_no_word_that_has_them() -> None:
    rule = Rule(id="r", words=("Project Heron", "#heron", "stage -1"), replacement="<>")
    assert shown(rule, "Project\n#heron, a stage\n-1, a stage\n> -1") == "<>, a <>, a stage\n> -1"


def test_what_a_blank_takes_does_not_count_against_the_bound() -> None:
    text = f"a Project{' ' * 3000}\n{'> ' * 2000}Heron."
    assert "".join(censor_stream([text], word("Project Heron"))) == "a <>."


def test_text_outside_phrases_waits_for_nothing() -> None:
    assert list(censor_stream(["One.", "\n\n", "- two\n", "> three"], word("Project Heron"))) == [
        "One.",
        "\n\n",
        "- two\n",
        "> three",
    ]


@pytest.mark.parametrize(
    ("listed", "written"),
    [("don't", "don’t"), ("don’t", "don't"), ('say "x"', "say “x”"), ("«x»", '"x"'), ("co-op", "co–op"), ("-5", "−5")],
)
def test_punctuation_is_that_of_ascii(listed: str, written: str) -> None:
    assert shown(word(listed), f"a {written}.") == "a <>."
    assert shown(Rule(id="r", pattern=listed, replacement="<>"), f"a {written}.") == "a <>."
    assert shown(word(listed, fold=frozenset({Fold.CASE, Fold.SPACE})), f"a {written}.") == f"a {written}."


@pytest.mark.parametrize(
    "written",
    [
        *("He\x1b[31mron", "\x1b[1mHeron", "He\x1b[38;5;1mr\x1b[0mon", "He\x9b1mron", "He\x1b]8;;http://h\x07ron"),
        *(
            "He\x1b]0;t\x1b\\ron",
            "He\x00ro\x7fn",
            "H\ufff9eron",
            "He\ufdd0ron",
            "He\u034fron",
            "He\x1bron",
            *("He\x1b(Bron", "He\x1b=ron", "He\x1b7ron", "He\x1bPq\x1b\\ron", "He\x1b_k\x07ron", "He\x9fk\x9cron"),
            "He\x1f\x08ron",
        ),
    ],
)
def test_controls_and_terminal_sequences_hide_nothing(written: str) -> None:
    for whole in (False, True):
        out = shown(word("Heron", whole_word=whole), f"a {written} b")
        assert out.endswith("<> b")
        assert "ron" not in out


@pytest.mark.parametrize(
    "written", ["\x1b]Heron", "P\x1b[Heron", "\x1b[31;Heron", "\x1b]0;He\x1b[0mron", "\x1b]a\x1b]Heron"]
)
def test_what_a_terminal_hides_is_read_too(written: str) -> None:
    assert "<>" in shown(Rule(id="r", words=("Heron", "Ptarmigan"), replacement="<>"), written)


def test_readings_are_bounded() -> None:
    censor = Censor(
        compile_policy(Policy(name="p", rules=(word("a" * 900),))).program(Direction.OUTPUT, Channel.CONTENT)
    )
    for _ in range(50):
        censor.feed("a\x1b]")
        assert censor._scanner.readings is None or len(censor._scanner.readings._open) <= MAX_READINGS
        assert censor.held <= DEFAULT_MAX_HOLD


@pytest.mark.parametrize(
    "written",
    [
        "**ass**",
        "_ass_",
        "__ass__",
        "ass²",
        "¹ass",
        "1\ufe0f\u20e3ass",
        "我ass是",
        "ass은",
        "_ass",
        "ass_",
        "ass____",
        "*_ass_*",
    ],
)
def test_whole_words_are_seen_beside_marks_of_form(written: str) -> None:
    assert "<>" in shown(word("ass", whole_word=True), written)


@pytest.mark.parametrize("written", ["my_ass", "ass_of", "ass__of", "x__ass", "bass", "ass2", "as\u0301s", "éass"])
def test_parts_of_words_and_names_are_no_whole_words(written: str) -> None:
    assert shown(word("ass", whole_word=True), written) == written


@pytest.mark.parametrize(
    "written",
    ["Неrоn", "ΗΕRΟΝ", "ʜᴇʀᴏɴ", "🅗🅔🅡🅞🅝", "🅷🅴🆁🅾🅽", "🇭🇪🇷🇴🇳", "Ⓗⓔⓡⓞⓝ", "𝐇𝐞𝐫𝐨𝐧", "hеrοո", "нeron"],
)
def test_look_alikes_are_letters_of_ascii(written: str) -> None:
    rule = word("Heron", fold=CONFUSABLES)
    assert shown(rule, f"a {written}.") == "a <>."
    assert shown(word("Heron"), f"a {written}.") == ("a <>." if written in ("Ⓗⓔⓡⓞⓝ", "𝐇𝐞𝐫𝐨𝐧") else f"a {written}.")


@pytest.mark.parametrize(
    ("listed", "written", "found"),
    [
        ("12MONKEYS", "१२MONKEYS", True),
        ("νέος", "ΝΈΟΣ", True),
        ("Москва", "МОСКВА", True),
        ("aesop", "æsop", True),
        ("esop", "æsop", False),
        ("modern", "modem", False),
        ("ILO", "110", False),
        ("IBAN", "ΙΒΑΝ", True),
    ],
)
def test_what_looks_alike(listed: str, written: str, found: bool) -> None:
    assert (shown(word(listed, fold=CONFUSABLES), written) == "<>") is found


def test_look_alikes_add_no_hits_to_prose_in_ascii() -> None:
    plain, other = Lens(DEFAULT_FOLD), Lens(CONFUSABLES)
    assert [char for char in map(chr, range(128)) if plain.fold(char) != other.fold(char)] == []


def test_flags_report_each_match_once_whatever_the_reading() -> None:
    policy = Policy(name="p", rules=(word("Heron", action=Action.FLAG, whole_word=True),))
    censor = Censor(compile_policy(policy).program(Direction.OUTPUT, Channel.CONTENT))
    censor.feed("a Heron\x1b[0m and a \x1b[1mHeron\x1b[0m.")
    censor.finish()
    assert [match[1:3] for match in censor.matches] == [(2, 7), (22, 27)]
