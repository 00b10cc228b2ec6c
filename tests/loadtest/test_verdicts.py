"""Ratios are taken within a round, medians over rounds, and a limit that was not measured is not held."""

from loadtest.report import remarks, table, verdict_lines
from loadtest.run import Measurement
from loadtest.scenario import load
from loadtest.verdicts import Figure, Round, rows, verdicts

LIMITS = load()[1]


def measured(
    target: str, cpu_us: float | None, p50: float, p99: float, scenario: str = "paced-200", **rest: object
) -> Measurement:
    return Measurement(
        scenario=scenario,
        target=target,
        streams=200,
        expected=5,
        guarded=target.startswith("portcullis"),
        cpu_us=cpu_us,
        delays_ms=(p50, p99, p99 * 2),
        kb_per_stream=None if cpu_us is None else 40.0,
        redactions=(5, 5) if target.startswith("portcullis") else (0, 0),
        leaks=(0, 0) if target.startswith("portcullis") else (5, 5),
        **rest,  # type: ignore[arg-type]
    )


def one_round(speed: float) -> Round:
    runs = [
        measured("direct", None, 0.1, 0.2),
        measured("nginx", 10 * speed, 0.2, 0.5),
        measured("portcullis-10", 20 * speed, 0.3, 1.2),
        measured("portcullis-1000", 25 * speed, 0.4, 1.2 * speed),
        measured("nginx", 9 * speed, 0.2, 0.5, "together-200"),
        measured("portcullis-1000", 18 * speed, 0.4, 1.2, "together-200"),
        measured("portcullis-1000", 18 * speed, 0.4, 1.2, "hostile-200"),
        measured("portcullis-10", 18 * speed, 0.4, 1.2, "words-200"),
        measured("portcullis-100000", 27 * speed, 0.4, 1.2, "words-200"),
        measured("portcullis-1000", 18 * speed, 0.4, 1.2, "workers-400"),
        measured("portcullis-1000", 18 * speed, 0.4, 1.2, "dialects-120"),
        measured("portcullis-1000-messages", 27 * speed, 0.4, 1.2, "dialects-120"),
        measured("portcullis-1000-x2", 18.9 * speed, 0.4, 1.2, "workers-400"),
    ]
    return {(run.scenario, run.target): run for run in runs}


def test_a_slow_round_does_not_change_a_ratio() -> None:
    found = {row.target: row for row in rows([one_round(1), one_round(3)]) if row.scenario == "paced-200"}
    assert found["portcullis-1000"].vs_nginx == Figure(2.5, 2.5, 2.5)
    assert found["portcullis-1000"].cpu_us == Figure(50, 25, 75)
    assert found["portcullis-1000"].vs_bytecopy is None
    assert found["direct"].added_p50 is None
    assert found["portcullis-1000"].counts == "5/5 redacted"
    assert found["nginx"].counts == "5/5 passed"


def test_verdicts_take_the_worst_list_of_words() -> None:
    judged = verdicts([one_round(1), one_round(9)], LIMITS)
    assert [verdict.what.partition(": ")[0] for verdict in judged] == [
        *(["paced-200"] * 3 + ["together-200"] * 2),
        "words-200",
        "workers-400",
        *(["dialects-120"] * 4),
    ]
    found = {verdict.what.partition(": ")[2]: verdict for verdict in judged}
    assert found["CPU a chunk, 1,000 words / nginx"].figure == Figure(2, 2, 2)
    assert found["CPU a chunk, 1,000 words / byte copy"].holds is None
    assert found["CPU a chunk, 100,000 / 10 words"].figure == Figure(1.5, 1.5, 1.5)
    assert found["CPU a chunk, 2 workers / 1"].holds is True
    assert found["CPU a chunk, messages / chat"].figure == Figure(1.5, 1.5, 1.5)
    assert found["CPU a chunk, messages / chat"].holds is False
    assert found["added delay p50, ms"].holds is True
    assert found["added delay p99, ms"].figure == Figure(5.8, 1.0, 10.6)
    assert found["added delay p99, ms"].holds is False
    assert verdict_lines(list(found.values())).count("OVER") == 3


def test_without_a_guard_there_is_nothing_to_judge() -> None:
    bare = {key: run for key, run in one_round(1).items() if not run.guarded}
    assert verdicts([bare], LIMITS) == []


def test_the_table_shows_what_is_missing_and_what_is_wrong() -> None:
    found = one_round(1)
    found["paced-200", "nginx"] = Measurement(
        scenario="paced-200", target="nginx", streams=200, expected=5, skipped="not installed"
    )
    found["paced-200", "direct"] = measured("direct", None, 0.1, 0.2, faults=("stream 3: status 502",), late_share=0.5)
    shown = [row for row in rows([found]) if row.scenario == "paced-200"]
    assert "not installed" in table(shown)
    assert len({len(line.split("  ")[0]) for line in table(shown).splitlines()}) == 2
    assert "WRONG  paced-200 direct: stream 3: status 502" in remarks(shown)
    assert "50% of its chunks over 5 ms late" in remarks(shown)
