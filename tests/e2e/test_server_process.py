"""`kvps serve` as its own process: up, ready, asked, stopped by a signal."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

import kvpacket_store as kv

pytestmark = pytest.mark.e2e
READY_WITHIN_S = 120


@pytest.fixture
def store_path(tmp_path, model):
    model.hf.save_pretrained(tmp_path / "model")
    model.tokenizer.hf.save_pretrained(tmp_path / "model")
    path = tmp_path / "s.kvps"
    kv.Store.create(path, model=str(tmp_path / "model"), segment_tokens=64).close()
    return path


@pytest.fixture
def server(store_path):
    kvps = [sys.executable, "-c", "from kvpacket_store.cli import main; main()"]
    command = [*kvps, "serve", str(store_path), "--port", "0"]
    command += ["--max-running", "2", "--memory-bytes", "1000000", "--audit", "1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def url_of(process):
    """Return where the process says that it listens."""
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:[0-9]+", line):
            return found[0]
    raise AssertionError("it ended without listening")


def wait_until_ready(client):
    deadline = time.monotonic() + READY_WITHIN_S
    while (response := client.get("/ready")).status_code != 200:
        assert response.json()["reasons"]
        assert time.monotonic() < deadline, response.text
        time.sleep(0.1)


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_a_signal_and_leaves_the_store_whole(server, store_path, stop):
    with httpx.Client(base_url=url_of(server), timeout=60) as client:
        assert client.get("/health").status_code == 200
        wait_until_ready(client)
        documents = [{"id": "a", "text": "The lighthouse at Skerry was lit in 1811."}]
        report = client.post("/ingest", json={"documents": documents}).json()
        assert report["documents"]["added"] == 1
        asked = {"query": "When?", "max_new_tokens": 4, "ignore_eos": True}
        answer = client.post("/generate", json=asked).json()
        counts = client.get("/metrics").text
    server.send_signal(stop)
    assert server.wait(60) == 0
    assert "Traceback" not in server.stderr.read()
    assert 'kvpacket_requests_total{outcome="answered"} 1.0' in counts
    assert [document["id"] for document in answer["documents"]] == ["a"]
    with kv.Store.open(store_path) as store:
        assert store.show("a")["text"] == documents[0]["text"]
        assert store.stats().audit["requests"] == 1
        again = kv.Engine(store).generate("When?", max_new_tokens=4, ignore_eos=True)
    assert again.token_ids == answer["token_ids"]


def test_with_keys_the_log_is_json_and_nobody_else_comes_in(store_path, tmp_path):
    kvps = [sys.executable, "-c", "from kvpacket_store.cli import main; main()", "serve"]
    keys = ["--api-keys", str(tmp_path / "keys")]
    made = [*kvps, *keys, "--new-key", "ann", "write", "of-ann"]
    key = subprocess.run(made, check=True, capture_output=True, text=True).stdout.strip()
    command = [*kvps, str(store_path), "--port", "0", *keys, "--log-json"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            lines = []
            with httpx.Client(base_url=url_of(process), timeout=60) as client:
                wait_until_ready(client)
                documents = [{"id": "a-secret", "text": "The lighthouse at Skerry was lit."}]
                asked = {"query": "When?", "documents": ["a-secret"], "max_new_tokens": 2}
                assert client.post("/generate", json=asked).status_code == 401
                client.headers["Authorization"] = f"Bearer {key}"
                assert client.post("/ingest", json={"documents": documents}).status_code == 200
                assert client.post("/generate", json=asked).status_code == 200
                assert client.get("/documents/a-secret?q=a-secret").status_code in (200, 404)
            process.send_signal(signal.SIGTERM)
            lines = [json.loads(line) for line in process.stderr]
            assert process.wait(60) == 0
        finally:
            process.kill()
    statuses = [one["status"] for one in lines if one.get("route") == "/generate"]
    assert statuses == [200]  # one that is refused at the door has no route
    assert not [one for one in lines if "a-secret" in str(one) or key in str(one)]
