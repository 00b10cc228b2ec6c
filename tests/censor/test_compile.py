"""What rules become: programs, machines by lens, edges and guards."""

from __future__ import annotations

import pytest

from gateway.censor.compile import compile_policy
from gateway.censor.explain import explain, prose
from gateway.policy.model import Action, Channel, Direction, Fold, Mode, Policy, Rule

BOTH = frozenset(Direction)


def policy(*rules: Rule, mode: Mode = Mode.ENFORCE, max_hold: int = 1024) -> Policy:
    return Policy(name="p", rules=rules, mode=mode, max_hold=max_hold)


def test_a_text_without_rules_has_no_program() -> None:
    compiled = compile_policy(policy(Rule(id="r", words=("a",), channels=frozenset({Channel.REASONING}))))
    assert compiled.program(Direction.OUTPUT, Channel.REASONING) is not None
    assert compiled.program(Direction.OUTPUT, Channel.CONTENT) is None
    assert compiled.program(Direction.INPUT, Channel.REASONING) is None
    assert compiled.scans(Direction.OUTPUT)
    assert not compiled.scans(Direction.INPUT)
    assert not compile_policy(policy()).scans(Direction.OUTPUT)


def test_texts_with_the_same_rules_share_a_program() -> None:
    everywhere = Rule(id="everywhere", words=("a",), apply_to=BOTH)
    content = Rule(id="content", words=("b",), channels=frozenset({Channel.CONTENT}))
    programs = compile_policy(policy(everywhere, content)).programs
    assert programs[Direction.INPUT, Channel.CONTENT] is programs[Direction.OUTPUT, Channel.REASONING]
    assert programs[Direction.OUTPUT, Channel.CONTENT] is not programs[Direction.OUTPUT, Channel.REASONING]
    assert [rule.id for rule in programs[Direction.OUTPUT, Channel.CONTENT].rules] == ["everywhere", "content"]


def test_rules_with_one_lens_share_a_machine() -> None:
    rules = [Rule(id="a", words=("A", "a")), Rule(id="b", words=("b",)), Rule(id="c", words=("C",), fold=frozenset())]
    program = compile_policy(policy(*rules)).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    words = [[literal.text for literal in machine.completions("", at_edge=True)] for machine in program.machines]
    assert [sorted(group) for group in words] == [["a", "b"], ["C"]]


@pytest.mark.parametrize(("length", "guard"), [(1, 1), (2, 2), (5, 3), (9, 6), (10, 6), (11, 7)])
def test_a_secret_guards_sixty_percent_rounded_up(length: int, guard: int) -> None:
    program = compile_policy(policy(Rule(id="r", words=("abcdefghijk"[:length],), secret=True))).program(
        Direction.OUTPUT, Channel.CONTENT
    )
    assert program is not None
    (machine,) = program.machines
    (literal,) = machine.completions("", at_edge=True)
    assert literal.kind.guard == guard


@pytest.mark.parametrize(
    ("word", "left", "right"),
    [("cat", True, True), ("C++", True, False), (".net", False, True), ("密码", False, False), ("_x_", True, True)],
)
def test_which_edges_of_a_whole_word_need_a_boundary(word: str, left: bool, right: bool) -> None:
    program = compile_policy(policy(Rule(id="r", words=(word,), whole_word=True))).program(
        Direction.OUTPUT, Channel.CONTENT
    )
    assert program is not None
    (literal,) = program.machines[0].completions("", at_edge=True)
    assert (literal.kind.left, literal.kind.right) == (left, right)


def test_the_quick_way_is_for_words_that_max_hold_cannot_touch() -> None:
    for max_hold, quick in [(4, True), (3, False), (2, False)]:
        program = compile_policy(policy(Rule(id="r", words=("abc",)), max_hold=max_hold)).program(
            Direction.OUTPUT, Channel.CONTENT
        )
        assert program is not None
        assert program.quick == quick


def test_observe_makes_every_rule_a_flag_that_holds_nothing() -> None:
    rule = Rule(id="r", words=("abc",), action=Action.BLOCK)
    program = compile_policy(policy(rule, mode=Mode.OBSERVE)).program(Direction.OUTPUT, Channel.CONTENT)
    assert program is not None
    assert program.rules[0].action is Action.FLAG
    assert list(program.machines[0].completions("a", at_edge=True)) == []


def test_a_word_of_which_nothing_is_left_is_refused_without_being_shown() -> None:
    with pytest.raises(ValueError, match=r"^rule 'r': a word is empty when seen through the lens invisible$"):
        compile_policy(policy(Rule(id="r", words=("ok", "\u2063"), fold=frozenset({Fold.INVISIBLE}))))


def test_prose_is_cut_like_tokens_and_loses_nothing() -> None:
    pieces = prose()
    assert len(pieces) > 100
    assert all(1 <= len(piece) <= 9 for piece in pieces)


def test_explain_says_lens_size_and_hold_and_no_word() -> None:
    rules = [
        Rule(id="a", words=("swordfish", "Swordfish"), fold=frozenset({Fold.CASE})),
        Rule(id="b", words=("swordfish",), whole_word=True),
        Rule(id="c", words=("swordfish",), action=Action.FLAG),
        Rule(id="d", words=("the",), action=Action.BLOCK),
    ]
    first, whole, flag, block = explain(policy(*rules))
    assert "rule a: redact, lens case, 1 word of 9 characters, longest hold 8 characters" in first
    assert "longest hold 12 characters" in whole
    assert flag.endswith("holds nothing, no matches in 1,276 words of prose")
    assert block.endswith("it blocks the bundled prose")
    assert "swordfish" not in first + whole + flag + block
