"""The file of masks, and what a request says of it."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from gateway.decode.maskfile import (
    BannedPolicy,
    MaskFileError,
    MaskRequest,
    MaskRequestError,
    read_masks,
    select,
    write_masks,
)
from gateway.decode.masks import MaskCompiler, MaskedAnswer, WordBan
from gateway.policy.model import DEFAULT_FOLD, Fold

SECRET = WordBan(words=("swordfish", "élan"), fold=DEFAULT_FOLD, whole_word=True)
OTHER = WordBan(words=("other",), fold=frozenset({Fold.ACCENTS}))
STRICT = BannedPolicy.of([SECRET, OTHER])
MILD = BannedPolicy.of([OTHER])


def test_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "masks.json"
    path.write_text("what was there before")
    write_masks(path, {"strict": STRICT, "mild": MILD})
    assert read_masks(path) == {"strict": STRICT, "mild": MILD}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["masks.json"]


def test_a_digest_is_of_everything_that_matters() -> None:
    variants = [
        [SECRET],
        [OTHER, SECRET],
        [SECRET, OTHER],
        [WordBan(words=SECRET.words, fold=SECRET.fold)],
        [WordBan(words=SECRET.words, fold=frozenset(), whole_word=True)],
    ]
    digests = [BannedPolicy.of(each).digest for each in variants]
    assert len(set(digests)) == len(digests)
    assert digests[2] == STRICT.digest


def changed(path: Path, content: Any) -> None:
    path.write_text(content if isinstance(content, str) else json.dumps(content))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{swordfish", "not JSON"),
        ([], "not a mask file"),
        ({"portcullis_masks": 2}, "of format 1"),
        ({"portcullis_masks": 1, "policies": {}}, "no policy in it"),
        ({"portcullis_masks": 1, "policies": {"a": {"digest": "0"}}}, "policy 'a' is not described"),
        ({"portcullis_masks": 1, "policies": {"a": {"digest": "0", "rules": [{"words": "swordfish"}]}}}, "policy 'a'"),
        ({"portcullis_masks": 1, "policies": {"a": {"digest": "0", "rules": []}}}, "its digest is another"),
    ],
)
def test_other_files(tmp_path: Path, content: Any, message: str) -> None:
    path = tmp_path / "masks.json"
    changed(path, content)
    with pytest.raises(MaskFileError, match=message) as raised:
        read_masks(path)
    assert str(path) in str(raised.value)
    assert "swordfish" not in str(raised.value).removeprefix(str(path))


def test_changed_words(tmp_path: Path) -> None:
    path = tmp_path / "masks.json"
    write_masks(path, {"strict": STRICT})
    changed(path, path.read_text().replace("swordfish", "swordfist"))
    with pytest.raises(MaskFileError, match="its digest is another") as raised:
        read_masks(path)
    assert "sword" not in str(raised.value)


def test_requests() -> None:
    request = MaskRequest(policy="strict", digest=STRICT.digest, kept=3, not_first=(1, 2))
    assert MaskRequest.of({**request.arguments(), "another": 1}) == request
    short = MaskRequest(policy="strict", digest=STRICT.digest)
    assert short.arguments().keys() == {"portcullis.policy", "portcullis.digest"}
    assert MaskRequest.of(short.arguments()) == short
    assert MaskRequest.of(None) is None
    assert MaskRequest.of({"another": 1}) is None
    assert select({"strict": STRICT}, request) is STRICT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"portcullis.policy": "a"}, "portcullis.digest must be a string"),
        ({"portcullis.digest": "a"}, "portcullis.policy must be a string"),
        ({"portcullis.kept": 1}, "portcullis.policy must be a string"),
        ({"portcullis.polizy": "a"}, "portcullis.polizy is an unknown argument"),
        ({"portcullis.policy": "a", "portcullis.digest": "b", "portcullis.kept": -1}, "portcullis.kept"),
        ({"portcullis.policy": "a", "portcullis.digest": "b", "portcullis.kept": True}, "portcullis.kept"),
        ({"portcullis.policy": "a", "portcullis.digest": "b", "portcullis.not_first": 7}, "portcullis.not_first"),
        ({"portcullis.policy": "a", "portcullis.digest": "b", "portcullis.not_first": [-7]}, "portcullis.not_first"),
        ({"portcullis.policy": "a", "portcullis.digest": "b", "portcullis.not_first": [0] * 2000}, "1024 are allowed"),
    ],
)
def test_bad_requests(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(MaskRequestError, match=message):
        MaskRequest.of(arguments)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (MaskRequest(policy="strict", digest=MILD.digest), "policy 'strict' has other words on this server"),
        (MaskRequest(policy="none", digest=MILD.digest), "no policy 'none'"),
    ],
)
def test_unknown_digests(request_: MaskRequest, message: str) -> None:
    with pytest.raises(MaskRequestError, match=message):
        select({"strict": STRICT}, request_)


# -- an answer under a mask --------------------------------------------------------------------------------------------

TOKENS = [b"a", b"b", b"ab", b" ", b"c", None]
MASK = MaskCompiler(TOKENS, [5]).compile([WordBan(words=("ab",), fold=frozenset(), whole_word=True)])


def allowed(answer: MaskedAnswer) -> list[int]:
    forbidden, besides = answer.forbidden()
    flags = MASK.shared[forbidden.shared].copy()
    flags[forbidden.tokens] = True
    flags[besides] = True
    return [token for token, flag in enumerate(flags) if not flag]


def test_tokens_are_followed() -> None:
    answer = MaskedAnswer(MASK)
    assert allowed(answer) == [0, 1, 2, 3, 4, 5]
    answer.add([0, 1])
    assert answer.count == 2
    assert allowed(answer) == [0, 1, 2, 4]  # neither a space nor the end


def test_a_resumed_answer() -> None:
    answer = MaskedAnswer(MASK, kept=[0, 1])
    assert answer.count == 0
    assert allowed(answer) == [0, 1, 2, 4]


def test_the_last_token() -> None:
    answer = MaskedAnswer(MASK, limit=2)
    answer.add([0])
    assert allowed(answer) == [0, 2, 3, 4, 5]  # "a" and "b" would be cut off as a word


def test_not_first() -> None:
    answer = MaskedAnswer(MASK, not_first=[0, 4, 99])
    assert allowed(answer) == [1, 2, 3, 5]
    answer.add([3])
    assert allowed(answer) == [0, 1, 2, 3, 4, 5]


def test_a_token_that_is_not_told() -> None:
    answer = MaskedAnswer(MASK, not_first=[5])
    answer.add([0, -1])
    assert answer.lost
    assert allowed(answer) == [5]
