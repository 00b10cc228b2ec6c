"""What `portcullis doctor` makes of what a gateway answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.config import parse
from gateway.doctor.findings import ENOUGH_TEXT, Observed, findings
from gateway.policy.model import Config

LOCAL = "http://127.0.0.1:8080"
CONFIG = """
listen: {host: 0.0.0.0, port: 8080, admin: {host: 127.0.0.1, port: 9090}}
auth: {keys: [sk-client]}
upstreams: {demo: {type: demo}}
routes: [{model: '*', upstream: demo, policy: default}]
policies: {default: {max_hold: 64, rules: [{id: said, words: [swordfish]}, {id: never, words: [halibut]}]}}
"""


def config() -> Config:
    return parse(CONFIG, "portcullis.yaml", Path(), {})


def found(exposition: str = "", **seen: Any) -> list[str]:
    samples = tuple(s for family in text_string_to_metric_families(exposition) for s in family.samples)
    observed: dict[str, Any] = {"url": LOCAL, "metrics_url": LOCAL, "ready": {"status": "ready"}, "keyless": 401}
    return [str(each) for each in findings(Observed(**{**observed, **seen}, samples=samples))]


SOUND = """
portcullis_scanned_chars_total{channel="content"} 10
portcullis_forwarded_chars_total{channel="content"} 6
portcullis_replaced_chars_total{channel="content"} 3
portcullis_withheld_chars_total{channel="content"} 1
portcullis_upstream_up{upstream="demo"} 1
portcullis_mask_in_force{policy="default",upstream="local"} 1
portcullis_config_reloads_total{outcome="ok"} 4
portcullis_upstream_errors_total{upstream="demo",kind="timeout"} 4
portcullis_held_chars_bucket{le="0.0"} 995
portcullis_held_chars_bucket{le="32.0"} 995
portcullis_held_chars_bucket{le="+Inf"} 1000
portcullis_held_chars_count 1000
process_open_fds 10
process_max_fds 1024
"""


def test_nothing_is_found_where_all_is_well() -> None:
    assert found(SOUND) == []
    assert found(SOUND, config=config(), skew=1.0, skews={"demo": -2.0}, problems={"demo": None}) == []


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('portcullis_coverage_errors_total{channel="content"} 2', "2 texts had characters that were neither"),
        ('portcullis_guard_failures_total{policy="default"} 1', "nothing unscanned was sent"),
        ('portcullis_scanned_chars_total{channel="reasoning"} 5', "5 scanned characters of channel reasoning"),
        ('portcullis_upstream_up{upstream="openai"} 0', "upstreams.openai: does not answer"),
        ('portcullis_mask_in_force{policy="strict/exhausted",upstream="local"} 0', "policies.strict: its mask is not"),
        ('portcullis_config_reloads_total{outcome="failed"} 3', "3 attempts to reload failed"),
        ("portcullis_journal_dropped_total 7", "7 entries could not be written"),
        ('portcullis_accept_failures_total{reason="EMFILE"} 1', "{reason=EMFILE}: 1 connections could not be"),
        ('portcullis_overflows_total{policy="default"} 1', "raise max_hold"),
        ('portcullis_unknown_events_total{path="/v1/responses"} 1', "{path=/v1/responses}: 1 fields or events"),
        ('portcullis_upstream_errors_total{upstream="openai",kind="auth"} 2', "upstreams.openai: 2 calls failed"),
        ("process_open_fds 900\nprocess_max_fds 1000", "900 of 1000 file descriptors"),
        (
            'portcullis_held_chars_bucket{le="512.0"} 90\nportcullis_held_chars_count 100',
            "after 10.0% of the pieces more than 512 characters are held",
        ),
    ],
)
def test_each_metric_that_tells_of_something(line: str, told: str) -> None:
    (finding,) = found(line)
    assert told in finding


def test_texts_that_still_run_are_not_missed() -> None:
    assert found('portcullis_scanned_chars_total{channel="content"} 5\nportcullis_streams_active 1') == []


def test_readiness_clocks_and_addresses() -> None:
    assert found(ready={"status": "all upstreams are down"})[0].startswith(f"{LOCAL}/readyz: not ready: all upstreams")
    assert "its clock is 60 seconds ahead of" in found(skew=60.0)[0]
    assert found(skews={"openai": -31.0})[0].startswith("upstream openai: its clock is 31 seconds behind")
    assert "cannot be reached" in found(problems={"openai": "cannot be reached (dns)"})[0]
    away = "http://gateway.internal:8080"
    assert [each.partition(":")[0] for each in found(url=away, keyless=200, metrics_url=LOCAL)] == ["http"]
    assert "auth.keys" in found(url=away, keyless=200, metrics_url=LOCAL)[0]
    assert "listen.admin" in found(url=away, metrics_url=away)[0]
    assert found(keyless=200) == []


def test_an_upstream_that_is_down_is_told_once() -> None:
    down = 'portcullis_upstream_up{upstream="demo"} 0'
    assert len(found(down, problems={"demo": "cannot be reached (refused)"})) == 1


def test_a_rule_that_never_matched_is_told_after_enough_text() -> None:
    said = 'portcullis_matches_total{policy="default",rule="said",action="redact",channel="content"} 1\n'
    texts = (
        'portcullis_scanned_chars_total{channel="content"} %d\nportcullis_forwarded_chars_total{channel="content"} %d'
    )
    assert found(said + texts % ((ENOUGH_TEXT - 1,) * 2), config=config()) == []
    (finding,) = found(said + texts % ((ENOUGH_TEXT,) * 2), config=config())
    assert finding.startswith("policies.default.rules[1]: rule never has matched nothing in 5 million characters")


def test_the_limit_is_that_of_the_policies() -> None:
    held = 'portcullis_held_chars_bucket{le="32.0"} 90\nportcullis_held_chars_count 100'
    assert found(held, config=config()) and "more than 32 characters" in found(held, config=config())[0]


def test_warnings_of_the_configuration_are_told() -> None:
    unused = parse(CONFIG.replace("policies: {", "policies: {spare: {}, "), "portcullis.yaml", Path(), {})
    assert found(config=unused) == [
        "policies.spare: no route uses this policy; see the warnings of portcullis check portcullis.yaml"
    ]
