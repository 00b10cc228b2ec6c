"""The page and the lines: what strings may do to them, which is nothing, and that the numbers are right."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.audit.cli.report import MAX_BARS, MAX_ROWS, ReportRow, page
from gateway.audit.run.lines import json_line
from gateway.audit.searches.best_first import Result

TIMEOUT = 120  # seconds
VOID = {"meta"}
HOSTILE = [
    "<script>document.title = 'taken'</script>",
    "</td></table><img src=x onerror=\"document.title = 'taken'\">",
    '"><svg onload="document.title=\'taken\'">',
    "' onmouseover='x",
    "&lt;script&gt; &amp; &#60;",
    "]]><!-- {title} {body} %s",
    "\x00\x07\x1b[31m\r\n\t\x85",
    "\u202eright to left\u202c\ufeff\u2028",
    "</style><style>*{display:none}</style>",
    "Grüß 你好 😀",
]


def row(text: str, logprob: float = -1.0, **more: object) -> ReportRow:
    fields = {"tokens": (), "prefix_logprob": -2.0, "string_logprob": logprob, "encodings": 1, "prefix": 0}
    found = {name: more.pop(name, value) for name, value in fields.items()}
    return ReportRow(result=Result(text=text, logprob=logprob, **found), **more)  # type: ignore[arg-type]


class Page(HTMLParser):
    """A page as a parser sees it: elements, attributes, and the texts of table cells and headings."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert self.open == [], "an element is not closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "td":
            self.cells.append("")
        if tag in ("h1", "h2", "title", "dt", "dd", "p", "li"):
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "td" in self.open:
            self.cells[-1] += data
        for tag, texts in self.texts.items():
            if tag in self.open:
                texts[-1] += data

    def kinds(self) -> set[str]:
        return {tag for tag, _ in self.elements}


def unseen(text: str) -> str:
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


SAFE = Page(page("t", {"strings": 2}, [row("a", edits=(0,), canonical=True), row("b", canonical=False)], edited=True))


# -- what strings may do to a page -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
def test_a_string_is_text_and_nothing_else(text: str) -> None:
    everywhere = row(text, more={text: text}, prefix=3, edits=(0,), canonical=True)
    parse_options = Page(page(text, {text: text, "query": text}, [everywhere, row("b", canonical=False)], edited=True))
    assert parse_options.kinds() == SAFE.kinds()
    assert not [name for _, attributes in parse_options.elements for name in attributes if name.startswith("on")]
    assert unseen(text) in parse_options.cells
    assert parse_options.texts["h1"] == [unseen(text)]
    assert parse_options.texts["title"][0] == unseen(text)
    assert parse_options.texts["dt"] == [unseen(text), "query"]


@given(st.text())
def test_any_string_is_text_and_nothing_else(text: str) -> None:
    parse_options = Page(page("t", {}, [row(text, canonical=True)]))
    assert parse_options.cells[1] == unseen(text)
    assert parse_options.kinds() <= SAFE.kinds()


def test_the_page_needs_nothing_from_elsewhere() -> None:
    assert not SAFE.kinds() & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "a"}
    for _, attributes in SAFE.elements:
        assert not attributes.keys() & {"src", "href", "xlink:href", "style", "srcset", "data"}
    styles = re.findall(r"<style>(.*?)</style>", page("t", {}, []), re.DOTALL)
    assert len(styles) == 1 and "url(" not in styles[0] and "@import" not in styles[0]
    policies = [each["content"] for tag, each in SAFE.elements if tag == "meta" and "http-equiv" in each]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'"]


def test_it_is_made_for_the_dark_and_for_paper() -> None:
    assert "@media (prefers-color-scheme: dark)" in page("t", {}, []) and "@media print" in page("t", {}, [])


# -- what stands in it -------------------------------------------------------------------------------------------------


def test_a_row_says_all_that_is_known_of_a_string() -> None:
    found = row("My name is Tiny", math.log(0.25), string_logprob=math.log(0.5), encodings=3, canonical=False)
    parse_options = Page(page("t", {}, [found]))
    assert parse_options.cells == ["1", "My name is Tiny", "-1.386", "0.25", "-0.693", "3", "another"]


def test_the_summary_is_shown_key_by_key() -> None:
    parse_options = Page(page("t", {"strings": 2, "complete": False, "to": None, "p": 0.5, "rule": {"top_k": 40}}, []))
    assert parse_options.texts["dt"] == ["strings", "complete", "to", "p", "rule"]
    assert parse_options.texts["dd"] == ["2", "no", "—", "0.5", "top_k: 40"]


def test_nothing_found_is_said() -> None:
    assert "None was found." in Page(page("t", {}, [])).texts["p"]


def test_the_curve_ends_at_the_sum() -> None:
    rows = [row("a", math.log(0.5)), row("b", math.log(0.2)), row("c", math.log(0.05))]
    parse_options = Page(page("t", {}, rows))
    assert "3 strings have 0.75 of the probability." in parse_options.texts["p"]
    [path] = [str(each["d"]) for tag, each in parse_options.elements if tag == "path"]
    heights = [float(point.split()[1]) for point in re.split("[ML]", path)[1:]]
    top, bottom = 12.0, 240.0 - 36.0
    # The axis goes up to 0.8.
    assert heights == pytest.approx([bottom - (bottom - top) * mass / 0.8 for mass in (0.5, 0.7, 0.75)], abs=0.06)


def test_behind_a_prefix_the_best_paths_are_added_up() -> None:
    rows = [row("ab", math.log(0.5), string_logprob=math.log(0.9), encodings=2, prefix=1) for _ in range(2)]
    said = Page(page("t", {}, rows)).texts["p"]
    assert "2 strings have 1 of the probability, by their best paths, each behind its own prefix." in said


def test_samples_have_no_rank() -> None:
    rows = [row("a", canonical=True), row("a", canonical=True)]
    assert Page(page("t", {}, rows, ranked=False)).texts["h2"] == ["Summary", "Strings"]


def test_which_encodings_have_the_probability() -> None:
    rows = [
        row("a", math.log(0.5), canonical=True),
        row("b", math.log(0.1), string_logprob=math.log(0.3), encodings=2, canonical=False),
    ]
    shares = Page(page("t", {}, rows)).texts["li"]
    assert [share.strip() for share in shares] == [
        "the best path, canonical: 62.5%", "the best path, another encoding: 12.5%", "further encodings: 25.0%",
    ]  # fmt: skip


def test_no_shares_where_nobody_knows_what_is_canonical() -> None:
    assert "Encodings" not in Page(page("t", {}, [row("a")])).texts["h2"]


def test_where_edits_are() -> None:
    rows = [row("a", edits=(2, 5)), row("b", edits=(2,)), row("c"), row("d", edits=(MAX_BARS + 7, MAX_BARS + 9))]
    shown = page("t", {}, rows, edited=True)
    assert re.findall(r"<title>character (\d+): (\d+)</title>", shown) == [("2", "2"), ("5", "1"), ("119", "2")]
    assert "3 of 4 strings are edited." in shown
    assert "Edits" not in Page(page("t", {}, rows)).texts["h2"]


def test_the_table_has_an_end() -> None:
    parse_options = Page(page("t", {}, [row(str(number)) for number in range(MAX_ROWS + 5)]))
    assert len(parse_options.cells) == 6 * MAX_ROWS
    assert "5 more are in the JSON lines only." in parse_options.texts["p"]


@pytest.mark.parametrize("logprobs", [[0.0], [-1000.0, -2000.0], [-1e-9] * 3, [-5.0] * 1500])
def test_any_numbers_can_be_drawn(logprobs: list[float]) -> None:
    rows = [row(str(number), logprob, canonical=True, edits=(0,)) for number, logprob in enumerate(logprobs)]
    assert not re.search(r"\b(nan|inf)\b", page("t", {}, rows, edited=True))


# -- lines -------------------------------------------------------------------------------------------------------------


def test_a_line_is_json_on_one_line() -> None:
    for text in HOSTILE:
        written = json_line({"text": text, "tokens": (1, 2), "logprob": -1.5, "more": {"a": [math.inf, math.nan, 2.0]}})
        assert "\n" not in written and "\r" not in written
        assert json.loads(written) == {
            "text": text, "tokens": [1, 2], "logprob": -1.5, "more": {"a": [None, None, 2.0]},
        }  # fmt: skip


# -- a real browser ----------------------------------------------------------------------------------------------------

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture
def rendered(tmp_path: Path) -> Iterator[Page]:
    """The page as it is after a browser has run it."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    rows = [row(text, more={"rule": text}, canonical=True, edits=(1,)) for text in HOSTILE]
    file = tmp_path / "report.html"
    file.write_text(page("Audit", {"query": HOSTILE[0]}, rows, edited=True), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom"]
    done = subprocess.run([CHROMIUM, *options, file.as_uri()], capture_output=True, timeout=TIMEOUT, check=True)
    yield Page(done.stdout.decode())


def test_a_browser_shows_the_strings_and_runs_none(rendered: Page) -> None:
    assert rendered.texts["title"][0] == "Audit"
    for text in HOSTILE:
        assert unseen(text) in rendered.cells
    # What parsers add to every page may be there as well.
    assert rendered.kinds() <= SAFE.kinds() | {"html", "head", "body", "tbody"}
