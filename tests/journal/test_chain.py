"""A chained journal: whatever is changed, taken out, put in or moved is found, and nothing else is complained about."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.journal.chain import Chain, Link, head_path, read_head, signing_key
from gateway.journal.entries import encode
from gateway.journal.files import JournalFile, closed_files
from gateway.journal.reader import read_lines
from gateway.journal.verify import Broken, Verified, Why, verify
from gateway.policy.model import Fsync
from tests.support.examples import examples
from tests.support.journal_samples import KEY, matches

SIGNING = signing_key(KEY)
LINES = 11
EACH_FILE = 4  # lines


def write(path: Path, count: int, first: int = 0, *, key: str = KEY, chained: bool = True) -> None:
    """Lines of a run of the gateway of its own, in files of a few lines."""
    lines = [encode(entry, key) for entry in matches(count, first)]
    size = EACH_FILE * (len(lines[0]) + 300)
    file = JournalFile(path, Fsync.NEVER, size, 100, Chain(path, key) if chained else None)
    file.open()
    while lines:
        del lines[: file.append(lines)]
        file.save_head()
    file.close()


def worker_files(path: Path) -> list[Path]:
    """The oldest first; the last one is being written."""
    return [*closed_files(path), *([path] if path.exists() else ())]


def checked(path: Path, key: bytes | None = SIGNING, *, headless: bool = False) -> Verified:
    head = None if headless else read_head(head_path(path).read_bytes(), key)
    return verify(worker_files(path), key, head)


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    path = tmp_path_factory.mktemp("intact") / "journal"
    write(path, LINES)
    assert len(closed_files(path)) == 2
    return {file.name: file.read_bytes() for file in (*worker_files(path), head_path(path))}


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Callable[[dict[str, bytes]], Path]:
    folder = tmp_path_factory.mktemp("changed")

    def copy(files: dict[str, bytes]) -> Path:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        return folder / "journal"

    return copy


Copied = Callable[[dict[str, bytes]], Path]


def journals(files: dict[str, bytes]) -> list[str]:
    return [name for name in sorted(files, key=lambda name: (name == "journal", name)) if not name.endswith(".head")]


def rewritten(files: dict[str, bytes], lines: list[list[bytes]]) -> dict[str, bytes]:
    return {**files, **{name: b"".join(each) for name, each in zip(journals(files), lines, strict=True)}}


def lines_of(files: dict[str, bytes]) -> list[list[bytes]]:
    return [files[name].splitlines(keepends=True) for name in journals(files)]


def reason(path: Path, key: bytes | None = SIGNING) -> Broken:
    with pytest.raises(Broken) as broken:
        checked(path, key)
    return broken.value


# -- what was written --------------------------------------------------------------------------------------------------


def test_what_was_written_is_intact_and_readable(intact: dict[str, bytes], copied: Copied) -> None:
    path = copied(intact)
    for key in (SIGNING, None):
        found = checked(path, key)
        assert (found.records, found.first, found.chains, found.unchained, found.partial) == (LINES, 0, 1, 0, 0)
    with path.open("rb") as file:
        assert read_lines(file, 0, 100).damaged == 0
    plain = json.loads(encode(matches(1)[0], KEY))
    first = json.loads(lines_of(intact)[0][0])
    assert {name: first[name] for name in plain} == plain
    assert first.keys() - plain.keys() == {"chain", "seq", "prev", "first", "mac"}


def test_a_restart_goes_on_with_the_chain(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    for run in range(4):
        write(path, 3, 3 * run)
    assert (checked(path).records, checked(path).chains) == (12, 1)


def test_half_a_line_of_a_crash_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 2)
    with path.open("ab") as file:
        file.write(b'{"type":"match","ti')
    assert checked(path).partial == 1
    write(path, 1, 2)
    assert (checked(path).records, checked(path).partial) == (3, 1)


def test_a_head_that_a_crash_left_behind_is_no_complaint(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 2)
    old = head_path(path).read_bytes()
    write(path, 2, 2)
    head_path(path).write_bytes(old)
    assert checked(path).records == 4
    write(path, 1, 4)
    assert checked(path).records == 5


def test_a_chain_begins_in_a_file_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 2, chained=False)
    write(path, 2, 2)
    found = checked(path)
    assert (found.records, found.unchained, len(closed_files(path))) == (2, 2, 1)


def test_another_key_begins_another_chain(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 2)
    write(path, 2, 2, key="another key of the journal")
    assert len(closed_files(path)) == 1
    assert verify([path], signing_key("another key of the journal"), None).records == 2
    assert verify(closed_files(path), SIGNING, None).records == 2
    assert "another key" in str(reason_of(lambda: verify([path], SIGNING, None)))


def reason_of(check: Callable[[], object]) -> Broken:
    with pytest.raises(Broken) as broken:
        check()
    return broken.value


def test_files_that_rotation_deleted_are_no_complaint(intact: dict[str, bytes], copied: Copied) -> None:
    path = copied(intact)
    assert verify(worker_files(path)[1:], SIGNING, None).first == EACH_FILE


# -- what was not ------------------------------------------------------------------------------------------------------


@given(data=st.data())
@settings(max_examples=examples(400))
@pytest.mark.parametrize("key", [SIGNING, None], ids=["signed", "hashes"])
def test_any_changed_byte_is_found(
    intact: dict[str, bytes], copied: Copied, key: bytes | None, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(journals(intact)))
    at = data.draw(st.integers(0, len(intact[name]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != intact[name][at]))
    changed = intact[name][:at] + bytes([other]) + intact[name][at + 1 :]
    broken = reason(copied({**intact, name: changed}), key)
    if key is not None:  # hashes alone cannot tell a changed `prev` from a change of what it names
        assert (broken.file.name, broken.line) == (name, intact[name].count(b"\n", 0, at) + 1)


@given(data=st.data())
@settings(max_examples=examples(400))
def test_any_inserted_or_deleted_byte_is_found(intact: dict[str, bytes], copied: Copied, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(journals(intact)))
    at = data.draw(st.integers(0, len(intact[name]) - 1))
    put = data.draw(st.binary(max_size=1))
    changed = intact[name][:at] + put + intact[name][at + (not put) :]
    reason(copied({**intact, name: changed}))


def places() -> Iterator[tuple[int, int]]:
    return ((file, line) for file in range(3) for line in range(EACH_FILE if file < 2 else LINES - 2 * EACH_FILE))


@pytest.mark.parametrize("key", [SIGNING, None], ids=["signed", "hashes"])
def test_any_removed_line_is_found(intact: dict[str, bytes], copied: Copied, key: bytes | None) -> None:
    for file, line in places():
        lines = lines_of(intact)
        del lines[file][line]
        broken = reason(copied(rewritten(intact, lines)), key)
        last = (file, line) == (2, LINES - 2 * EACH_FILE - 1)
        assert broken.why == (Why.CUT if last else Why.MISSING), (file, line, str(broken))


def test_any_two_lines_in_each_others_place_are_found(intact: dict[str, bytes], copied: Copied) -> None:
    for (file, line), (other_file, other) in itertools.combinations(places(), 2):
        lines = lines_of(intact)
        lines[file][line], lines[other_file][other] = lines[other_file][other], lines[file][line]
        broken = reason(copied(rewritten(intact, lines)))
        assert (broken.why, broken.file.name) == (Why.REORDERED, journals(intact)[file])
        # The first line of a later file is not wrong in the place of the very first one, but what follows it is.
        assert broken.line == line + 1 + ((file, line, other) == (0, 0, 0))


def test_a_line_that_is_there_twice_is_found(intact: dict[str, bytes], copied: Copied) -> None:
    for file, line in places():
        lines = lines_of(intact)
        lines[file].insert(line, lines[file][line])
        assert reason(copied(rewritten(intact, lines))).why == Why.REORDERED


def test_a_line_without_a_seal_is_found(intact: dict[str, bytes], copied: Copied) -> None:
    stranger = encode(matches(1)[0], KEY)
    for file, line in places():
        lines = lines_of(intact)
        lines[file].insert(line, stranger)
        broken = reason(copied(rewritten(intact, lines)))
        assert (broken.why, broken.line) == (Why.FOREIGN, line + 1)


def test_a_file_that_was_taken_out_is_found(intact: dict[str, bytes], copied: Copied) -> None:
    files = worker_files(copied(intact))
    broken = reason_of(lambda: verify([files[0], files[2]], SIGNING, None))
    assert (broken.why, broken.file, broken.line) == (Why.MISSING, files[2], 1)


def test_a_cut_is_found_after_a_restart_too(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    write(path, 3)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:1]))
    assert reason(path).why == Why.CUT
    write(path, 1, 3)
    broken = reason(path)
    assert (broken.why, broken.line) == (Why.MISSING, 2)
    assert "lines 1 to 2" in str(broken)


def test_a_signature_of_another_key_is_found_and_hashes_are_not_enough(tmp_path: Path) -> None:
    """Somebody who can write the file and knows how lines are chained, but not the key."""
    path = tmp_path / "journal"
    write(path, 3, key="the key of a forger")
    assert checked(path, None).records == 3
    assert reason_of(lambda: verify([path], SIGNING, None)).why == Why.CHANGED
    assert read_head(head_path(path).read_bytes(), SIGNING) is None


def test_without_a_head_a_cut_is_not_missed(intact: dict[str, bytes], copied: Copied) -> None:
    lines = lines_of(intact)
    del lines[2][1:]
    path = copied(rewritten(intact, lines))
    assert checked(path, headless=True).records == 9
    assert isinstance(checked(path, headless=True).end, Link)
