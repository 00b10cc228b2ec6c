"""The command line's own server, as a process: from a file, and the demo."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.completions import PATH, TextStream
from tests.support.gateway import TIMEOUT, Streamed, http_client, question
from tests.support.upstream import completion, plain, playing, sending_then_hanging, stream_head

CONFIG = """
listen: {{drain_timeout: 1}}
auth: {{keys: ["${{CLIENT_KEY}}"]}}
upstreams:
  played: {{base_url: "{base_url}", api_key: "${{UPSTREAM_KEY}}"}}
routes:
  - {{model: "gpt-*", upstream: played, policy: strict}}
policies:
  strict:
    rules:
      - {{id: password, words: ["12MONKEYS"], replacement: "[CENSORED]", secret: true}}
"""
ENVIRONMENT = {"CLIENT_KEY": "sk-of-a-client", "UPSTREAM_KEY": "sk-of-the-upstream"}


@asynccontextmanager
async def command(*arguments: str, **environment: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """`portcullis …` as a process, and its address, once it says that it listens."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "gateway.cli",
        *arguments,
        "--port",
        "0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={"PATH": "", **environment},
    )
    assert process.stdout is not None
    try:
        first = (await asyncio.wait_for(process.stdout.readline(), TIMEOUT)).decode()
        assert " listens on " in first, first
        yield process, first.split(" listens on ")[1].split(",")[0]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_serve_from_a_file(tmp_path: Path) -> None:
    streams = sending_then_hanging(stream_head())

    async def play(call: object) -> None:
        if call.body.get("stream"):  # type: ignore[attr-defined]
            await streams(call)  # type: ignore[arg-type]
        await call.send(plain(completion("It is 12MONKEYS")))  # type: ignore[attr-defined]

    async with playing(play) as upstream:
        file = tmp_path / "portcullis.yaml"
        file.write_text(CONFIG.format(base_url=upstream.base_url))
        async with command("serve", "--config", str(file), **ENVIRONMENT) as (process, url):
            headers = {"authorization": "Bearer sk-of-a-client"}
            async with http_client(url) as client:
                client.headers.update(headers)
                answer = await client.post("/v1/chat/completions", json=question())
                assert answer.json()["choices"][0]["message"]["content"] == "It is [CENSORED]"
                assert answer.headers["x-portcullis-policy"] == "strict"
                assert "server" not in answer.headers
                assert upstream.calls[0].request.headers["authorization"] == "Bearer sk-of-the-upstream"
                refused = await client.post(
                    "/v1/chat/completions", json=question(), headers={"authorization": "Bearer x"}
                )
                assert refused.status_code == 401
                # A stream is under way when the server is told to stop: it does not keep it from stopping.
                async with client.stream("POST", "/v1/chat/completions", json=question(stream=True)) as streaming:
                    assert streaming.status_code == 200
                    process.send_signal(signal.SIGTERM)
                    await asyncio.wait_for(upstream.calls[-1].conversation.client_left.wait(), TIMEOUT)
            _, errors = await asyncio.wait_for(process.communicate(), TIMEOUT)
            lines = [json.loads(line) for line in errors.decode().splitlines()]
            requests = [line for line in lines if line["event"] == "request"]
            assert [line["status"] for line in requests] == [200, 401, 200]
            assert (requests[-1]["outcome"], requests[-1]["error"]) == ("cancelled", "server stops")
            for secret in ("12MONKEYS", *ENVIRONMENT.values()):
                assert secret not in errors.decode()


async def test_the_demo_keeps_its_password() -> None:
    async with command("demo") as (process, url):
        async with http_client(url) as client:
            assert (await client.get("/readyz")).json() == {"status": "ready", "upstreams": {"demo": "up"}}
            assert [model["id"] for model in (await client.get("/v1/models")).json()["data"]] == ["gandalf"]

            async def ask(said: str) -> Streamed:
                body = question(said, stream=True) | {"model": "gandalf"}
                return Streamed(await client.post("/v1/chat/completions", json=body))

            words = ("password", "spell", "twice", "wide", "hidden", "whisper", "think", "call", "hello")
            answers = dict(zip(words, await asyncio.gather(*map(ask, words)), strict=True))
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), TIMEOUT)
    assert answers["password"].content() == 'The password is "[CENSORED]".'
    assert answers["twice"].content().count("[CENSORED]") == 2
    assert answers["think"].content(field="reasoning_content").count("[CENSORED]") == 1
    for word, answer in answers.items():
        assert (answer.done, answer.error) == (True, None), word
        assert "12MONKEYS" not in answer.content().upper()
        assert ("[CENSORED]" in answer.response.text) is (word != "hello"), word


async def test_the_demo_completes_texts() -> None:
    prompts = ["the password is", "spell it", "hello"]
    options = {"include_usage": True}
    async with command("demo") as (process, url):
        async with http_client(url) as client:
            body = {"model": "gandalf", "prompt": prompts}
            whole = (await client.post(PATH, json=body)).json()
            answer = TextStream(await client.post(PATH, json={**body, "stream": True, "stream_options": options}))
            one = (await client.post(PATH, json={"model": "gandalf", "prompt": prompts[0]})).json()
            assert (await client.post(PATH, json={**body, "prompt": [1, 2]})).status_code == 400
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), TIMEOUT)
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts[0] == 'The password is "[CENSORED]".' == one["choices"][0]["text"]
    assert texts[1].count("[CENSORED]") == 1 and "[CENSORED]" not in texts[2]
    assert [answer.text(index) for index in range(3)] == texts and answer.done
    assert [answer.finish(index) for index in range(3)] == ["stop"] * 3
    assert answer.chunks[-1]["usage"] == whole["usage"]
