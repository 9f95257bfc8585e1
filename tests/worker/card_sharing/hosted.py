"""Guests of the host of a card, in threads, and a host that is gone when its tests are over."""

import threading
import time
from contextlib import closing, contextmanager

from worker.card_sharing.client import _connect, hosted_reports
from worker.checkpoints.stop_file import request_stop

#: Seconds; generous, for a machine that does other things beside.
PATIENCE = 180.0


class Guest(threading.Thread):
    """A trial's shim: collects what it hears."""

    def __init__(self, task, address, idle_seconds):
        super().__init__(daemon=True)
        self.task, self.address, self.idle_seconds = task, address, idle_seconds
        self.reports, self.error = [], None
        self._first = threading.Event()
        self.start()

    def run(self):
        try:
            for report in hosted_reports(self.task, self.address, idle_seconds=self.idle_seconds):
                self.reports.append(report)
                self._first.set()
        except Exception as error:
            self.error = error
        self._first.set()

    def pid(self):
        """The host's, which the first report names."""
        assert self._first.wait(PATIENCE)
        return self.reports[0].provenance["pid"]

    def finish(self):
        self.join(PATIENCE)
        assert not self.is_alive()
        return self

    def stop(self):
        """Have the trial stopped, if it still trains."""
        request_stop(self.task["checkpoint_dir"])
        return self.finish()


@contextmanager
def held(address):
    """A host that does not end in the block: it waits for what a client of it may want."""
    with closing(_connect(address, "cpu", ["--idle", "1"])):
        yield


@contextmanager
def gone_after(address):
    """Wait after the block until the host of an address has ended; it leaves nothing."""
    yield address
    end = time.monotonic() + PATIENCE
    while list(address.parent.glob(f"{address.stem}.*")) and time.monotonic() < end:
        time.sleep(0.05)
    assert not list(address.parent.glob(f"{address.stem}.*")), "the host did not end"
