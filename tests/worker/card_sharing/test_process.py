"""The host of a card's trials, on a CPU: real processes and sockets, clients in threads."""

import logging
import os
import signal
import socket
import tempfile
import threading
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

import psutil
import pytest
import torch

from tests.sweeps.batch.turns import standing_still
from tests.worker.card_sharing.hosted import PATIENCE, Guest, gone_after
from worker import TrainConfig, train
from worker.card_sharing.client import HostedError, hosted_reports
from worker.card_sharing.process import _leave
from worker.card_sharing.protocol import Wire, address_lock, host_address
from worker.card_sharing.server import DEVICE_LOST, _Client, _Host
from worker.checkpoints.report_journal import ReportJournal
from worker.checkpoints.stop_file import request_stop, withdraw_stop
from worker.errors import HostLost

#: Seconds after the last client; long enough for a host to see the next test.
IDLE = 3.0


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """Of the host of this file; it ends soon after its last client and leaves nothing."""
    with gone_after(host_address(f"test {tmp_path_factory.getbasetemp()}")) as address:
        yield address


@pytest.fixture
def make_task(data_home, tiny_config, tmp_path):
    def make(name, **fields):
        base = tiny_config.model_dump(exclude_unset=True) | {"deterministic": True}
        if fields.get("optimizer", "ndadam") != "ndadam":
            base.pop("alpha_s")
        config = TrainConfig.model_validate(base | fields)
        return {
            "config": config.stored(),
            "device": "cpu",
            "measurement": None,
            "checkpoint_dir": str(tmp_path / name),
            "data_home": str(data_home),
            "threads": 1,
        }

    return make


@pytest.fixture
def enter(address):
    """Has a trial trained by the host; what still trains when its test has ended is stopped."""
    clients = []

    def enter(task):
        clients.append(client := Guest(task, address, IDLE))
        return client

    yield enter
    for client in clients:
        client.stop()


@pytest.fixture
def keeper(make_task, enter):
    """A trial that trains for as long as a test does, so that its host stays the same one."""
    client = enter(make_task("keeper", steps=100_000))
    client.pid()
    return client


def listen(task, address):
    """What a shim hears that is no thread."""
    return closing(hosted_reports(task, address, idle_seconds=IDLE))


def facts(reports):
    return [
        (r.step, r.status, {k: v for k, v in r.metrics.items() if k != "images_per_second"})
        for r in reports
    ]


def alone(task, count=None):
    """Facts of the first ``count`` reports, or of all, trained in this process."""
    config = TrainConfig.model_validate(task["config"] | {"device": "cpu"})
    with closing(train(config, data_home=task["data_home"])) as reports:
        return facts(islice(reports, count))


def test_trials_share_a_process_and_fall_alone(make_task, enter, keeper, caplog):
    caplog.set_level(logging.INFO, logger="worker")
    tasks = {
        "one": make_task("one"),
        "two": make_task("two", seed=7),
        "wild": make_task("wild", optimizer="sgd", lr=1e12),
        "wrong": make_task("wrong", batch_size=97),
    }

    clients = {name: enter(task) for name, task in tasks.items()}
    for client in clients.values():
        client.finish()

    assert {clients[name].pid() for name in ("one", "two", "wild")} == {keeper.pid()}
    assert keeper.pid() != os.getpid()
    for name in ("one", "two"):
        assert facts(clients[name].reports) == alone(tasks[name])
        # What was held in memory was for all of them.
        found = clients[name].reports[-1].provenance
        assert found["host_peak_memory_bytes"] > 0
        assert "peak_memory_bytes" not in found
    assert clients["wild"].reports[-1].status == "diverged"
    error = clients["wrong"].error
    assert isinstance(error, HostedError)
    assert type(error).__name__ == "FieldError"
    assert str(error).splitlines()[-1].startswith("FieldError: batch_size must be at most the 84")
    assert "step 12/12  complete" in caplog.text


def test_a_trial_whose_guest_goes_away_is_ended_and_goes_on_later(
    make_task, enter, address, keeper
):
    stays = enter(make_task("stays", steps=40))
    task = make_task("goes", steps=100_000, report_every=20)
    with listen(task, address) as reports:
        first = next(reports)

    # Another attempt at the same trial begins with what the first one did.
    with listen(task, address) as again:
        assert next(again) == first
    stays.finish()

    assert facts(stays.reports) == alone(stays.task)
    assert first.provenance["pid"] == stays.pid() == keeper.pid()


def test_a_stop_reaches_a_hosted_trial_and_its_checkpoint_stands(make_task, enter, address):
    task = make_task("stopped", steps=100_000, report_every=20)
    client = enter(task)
    # Nothing is trained between the look at how far it is and the request.
    with standing_still(psutil.Process(client.pid())):
        *_, before = ReportJournal(task["checkpoint_dir"]).replay()
        request_stop(task["checkpoint_dir"])
    client.finish()

    assert client.error is None
    last = client.reports[-1]
    assert last.status == "running"
    assert list(Path(task["checkpoint_dir"]).glob("step-*.ckpt"))
    withdraw_stop(task["checkpoint_dir"])
    again = []
    with listen(task, address) as reports:
        for report in reports:
            again.append(report)
            if report.step > last.step:
                break
    assert facts(again) == alone(task, len(again))
    # At its own pace, which the rest of the machine's work has no part in.
    steps_per_second = max(r.metrics["images_per_second"] for r in again) / 20
    assert (last.step - before.step) / steps_per_second < 5


@pytest.mark.usefixtures("keeper")
def test_a_guest_that_talks_nonsense_harms_nobody(make_task, enter, address):
    good = enter(make_task("good", steps=24))
    good.pid()
    for words in (b"nonsense\n", b"[]\n", b'{"config": 1}\n', b""):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(address))
            stranger.sendall(words)
            if words:
                stranger.settimeout(PATIENCE)
                assert stranger.recv(10) == b""

    assert facts(good.finish().reports) == alone(good.task)


@pytest.fixture
def host(tmp_path):
    """A host in this process, that nobody gives turns."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        host = _Host(listener, torch.device("cpu"), 0.0)
        yield host
        logging.getLogger("worker").removeHandler(host._relay)


@pytest.fixture
def shim_of(host):
    """Makes a client of a folder; its id, and the wire to it."""
    wires = []

    def make(folder):
        ours, theirs = socket.socketpair()
        client = _Client(Wire(ours))
        client.folder = folder
        host._clients[id(client)] = client
        wires.extend((client.wire, Wire(theirs)))
        return id(client), wires[-1]

    yield make
    for wire in wires:
        wire.close()


def test_what_is_logged_beside_the_turns_reaches_the_trial_it_is_about(host, shim_of):
    """Checkpoints are written by a thread of their own."""
    shims = [shim_of(f"/checkpoints/{name}")[1] for name in ("1", "12")]

    text = "checkpoint at step 5 was not written to %s (No space left)"
    log = logging.getLogger("worker.checkpoints.checkpoint")
    for folder in ("/checkpoints/12", "/checkpoints/3"):
        writer = threading.Thread(target=log.warning, args=(text, folder))
        writer.start()
        writer.join()
    host._pass_notes_on()
    for client in host._clients.values():
        client.wire.close()

    assert shims[0].read() is None
    assert shims[1].read() == {"log": [logging.WARNING, text % "/checkpoints/12"]}
    assert shims[1].read() is None


def test_messages_survive_a_socket_that_takes_little_at_a_time():
    left, right = socket.socketpair()
    left.setblocking(False)
    sender, receiver = Wire(left), Wire(right)
    sent = [{"number": n, "text": "x" * 50_000} for n in range(20)]

    got = []

    def read():
        while len(got) < len(sent):
            got.extend(receiver.receive())

    with left, right:
        for message in sent:
            sender.send(message)
        assert sender.has_unsent
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        while sender.has_unsent:
            assert reader.is_alive()
            sender.flush()
            time.sleep(0.001)
        reader.join(PATIENCE)

        assert got == sent
        receiver.close()
        sender.send({"number": 0, "text": "x" * 500_000})
        assert sender.is_closed


def test_addresses_differ_by_key_and_nobody_else_may_enter(monkeypatch, tmp_path):
    (folder := tmp_path / ("long" * 15)).mkdir()
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(folder))
    # So long that the socket's path would be refused.
    assert host_address("card 0").parent.parent == Path("/tmp")
    monkeypatch.setattr("worker.card_sharing.protocol._LONGEST", 1000)
    first, second = host_address("card 0"), host_address("card 1")

    assert first != second
    assert first == host_address("card 0")
    assert first.parent.stat().st_mode & 0o777 == 0o700
    first.parent.chmod(0o755)
    with pytest.raises(PermissionError, match="must belong to this user alone"):
        host_address("card 0")


def test_a_host_that_dies_is_a_loss_to_its_guests_and_replaced(make_task, enter, address):
    task = make_task("long", steps=100_000)
    client = enter(task)
    pid = client.pid()

    os.kill(pid, signal.SIGKILL)
    client.finish()
    assert isinstance(client.error, HostLost)

    with listen(task, address) as reports:
        for report in reports:
            if report.provenance.get("pid", pid) != pid:
                break
    assert report.provenance["pid"] != pid


def test_a_host_that_ends_leaves_the_address_to_one_that_begins(tmp_path):
    address = tmp_path / "a.sock"
    address.touch()
    leaving = threading.Thread(target=_leave, args=(address, address.stat().st_ino, 0))
    with address_lock(address):
        leaving.start()
        leaving.join(0.2)
        assert address.exists(), "it must wait for who starts a host"
        (tmp_path / "new").touch()
        (tmp_path / "new").replace(address)
    leaving.join(PATIENCE)

    assert address.exists()


def test_a_trial_that_keeps_the_turn_is_told_so_and_the_host_ends(
    host, shim_of, monkeypatch, caplog
):
    codes = []
    monkeypatch.setattr("worker.card_sharing.server.logging.shutdown", lambda: None)
    monkeypatch.setattr("worker.card_sharing.server.os._exit", codes.append)
    key, shim = shim_of("/checkpoints/7")

    watch = threading.Thread(target=host.end_for, args=(key,))
    watch.start()
    watch.join()

    told = shim.read()["error"]
    assert told["name"] == "TurnKept"
    # Where the thread of the turns is, and whose turn it was.
    assert "in test_a_trial_that_keeps_the_turn" in told["text"]
    words = "the trial of /checkpoints/7 kept the turn of all trials of its card, and ended with it"
    assert told["text"].splitlines()[-1] == f"TurnKept: {words}"
    # The others are told the last words of the log.
    assert caplog.messages[-1].splitlines()[-1].strip() == words
    assert codes == [DEVICE_LOST]
