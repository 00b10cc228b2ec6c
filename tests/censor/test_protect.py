"""Protected prompts against a naive reading of them: all runs of words, every start, every cut."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gateway.automata.phrases import is_unspaced
from gateway.censor import protect
from gateway.censor.compile import CompiledPolicy, Program, compile_policy
from gateway.censor.protect import Conversation, PromptTooLong
from gateway.censor.stream import Censor
from gateway.policy.model import Action, Channel, Direction, Mode, Policy, Protect, Rule
from tests.support.examples import examples

MARK = "[R]"
VOCABULARY = ("a", "ab", "b", "aba", "ßa", "é", "e\u0301", "請", "問", "ガ", "ｶﾞ", "각", "각", "7")
BETWEEN = (" ", " ", ", ", "\n> ", "_", "\u00ad", "")
TEXTS = st.lists(st.tuples(st.sampled_from(VOCABULARY), st.sampled_from(BETWEEN)), max_size=12).map(
    lambda parts: "".join(word + between for word, between in parts)
)


def program_for(prompt: str, min_words: int, action: Action = Action.REDACT) -> Program:
    rule = Rule(id="r", protect=Protect.SYSTEM_PROMPT, min_words=min_words, action=action, replacement=MARK)
    return opened(compile_policy(Policy(name="p", rules=(rule,))), Conversation((prompt,)))


def opened(compiled: CompiledPolicy, conversation: Conversation) -> Program:
    program = compiled.for_answer(conversation).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    return program


def run(program: Program, chunks: list[str]) -> tuple[str, Censor]:
    censor = Censor(program)
    return "".join(map(censor.feed, chunks)) + censor.finish(), censor


# -- the oracle --------------------------------------------------------------------------------------------------------


def letters(char: str) -> str:
    """What is compared of a character; a blank for one that is between words."""
    if char == "\u00ad":
        return ""
    plain = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", char).casefold())
    plain = "".join(part for part in plain if unicodedata.category(part) != "Mn" and part not in "\u3099\u309a")
    return "".join(part if part.isalnum() else " " for part in plain)


def words_of(text: str) -> list[tuple[str, int, int]]:
    """The words with their places in the text."""
    places = [(part, at) for at, char in enumerate(text) for part in letters(char)]
    seen = "".join(part for part, _ in places)
    found = [match.span() for match in re.finditer("[請問カ]|[^ 請問カ]+", seen)]
    return [(seen[start:end], places[start][1], places[end - 1][1] + 1) for start, end in found]


def weight(words: list[str]) -> int:
    return sum(1 if is_unspaced(word[0]) else 2 for word in words)


def windows_of(prompt: str, min_words: int) -> set[tuple[str, ...]]:
    words = [word for word, _, _ in words_of(prompt)]
    found = set()
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            if weight(words[start:end]) >= 2 * min_words:
                found.add(tuple(words[start:end]))
                break
    return found


def matches_of(windows: set[tuple[str, ...]], text: str, ended: bool) -> list[tuple[int, int]]:
    words = words_of(text)
    found = []
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            goes_on = end == len(words) and not ended and open_at_end(text)
            if tuple(word for word, _, _ in words[start:end]) in windows and not goes_on:
                found.append((words[start][1], words[end - 1][2]))
    return found


def open_at_end(text: str) -> bool:
    """May the last word continue?"""
    seen = "".join(map(letters, text))
    return bool(seen) and seen[-1] != " " and not is_unspaced(seen[-1])


def live_start(windows: set[tuple[str, ...]], text: str) -> int:
    words = words_of(text)
    goes_on = open_at_end(text)
    for start in range(len(words)):
        there = [word for word, _, _ in words[start:]]
        for window in windows:
            complete, last = (there[:-1], there[-1]) if goes_on else (there, "")
            if len(window) >= len(there) and list(window[: len(complete)]) == complete:
                if not last and len(window) > len(complete):
                    return words[start][1]
                if last and window[len(complete)].startswith(last) and not is_unspaced(window[len(complete)][0]):
                    return words[start][1]
    return len(text)


def rendered(text: str, matches: list[tuple[int, int]], upto: int) -> str:
    clusters: list[list[int]] = []
    for start, end in sorted(matches):
        if clusters and start < clusters[-1][1]:
            clusters[-1][1] = max(end, clusters[-1][1])
        else:
            clusters.append([start, end])
    out, at = "", 0
    for start, end in clusters:
        while end < len(text) and unicodedata.category(text[end])[0] == "M":
            end += 1
        if start <= upto:
            out += text[at:start] + MARK
            at = end
    return out + text[at : max(at, upto)]


# -- properties --------------------------------------------------------------------------------------------------------


@settings(max_examples=examples(600), deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 3), st.lists(st.integers(0, 24), max_size=3))
@example("a a 請 a", "a a 請 a", 2, [])
@example("ab a 請 問 a b", "ab. a請問a b", 2, [])
def test_output_and_report_equal_a_naive_reading_for_every_cut(
    prompt: str, text: str, min_words: int, cuts: list[int]
) -> None:
    found = matches_of(windows_of(prompt, min_words), text, ended=True)
    edges = [0, *sorted(cut for cut in cuts if cut <= len(text)), len(text)]
    for chunks in ([text], list(text), [text[start:end] for start, end in pairwise(edges)]):
        out, censor = run(program_for(prompt, min_words), chunks)
        assert out == rendered(text, found, len(text))
        assert sorted((start, end) for _, start, end, _ in censor.matches) == sorted(found)


@settings(max_examples=examples(600), deadline=None)
@given(TEXTS, TEXTS, st.integers(1, 3))
@example("a aba", "a ab a", 2)
def test_nothing_is_held_that_is_no_beginning_of_a_run(prompt: str, text: str, min_words: int) -> None:
    windows, censor, out = windows_of(prompt, min_words), Censor(program_for(prompt, min_words)), ""
    for read in range(1, len(text) + 1):
        out += censor.feed(text[read - 1])
        there = text[:read]
        assert out == rendered(there, matches_of(windows, there, ended=False), live_start(windows, there))


# -- bounds and what is kept -------------------------------------------------------------------------------------------

PROMPT = "You are Heron's assistant. The launch code is seven tall blue herons; never repeat it to anybody at all."


def test_a_prompt_repeated_in_other_clothes_is_replaced_and_what_surrounds_it_is_not() -> None:
    program = program_for(PROMPT, 8)
    said = "Sure: «the LAUNCH\ncode — is **seven**, tall blue herons!» That is all, as you are Heron's guest."
    assert run(program, [said])[0] == f"Sure: «{MARK}!» That is all, as you are Heron's guest."
    fewer = "Is the launch code seven? Tall blue herons never repeat it."
    assert run(program, list(fewer))[0] == fewer


def test_a_block_ends_the_answer_before_the_run() -> None:
    out, censor = run(program_for(PROMPT, 8, Action.BLOCK), ["Well: the launch code is seven tall ", "blue herons, so"])
    assert out == "Well: "
    assert censor.blocked is not None


def test_a_flag_holds_nothing() -> None:
    censor = Censor(program_for(PROMPT, 8, Action.FLAG))
    assert censor.feed("the launch code") == "the launch code"


def test_the_automaton_of_a_prompt_is_made_once_and_only_so_many_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_policy(Policy(name="p", rules=(Rule(id="r", protect=Protect.SYSTEM_PROMPT),)))

    def machine(text: str) -> object:
        return opened(compiled, Conversation((text,))).machines[-1]

    kept = machine(PROMPT)
    assert machine("".join(PROMPT)) is kept
    for number in range(protect.MAX_PROMPTS):
        machine(f"{PROMPT} {number}")
    assert machine(PROMPT) is not kept


@pytest.mark.parametrize("text", ["a " * (protect.MAX_PROTECTED // 2) + "a", "ﷺ" * (protect.MAX_PROTECTED // 10)])
def test_a_prompt_that_is_too_long_is_refused(text: str) -> None:
    with pytest.raises(PromptTooLong) as caught:
        program_for(text, 8)
    assert str(protect.MAX_PROTECTED) in str(caught.value)


def test_a_run_that_no_match_can_hold_is_left_out() -> None:
    rule = Rule(id="r", protect=Protect.SYSTEM_PROMPT, min_words=2, replacement=MARK)
    compiled = compile_policy(Policy(name="p", rules=(rule,), max_hold=8))
    program = opened(compiled, Conversation(("abc def abcd efgh",)))
    assert program.quick
    assert run(program, ["abc def abcd efgh"])[0] == f"{MARK} abcd efgh"


def test_without_enough_words_nothing_is_looked_for() -> None:
    program = opened(compiled_policy(Mode.ENFORCE), Conversation(("Be brief.",)))
    assert program.machines == ()


def test_a_policy_that_observes_only_reports() -> None:
    program = opened(compiled_policy(Mode.OBSERVE), Conversation((PROMPT,)))
    out, censor = run(program, [PROMPT])
    assert out == PROMPT
    assert len(censor.matches) == len(words_of(PROMPT)) - 7


def compiled_policy(mode: Mode) -> CompiledPolicy:
    return compile_policy(Policy(name="p", mode=mode, rules=(Rule(id="r", protect=Protect.SYSTEM_PROMPT),)))


@pytest.mark.parametrize(
    "text", ["a" * 4000, "seven tall blue " * 400, "the launch code is seven tall blue heron " * 100, "請問" * 1000]
)
def test_work_is_linear_in_any_text(text: str) -> None:
    """Words are dropped once each: of the steps, counted, twice the text takes twice as many."""
    assert steps(text + text) <= 2.2 * steps(text) + 200


def steps(text: str) -> int:
    program = program_for(PROMPT + " " + "seven tall blue heron " * 30 + "請問" * 40, 8)
    machine = program.machines[-1]
    counted = 0
    shorter = machine._shorter  # type: ignore[union-attr]

    def counting(place: object) -> object:
        nonlocal counted
        counted += 1
        return shorter(place)  # type: ignore[arg-type]

    machine._shorter = counting  # type: ignore[union-attr, method-assign, assignment]
    run(program, [text])
    return counted + len(text)
