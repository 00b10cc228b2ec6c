"""A served model: what is asked over the wire, what comes back, and everything else that may come."""

from __future__ import annotations

import json
import math
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from gateway.audit.model import ModelError, rows_of
from gateway.audit.models import vllm
from gateway.audit.models.toy import Toy
from gateway.audit.models.vllm import VllmModel
from gateway.audit.query.model import Decoding, Message, PrefixRegex, Query, Tokenizations
from gateway.audit.searches.best_first import search
from tests.support.served_model import VOCABULARY, Served

Json = dict[str, Any]

BEGIN = 9  # what begins a text is what ends one, as GPT-2 has it
KEY = "sk-secret"


@pytest.fixture
def served() -> Iterator[Served]:
    plays = Served(Toy(VOCABULARY, seed=3))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            plays.keys.append(self.headers["authorization"])
            answer = plays.play(self.path, body)
            if answer is None:
                self.close_connection = True
                return
            status, content = answer
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    plays.url = f"http://127.0.0.1:{server.server_port}/v1"
    try:
        yield plays
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy in the environment is not meant for these calls, and nobody waits."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(vllm, "RETRY_DELAYS", (0.0, 0.0))


def write_tokenizer(folder: Path) -> Path:
    """A model's folder, with a tokenizer that has the vocabulary."""
    shown = {0xC3: "Ã", 0xA9: "©", 0x20: "Ġ"}
    named = ["".join(shown.get(byte, chr(byte)) for byte in text or b"") for text in VOCABULARY.tokens]
    merges = [("a", "b"), ("b", "c"), ("Ã", "©")]
    made = Tokenizer(BPE(vocab={name: token for token, name in enumerate(named[:-1])}, merges=merges))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = ByteLevelDecoder()
    made.add_special_tokens([AddedToken("</s>", special=True)])
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": BEGIN}))
    return folder


@pytest.fixture
def endpoint(served: Served, tmp_path: Path) -> Iterator[VllmModel]:
    made = VllmModel(served.url, "m", write_tokenizer(tmp_path / "model"), KEY)
    yield made
    made.close()


def test_several_prefixes_go_in_one_request(served: Served, endpoint: VllmModel) -> None:
    assert endpoint.vocabulary.digest() == VOCABULARY.digest()
    endpoint.require_top_k(3)
    served.bodies.clear()
    rows = rows_of(endpoint, [(9,), (9, 0), (9, 4, 1)])
    [body] = served.bodies
    assert body["prompt"] == [[9], [9, 0], [9, 4, 1]] and body["logprobs"] == 3 and body["model"] == "m"
    # Whatever the server's defaults for the model are, the law is the model's own.
    assert (body["temperature"], body["top_p"], body["top_k"], body["repetition_penalty"]) == (1.0, 1.0, -1, 1.0)
    assert set(served.keys) == {f"Bearer {KEY}"}
    for row, prefix in zip(rows, body["prompt"], strict=True):
        spec = served.toy([prefix])[0]
        told = np.flatnonzero(row > -np.inf)
        assert np.allclose(row[told], spec[told])
        assert set(np.argsort(-spec)[:3]) <= set(told.tolist()) and len(told) <= 4


def test_a_call_of_many_prefixes_is_several_requests(
    served: Served, endpoint: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "MAX_PROMPTS", 3)
    endpoint.require_top_k(3)
    served.bodies.clear()
    rows = rows_of(endpoint, [(9, number) for number in range(7)])
    assert [len(body["prompt"]) for body in served.bodies] == [3, 3, 1]
    for number, row in enumerate(rows):
        told = np.flatnonzero(row > -np.inf)
        assert np.allclose(row[told], served.toy([(9, number)])[0][told])


def test_as_many_tokens_are_asked_for_as_the_rule_needs(served: Served, endpoint: VllmModel) -> None:
    served.most = 4
    endpoint.require_top_k(4)
    with pytest.raises(ModelError, match=r"returns the 4 most likely tokens, and decoding.top_k asks for 5: .* 5$"):
        endpoint.require_top_k(5)
    with pytest.raises(ModelError, match=r"the 4 most likely tokens, and without decoding.top_k all 10 count: "):
        search(endpoint, Query(query="ab", decoding=Decoding(top_p=0.9)))
    served.most = 0
    with pytest.raises(ModelError, match="returns no log-probabilities"):
        endpoint.require_top_k(1)
    served.most = 20
    endpoint.require_top_k(None)
    assert (rows_of(endpoint, [(9,)]) > -np.inf).all()


@pytest.mark.parametrize("tokenizations", Tokenizations)
def test_a_search_finds_what_it_finds_in_the_model_itself(
    served: Served, endpoint: VllmModel, tokenizations: Tokenizations
) -> None:
    query = Query(
        query="[abc]{1,2}é?[abcé]{1,2}",
        prefix=PrefixRegex("[abc]{1,2}é?"),
        decoding=Decoding(top_k=3, end_of_text=True),
        tokenizations=tokenizations,
        limit=10**6,
    )
    served.most = 3
    # The toy's texts begin with nothing; the server's with a token, since a prompt must not be empty.
    served.toy.context = lambda prompt: (BEGIN,)  # type: ignore[method-assign]
    served.toy.encode = endpoint.encode  # type: ignore[method-assign]
    spec = list(search(served.toy, query))
    found = list(search(endpoint, query))
    assert [result.text for result in found] == [result.text for result in spec]
    assert [result.tokens for result in found] == [result.tokens for result in spec]
    for name in ("logprob", "prefix_logprob", "string_logprob"):
        told = [getattr(result, name) for result in found]
        assert told == pytest.approx([getattr(result, name) for result in spec], abs=1e-5)
    assert any(len(body["prompt"]) > 1 for body in served.bodies)


def test_tokens_of_a_prefix_are_asked_for_by_name(served: Served, endpoint: VllmModel) -> None:
    endpoint.require_top_k(2)
    served.bodies.clear()
    asked = np.arange(9, dtype=np.int32)
    [told, few] = endpoint.logprobs_of([(9, 0), (9,)], [asked, asked[:1]])
    assert np.allclose(told, served.toy([(9, 0)])[0][:9]) and np.allclose(few, served.toy([(9,)])[0][:1])
    assert [body["logprob_token_ids"] for body in served.bodies] == [list(range(9)), [0]]
    served.tells = False
    with pytest.raises(ModelError, match="logprob_token_ids"):
        endpoint.logprobs_of([(9, 0)], [asked])


def test_what_stands_before_a_string(served: Served, endpoint: VllmModel) -> None:
    assert endpoint.context(None) == (BEGIN,)
    assert endpoint.context("ab") == (4,)
    assert endpoint.context([{"role": "user", "content": "bc"}]) == (5,)
    assert served.bodies[-1]["add_generation_prompt"] and served.bodies[-1]["model"] == "m"
    search(endpoint, Query(query="ab", prompt=(Message("user", "a"),), decoding=Decoding(top_k=1)))
    assert served.bodies[-1]["messages"] == [{"role": "user", "content": "a"}]


def test_the_beginning_of_a_text_is_what_the_model_says(served: Served, tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model")
    (folder / "config.json").write_text(json.dumps({"bos_token_id": 7}))
    made = VllmModel(served.url, "m", folder)
    assert made.context(None) == (7,) and served.keys == [None]


# -- when something goes wrong -----------------------------------------------------------------------------------------

BUSY = 503, b'{"error": {"message": "busy"}}'


@pytest.mark.parametrize("failures", [[BUSY], [None], [BUSY, None], [(429, b""), (500, b"oops")]])
def test_a_request_that_fails_is_sent_again(
    served: Served, endpoint: VllmModel, failures: list[tuple[int, bytes] | None]
) -> None:
    served.first = list(failures)
    endpoint.require_top_k(3)
    assert len(served.bodies) == len(failures) + 1
    assert all(body == served.bodies[0] for body in served.bodies)


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (BUSY, r"failed 3 times: status 503: busy"),
        (None, r"failed 3 times: \w+"),
        ((500, b"x"), r"status 500: no message"),
    ],
)
def test_a_server_that_keeps_failing_is_an_error(
    served: Served, endpoint: VllmModel, failure: tuple[int, bytes] | None, message: str
) -> None:
    endpoint.require_top_k(3)
    served.first = [failure] * 3
    with pytest.raises(ModelError, match=message) as raised:
        rows_of(endpoint, [(9,)])
    assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    "answer",
    [
        (200, b"<html>"),
        (200, b"[]"),
        (200, b'{"choices": []}'),
        (200, b'{"choices": [{"index": 0, "logprobs": null}]}'),
        (200, b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": []}}]}'),
        (200, b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{" a": -1.0}]}}]}'),
        (200, b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:1": null}]}}]}'),
        (200, b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:1": -1%s}]}}]}' % (b"0" * 400)),
        (200, b'{"choices": [{"index": 1, "logprobs": {"top_logprobs": [{"token_id:1": -1.0}]}}]}'),
        (200, b"[" * 100_000),
    ],
)
def test_an_answer_that_makes_no_sense_is_an_error(
    served: Served, endpoint: VllmModel, answer: tuple[int, bytes]
) -> None:
    endpoint.require_top_k(3)
    served.first = [answer]
    with pytest.raises(ModelError, match="is this vLLM's API"):
        rows_of(endpoint, [(9,)])


def test_what_the_server_refuses_is_said_in_its_words(served: Served, endpoint: VllmModel) -> None:
    served.first = [(404, b'{"error": {"message": "The model `m` does not exist."}}')]
    with pytest.raises(ModelError, match=r"status 404: The model `m` does not exist") as raised:
        endpoint.require_top_k(3)
    assert len(served.bodies) == 1 and KEY not in str(raised.value) + repr(endpoint)
    endpoint.require_top_k(3)
    served.first = [(400, json.dumps({"message": "too long " * 1000}).encode())]
    with pytest.raises(ModelError, match=r"too long too long .*…$") as raised:
        rows_of(endpoint, [(9,)])
    assert len(str(raised.value)) < 500


def test_what_was_found_before_the_server_failed_stays(served: Served, endpoint: VllmModel) -> None:
    query = Query(query="[abc]{1,3}", decoding=Decoding(top_k=8), limit=10**6)
    spec = [result.text for result in search(endpoint, query, batch=4)]
    found = search(endpoint, query, batch=4)
    given = [next(found).text for _ in range(5)]
    served.first = [BUSY] * 3
    with pytest.raises(ModelError, match="busy"):
        for result in found:
            given.append(result.text)
    assert 5 <= len(given) < len(spec)
    assert given + [result.text for result in found] == spec


def test_what_is_not_installed_is_said(endpoint: VllmModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModelError, match=r"pip install -e '\.\[audit\]' tokenizers$"):
        endpoint.encode("ab")


def test_a_server_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model")
    made = VllmModel("http://127.0.0.1:9/v1/", "m", folder / "tokenizer.json", timeout=5)
    with pytest.raises(ModelError, match=r"^http://127.0.0.1:9/v1: the server failed 3 times: Connect"):
        made.require_top_k(3)
    assert "ConnectError: nothing listens there: is the server running, and is this its address?" in refusal(made)
    with pytest.raises(ModelError, match="cannot be read"):
        VllmModel("http://127.0.0.1:9/v1", "m", tmp_path / "nowhere")


def refusal(endpoint: VllmModel) -> str:
    with pytest.raises(ModelError) as refused:
        endpoint([[1, 2], [3]])
    return str(refused.value)


@pytest.mark.parametrize("answered", [False, True], ids=["at once", "later"])
def test_e13_a_server_that_died_is_named_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    monkeypatch.setattr(vllm, "RETRY_DELAYS", (0.0, 0.0))
    folder = write_tokenizer(tmp_path / "model")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def die() -> None:
            """With the first request, or behind the answer to one, as a process does that is killed."""
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                if answered:
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                listener.shutdown(socket.SHUT_RDWR)

        dying = threading.Thread(target=die)
        dying.start()
        made = VllmModel(f"http://127.0.0.1:{port}/v1", "m", folder / "tokenizer.json", timeout=5)
        made._top_k = 3
        if answered:
            with pytest.raises(ModelError, match="the server refuses: status 400"):
                made([[1]])
            dying.join()
        message = refusal(made)
        dying.join()
    assert message.startswith(
        f"http://127.0.0.1:{port}/v1: the server failed 3 times: ConnectError: it was there before"
    )
    assert "(2 prompts of up to 2 tokens, 3 log-probabilities each)" in message
    assert "its log says why" in message and "AMX" in message
    made.close()


def fewer(content: bytes, count: int) -> bytes:
    """The answer with the first `count` log-probabilities only."""
    answer = json.loads(content)
    for choice in answer["choices"]:
        [told] = choice["logprobs"]["top_logprobs"]
        choice["logprobs"]["top_logprobs"] = [dict(list(told.items())[:count])]
    return json.dumps(answer).encode()


def test_a_server_that_tells_fewer_tokens_than_asked_for_says_nothing_about_it(
    served: Served, endpoint: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    plays = served.play

    def play(path: str, body: Json) -> tuple[int, bytes] | None:
        answer = plays(path, body)
        assert answer is not None
        return answer[0], fewer(answer[1], 3)

    endpoint.require_top_k(4)
    monkeypatch.setattr(served, "play", play)
    with pytest.raises(ModelError, match="3 log-probabilities where 4 were asked for"):
        rows_of(endpoint, [(9,)])
    with pytest.raises(ModelError, match=r"returns the 3 most likely tokens, and decoding.top_k asks for 5: "):
        endpoint.require_top_k(5)
    endpoint.require_top_k(3)
    rows_of(endpoint, [(9,), (9, 0)])


def test_tokens_without_any_probability_need_not_be_told(served: Served, endpoint: VllmModel) -> None:
    told = (
        b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:1": -0.5, "token_id:2": -0.9327521}]}}]}'
    )
    served.first = [(200, told)] * 2
    endpoint.require_top_k(5)
    assert np.isfinite(rows_of(endpoint, [(9,)])).sum() == 2


@pytest.mark.parametrize("status", [401, 500])
def test_what_a_server_says_is_one_line_without_the_key(served: Served, endpoint: VllmModel, status: int) -> None:
    said = f"\x1b[31mBearer {KEY}\r\nis\u2028wrong"
    served.first = [(status, json.dumps({"error": {"message": said}}).encode())] * 3
    with pytest.raises(ModelError, match=rf"status {status}: \[31mBearer … is wrong$"):
        endpoint.require_top_k(3)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"error": "Unauthorized"}', "Unauthorized"),
        (b'{"detail": "Not Found"}', "Not Found"),
        (b'{"error": {}}', "no message"),
        (b"[" * 100_000, "no message"),
    ],
)
def test_what_a_server_says_in_other_forms(served: Served, endpoint: VllmModel, content: bytes, said: str) -> None:
    served.first = [(404, content)]
    with pytest.raises(ModelError, match=f"status 404: {said}$"):
        endpoint.require_top_k(3)


def test_an_answer_without_end_is_not_read(
    served: Served, endpoint: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm, "MAX_ANSWER", 1000)
    served.first = [(200, b" " * 10_000)] * 3
    with pytest.raises(ModelError, match=r"failed 3 times: an answer of more than \d+ bytes"):
        endpoint.require_top_k(3)


@pytest.mark.parametrize("tokens", [[math.inf], [math.nan], [1.5], [True], "12", [-1], {"1": 2}, None])
def test_a_prompt_is_tokens_or_nothing(served: Served, endpoint: VllmModel, tokens: object) -> None:
    served.first = [(200, json.dumps({"tokens": tokens}).encode())]
    with pytest.raises(ModelError, match="/tokenize gives no tokens"):
        endpoint.context("ab")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.json", "{"), ("config.json", "[]"), ("config.json", "[" * 100_000),
        ("tokenizer.json", "[" * 100_000), ("tokenizer.json", '{"decoder": 5}'),
        ("tokenizer.json", '{"decoder": {"type": "ByteLevel"}, "model": 3}'),
        ("tokenizer.json", '{"decoder": {"type": "ByteLevel"}, "model": {"vocab": {"a": "x"}}}'),
        ("tokenizer.json", '{"decoder": {"type": "ByteLevel"}, "model": {"vocab": {}}, "added_tokens": [{}]}'),
        ("generation_config.json", '{"eos_token_id": [null]}'),
    ],
)  # fmt: skip
def test_a_tokenizer_that_cannot_be_read(tmp_path: Path, name: str, content: str) -> None:
    folder = write_tokenizer(tmp_path / "model")
    (folder / name).write_text(content)
    with pytest.raises(ModelError, match=f"^{folder}: the tokenizer cannot be read: "):
        VllmModel("http://127.0.0.1:9/v1", "m", folder)


def test_a_tokenizer_that_tokenizers_cannot_read(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "model")
    described = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps({**described, "pre_tokenizer": {"type": "Nonsense"}}))
    made = VllmModel("http://127.0.0.1:9/v1", "m", folder)
    with pytest.raises(ModelError, match=r"tokenizer.json: the tokenizer cannot be read: "):
        made.encode("ab")
    made.close()
