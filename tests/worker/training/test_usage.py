"""What a trial uses of its machine, with a stand-in for NVML: no test needs a card."""

import logging
import os
import time
from collections import namedtuple
from types import SimpleNamespace

import pytest

from worker.report import Report, Series
from worker.training import usage
from worker.training.cards import Cards
from worker.training.usage import Meter, with_usage

Memory = namedtuple("Memory", "total used")
Load = namedtuple("Load", "gpu memory")
Process = namedtuple("Process", "pid usedGpuMemory")


class NVMLError(Exception):
    def __init__(self, value, text):
        super().__init__(text)
        self.value = value


class FakeNvml:
    """Two cards of 80 GB at 300 W and 75 %; ``broken`` has the error of a question by name."""

    def __init__(self, **answers):
        self.broken = {}
        self.opened = 0
        self.energy = 0
        self.answers = {
            "nvmlDeviceGetCount": lambda: 2,
            "nvmlDeviceGetHandleByIndex": lambda index: f"card {index}",
            "nvmlDeviceGetHandleByUUID": lambda uuid: uuid,
            "nvmlDeviceGetMemoryInfo": lambda _: Memory(80e9, 20e9),
            "nvmlDeviceGetUtilizationRates": lambda _: Load(75, 10),
            "nvmlDeviceGetPowerUsage": lambda _: 300_000,
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: 600_000,
            "nvmlDeviceGetTotalEnergyConsumption": lambda _: self.energy,
            "nvmlDeviceGetComputeRunningProcesses": lambda _: [
                Process(os.getpid(), 5e9),
                Process(1, 9e9),
            ],
        } | answers

    def nvmlInit(self):
        if "nvmlInit" in self.broken:
            raise self.broken["nvmlInit"]
        self.opened += 1

    def nvmlShutdown(self):
        self.opened -= 1

    def __getattr__(self, name):
        def ask(*arguments):
            if name in self.broken:
                raise self.broken[name]
            return self.answers[name](*arguments)

        return ask


@pytest.fixture(autouse=True)
def _card_zero(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")


@pytest.fixture
def metered(monkeypatch):
    """Make a meter that looks only when it is asked, and pretend that a time passes."""
    meters = []

    def make(nvml=None, *, on_card=True):
        meter = Meter(on_card=on_card, cards=Cards(nvml) if nvml else None, period=3600.0)
        deadline = time.monotonic() + 5
        while nvml and not meter._before and not nvml.broken and time.monotonic() < deadline:
            time.sleep(0.005)
        meters.append(meter)
        return meter

    yield make
    for meter in meters:
        meter.close()


def after(meter, seconds, nvml=None, watts=300):
    """Let a time pass for a meter; the card's counter of energy counts it."""
    meter._at -= seconds
    if nvml is not None:
        nvml.energy += seconds * watts * 1000
    return meter.take(look=True)


def test_a_trial_on_a_card_has_hours_load_memory_and_energy(metered):
    nvml = FakeNvml()
    meter = metered(nvml)

    totals = after(meter, 3600, nvml).totals

    assert totals["gpu_hours"] == pytest.approx(1, rel=1e-3)
    assert totals["gpu_busy_hours"] / totals["gpu_measured_hours"] == pytest.approx(0.75)
    assert totals["energy_watt_hours"] == pytest.approx(300, rel=1e-3)
    assert totals["gpu_memory_megabytes"] == 5000
    assert totals["memory_megabytes"] > 1
    assert totals["sharing"] == 1


def test_samples_have_the_names_of_mlflow(metered):
    nvml = FakeNvml()

    samples = after(metered(nvml), 10, nvml).samples

    last = {name: parts[-1].values[-1] for name, parts in samples.items()}
    assert last.pop("process_cpu_utilization_percentage") >= 0
    assert last.pop("process_memory_usage_megabytes") > 1
    assert last == {
        "gpu_0_utilization_percentage": 75,
        "gpu_0_memory_usage_megabytes": 20_000,
        "gpu_0_memory_usage_percentage": 25,
        "gpu_0_process_memory_usage_megabytes": 5000,
        "gpu_0_power_usage_watts": 300,
        "gpu_0_power_usage_percentage": 50,
    }


def test_trials_of_one_process_divide_its_card(metered):
    nvml = FakeNvml()
    first, second = metered(nvml), metered(nvml)

    shares = [after(meter, 3600, None).totals for meter in (first, second)]

    assert [s["gpu_hours"] for s in shares] == pytest.approx([0.5, 0.5], rel=1e-3)
    assert [s["sharing"] for s in shares] == [2, 2]


def test_without_a_counter_of_energy_it_is_the_power_over_time(metered):
    nvml = FakeNvml()
    nvml.broken["nvmlDeviceGetTotalEnergyConsumption"] = NVMLError(3, "Not Supported")

    assert after(metered(nvml), 1800).totals["energy_watt_hours"] == pytest.approx(150, rel=1e-3)


def test_a_driver_that_was_loaded_again_counts_from_zero(metered):
    nvml = FakeNvml()
    nvml.energy = 10**12
    meter = metered(nvml)
    nvml.energy = 0

    assert after(meter, 1800).totals["energy_watt_hours"] == pytest.approx(150, rel=1e-3)


def test_several_cards_are_told_apart_and_added_up(metered, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1, GPU-1234")
    nvml = FakeNvml()

    found = after(metered(nvml), 3600, nvml)

    assert found.totals["gpu_hours"] == pytest.approx(2, rel=1e-3)
    assert {"gpu_0_power_usage_watts", "gpu_1_power_usage_watts"} <= found.samples.keys()


def test_a_slice_of_a_card_has_memory_alone(metered, monkeypatch, caplog):
    """MIG: NVML answers neither load nor power of a slice."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-1234")
    nvml = FakeNvml()
    for what in ("UtilizationRates", "PowerUsage", "EnforcedPowerLimit", "TotalEnergyConsumption"):
        nvml.broken[f"nvmlDeviceGet{what}"] = NVMLError(3, "Not Supported")
    meter = metered(nvml)

    found = [after(meter, 10) for _ in range(3)][-1]

    assert found.totals["gpu_memory_megabytes"] == 5000
    assert not found.totals.keys() & {"energy_watt_hours", "gpu_busy_hours", "gpu_measured_hours"}
    texts = [record.getMessage() for record in caplog.records]
    assert texts.count("power of the card is not measured: Not Supported") == 1


@pytest.mark.parametrize(
    "error",
    [
        NVMLError(9, "Driver Not Loaded"),
        NVMLError(12, "NVML Shared Library Not Found"),
        NVMLError(4, "Insufficient Permissions"),
        ModuleNotFoundError("No module named 'pynvml'"),
    ],
)
def test_without_nvml_there_is_no_card_and_one_line_says_so(metered, caplog, error):
    nvml = FakeNvml()
    nvml.broken["nvmlInit"] = error
    meter = metered(nvml)

    found = [after(meter, 10) for _ in range(3)][-1]

    assert found.totals.keys() == {"seconds", "cpu_hours", "memory_megabytes", "sharing"}
    lines = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert lines == [f"load and power of the card are not measured: {error}"]


def test_a_card_that_is_lost_for_a_moment_is_measured_again(metered, caplog):
    nvml = FakeNvml()
    meter = metered(nvml)
    nvml.broken["nvmlDeviceGetMemoryInfo"] = NVMLError(15, "GPU is lost")

    lost = after(meter, 10).totals
    after(meter, 10)
    del nvml.broken["nvmlDeviceGetMemoryInfo"]
    back = after(meter, 10).totals

    assert "gpu_hours" not in lost
    assert back["gpu_hours"] == pytest.approx(10 / 3600, rel=0.1)
    assert len([r for r in caplog.records if "lost to NVML" in r.getMessage()]) == 1


def test_a_trial_on_a_cpu_asks_no_card(metered):
    totals = after(metered(on_card=False), 10).totals

    assert totals.keys() == {"seconds", "cpu_hours", "memory_megabytes", "sharing"}
    assert totals["seconds"] == pytest.approx(10, abs=1)


def test_a_driver_that_hangs_holds_no_trial_up(monkeypatch):
    monkeypatch.setattr(usage, "_PATIENCE", 0.05)
    nvml = FakeNvml(nvmlDeviceGetMemoryInfo=lambda _: time.sleep(2))
    began = time.monotonic()

    meter = Meter(on_card=True, cards=Cards(nvml))
    found = meter.take(look=True)
    meter.close()

    assert found is None
    assert time.monotonic() - began < 1


def test_a_long_trial_stores_fewer_values_an_hour(monkeypatch):
    at = 0.0
    monkeypatch.setattr(usage, "time", SimpleNamespace(time=lambda: at))
    samples = usage._Samples(5.0)

    for look in range(7 * 24 * 720):
        at = 5.0 * look
        samples.add({"load": float(look % 2)}, ends=False)
    parts = samples.take()["load"]

    assert sum(len(part.values) for part in parts) < 6000
    assert len(parts) < 10
    assert [part.every for part in parts] == sorted(part.every for part in parts)
    assert parts[0].values[:2] == [0, 1]
    assert set(parts[-1].values) == {0.5}


def report(step, status="running"):
    return Report(step=step, num_steps=2, status=status, metrics={})


def test_the_last_report_of_a_batch_carries_the_usage():
    def batches():
        yield [report(0), report(1)]
        yield []
        yield [report(2, "complete")]

    found = [report for batch in with_usage(batches(), "cpu") for report in batch]

    assert [r.usage is None for r in found] == [True, True, False]
    assert found[-1].usage.totals["seconds"] >= 0
    assert isinstance(found[-1].usage.samples["process_memory_usage_megabytes"][0], Series)
    assert Report.model_validate(found[-1].model_dump(mode="json")) == found[-1]
    assert not usage._running
