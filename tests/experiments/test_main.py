"""`python -m experiments`: what was measured is kept, the page is written, and a missed limit is an exit status."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments import __main__ as command


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the page is, with an experiment that says what it was told to; of `bias` it misses its limit."""

    def made_up(name: str) -> SimpleNamespace:
        def section(data: dict[str, Any]) -> tuple[str, str]:
            return name, f"holds  {data['seen']}" if name != "bias" else "OVER   a limit"

        return SimpleNamespace(
            measure=lambda folder: {"seen": folder.name},
            section=section,
            draw=lambda data, folder: (folder / f"{name}.png").write_text(data["seen"]),
        )

    monkeypatch.setattr(command, "_module", made_up)
    monkeypatch.setattr(command, "PAGE", tmp_path / "audit.md")
    return command.PAGE


def test_measured_and_written(page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["measure", str(tmp_path / "data"), "urls", "large"]) == 0
    seen = json.loads((tmp_path / "data" / "urls.json").read_text())
    assert seen["seen"] == "urls" and "cores" in seen["machine"]
    assert command.main(["write", str(tmp_path / "data"), "urls", "large"]) == 0
    text = page.read_text()
    assert text.startswith(command.HEAD) and text.index("## urls") < text.index("## large")
    assert f"holds  urls\n\nMachine: {seen['machine']}" in text
    assert {path.name for path in tmp_path.glob("*.png")} == {"urls.png", "large.png"}


def test_a_missed_limit_is_an_exit_status(page: Path, tmp_path: Path) -> None:
    command.main(["measure", str(tmp_path), "bias", "urls"])
    assert command.main(["write", str(tmp_path), "bias", "urls"]) == 1
    assert "OVER   a limit" in page.read_text()


def test_an_experiment_that_there_is_not(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        command.main(["measure", str(tmp_path), "urls", "nothing"])


@pytest.mark.parametrize("name", command.EXPERIMENTS)
def test_every_experiment_is_a_module_with_three_functions(name: str) -> None:
    module = command._module(name)
    assert all(callable(getattr(module, function)) for function in ("measure", "section", "draw"))
