"""A trial that another process trains says when nothing has come of it for a while."""

import json
import socket
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from worker.card_sharing import client
from worker.card_sharing.protocol import Wire
from worker.errors import HostLost
from worker.report import Report


def message(step: int) -> bytes:
    report = Report(step=step, num_steps=9, status="running", metrics={})
    return json.dumps({"report": report.model_dump(mode="json")}).encode() + b"\n"


def test_a_report_before_a_long_silence_is_followed_by_the_word_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "SILENCE", 0.05)
    here, host = socket.socketpair()
    monkeypatch.setattr(client, "_enter", lambda *_: Wire(here))
    host.sendall(message(1) + message(2))
    silent = threading.Event()

    def go_on() -> None:
        silent.wait(60)
        time.sleep(0.2)  # one word of a silence, however long it is
        host.sendall(message(3))
        host.close()

    thread = threading.Thread(target=go_on)
    thread.start()
    found = []

    def listen() -> None:
        with closing(client.hosted_batches({"device": "cpu"}, Path("nowhere"))) as batches:
            for batch in batches:
                found.append([report.step for report in batch])
                if not batch:
                    silent.set()

    with pytest.raises(HostLost):
        listen()
    thread.join()

    assert found == [[1], [2], [], [3]]
