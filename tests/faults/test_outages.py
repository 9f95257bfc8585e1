"""What a service stands on goes away for a while: disks, the database, the head of the cluster."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.client.client import ServiceError
from sweeps.cluster import head as cluster
from tests.faults.checks import TRIALS, assert_whole, finished, settle, small_sweep
from tests.faults.processes import in_session, kill, until
from tests.faults.service_under_test import ROOT, Service, patiently
from tests.postgres import start_postgres
from worker.data.fetch import prepare_digits
from worker.data.prepared import list_datasets

pytestmark = pytest.mark.stack

#: How long PostgreSQL is away, in seconds.
OUTAGE = 60.0


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own; skips the test where mounting is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        # Only a real file system fills up as a disk does, and only root may mount one.
        pytest.skip(f"needs the right to mount a file system: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextlib.contextmanager
def running(home: Path, data: Path, **options: Any) -> Iterator[Service]:
    service = Service(home, data, nodes=0, **options)
    try:
        yield service
    finally:
        service.stop()


def half_done(service: Service, sweep_id: str) -> None:
    until(lambda: service.sweep(sweep_id).trials["complete"] >= TRIALS // 2, "half of it is done")


def test_a_full_disk_under_the_home_costs_time_only(tmp_path: Path) -> None:
    with small_disk(tmp_path / "home", "96m") as home, running(home, tmp_path / "data") as service:
        spec = small_sweep("random", "full-disk", milliseconds=300)
        submitted = service.submit(spec)
        until(lambda: service.sweep(submitted.id).trials["complete"] >= 1, "it runs")
        with (home / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):
            while True:
                filler.write(b"\0" * 4096)
        settle(8)
        # The service says what is wrong, and still answers what needs no space.
        with pytest.raises(ServiceError, match="full"):
            service.client.submit(spec | {"name": "no-room"})
        assert service.client.get(submitted.id).id == submitted.id
        (home / "filler").unlink()

        finished(service, submitted.id)

        assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
        assert [sweep.name for sweep in service.client.list_sweeps().items] == ["full-disk"]


def test_a_data_folder_that_cannot_be_written_is_enough_for_training(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "8m") as data:
        prepare_digits(data)
        subprocess.run(["mount", "-o", "remount,ro", str(data)], check=True)
        command = [sys.executable, "-m", "service", "train", "dataset=digits", "optimizer=sgd"]
        command += ["depth=10", "widen_factor=1", "steps=2", "batch_size=16", "device=cpu"]
        environment = {"NDSWEEP_DATA": str(data), "NDSWEEP_HOME": str(tmp_path / "home")}

        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True
        )

        assert done.returncode == 0, done.stderr
        with pytest.raises(OSError, match="Read-only file system"):
            (data / "more").mkdir()


def test_a_full_data_folder_keeps_no_half_of_a_data_set(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", "64k") as data:
        with pytest.raises(OSError, match=r"No space left|requested and .* written"):
            prepare_digits(data)

        assert list_datasets(data) == []
        assert not [path for path in data.rglob("*") if path.is_file()]


class Postgres:
    """A PostgreSQL server that can be stopped and started."""

    def __init__(self) -> None:
        # Sockets have short paths only.
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._server = start_postgres(self.folder / "data")
        uri = self._server.get_uri()
        import psycopg

        name = f"t{uuid.uuid4().hex}"
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[arg-type]
        self.url = uri.replace("/postgres?", f"/{name}?").replace(
            "postgresql://", "postgresql+psycopg://"
        )

    def stop(self) -> None:
        """At once, every connection cut, as in a restart of its machine."""
        os.kill(self._server.get_pid(), signal.SIGQUIT)
        until(lambda: not (self.folder / "data" / "postmaster.pid").exists(), "it is down")

    def start(self) -> None:
        self._server.ensure_postgres_running()

    def remove(self) -> None:
        with contextlib.suppress(Exception):
            self.stop()
        with contextlib.suppress(Exception):
            self._server.cleanup()
        shutil.rmtree(self.folder, ignore_errors=True)


def test_a_database_that_is_away_for_a_minute_costs_time_only(tmp_path: Path) -> None:
    postgres = Postgres()
    try:
        with running(tmp_path / "home", tmp_path / "data", store_url=postgres.url) as service:
            spec = small_sweep("random", "outage", milliseconds=200)
            submitted = service.submit(spec)
            half_done(service, submitted.id)
            postgres.stop()
            began = time.monotonic()
            with pytest.raises(ServiceError, match="store"):
                service.client.get(submitted.id)
            settle(OUTAGE - (time.monotonic() - began))
            postgres.start()

            assert patiently(lambda: service.client.get(submitted.id)).id == submitted.id
            finished(service, submitted.id)

            assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
            # And once more, as in a restart for an update.
            again = service.submit(small_sweep("grid", "restart", milliseconds=200))
            half_done(service, again.id)
            postgres.stop()
            postgres.start()
            finished(service, again.id)
            assert_whole(service, again.id, service.sweep(again.id).spec)
    finally:
        postgres.remove()


def test_a_head_of_the_cluster_that_is_killed_is_started_again(tmp_path: Path) -> None:
    with running(tmp_path / "home", tmp_path / "data") as service:
        spec = small_sweep("random", "head", milliseconds=200)
        submitted = service.submit(spec)
        half_done(service, submitted.id)
        head = cluster.running(service.home)
        assert head is not None
        for pid in in_session(head.session, "gcs_server"):
            kill(pid)

        finished(service, submitted.id)

        assert_whole(service, submitted.id, service.sweep(submitted.id).spec)
        assert not Path(head.folder).exists()
