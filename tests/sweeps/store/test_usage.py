"""What trials used of their machines: samples and totals, apart from what they report."""

import pytest

from sweeps.records import MachineUse, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report, trial
from worker.report import Series, Usage

#: Milliseconds since 1970.
AT = 1_800_000_000_000


def usage(hours: float, *, at: int = AT, load: float = 0.5, sharing: int = 1) -> Usage:
    """Totals after so many hours on a card, and one sample."""
    return Usage(
        totals={
            "seconds": 3600 * hours,
            "cpu_hours": hours,
            "gpu_hours": hours,
            "gpu_measured_hours": hours,
            "gpu_busy_hours": load * hours,
            "energy_watt_hours": 300 * hours,
            "memory_megabytes": 1000 * hours,
            "gpu_memory_megabytes": 5000,
            "sharing": sharing,
        },
        samples={"gpu_0_power_usage_watts": [Series(start=at, every=5000, values=[300, 310])]},
    )


def test_attempts_of_a_trial_and_trials_of_a_sweep_add_up(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    first = store.start_attempt(claim, 0)
    store.record(claim, 0, first.id, [report(1, usage=usage(1))])
    store.record(claim, 0, first.id, [report(2, usage=usage(2, at=AT + 10_000))])
    store.finish_attempt(
        claim, 0, first.id, TrialState.FAILED, "lost", trial_state=TrialState.WAITING
    )
    second = store.start_attempt(claim, 0)
    store.record(claim, 0, second.id, [report(3, usage=usage(1, at=AT + 20_000, load=0.2))])
    other = store.start_attempt(claim, 1)
    for _ in range(2):  # a batch whose commit was in doubt
        store.record(claim, 1, other.id, [report(1, usage=usage(4, load=0.4, sharing=3))])

    found = store.trial(claim.sweep_id, 0)
    whole = store.get_sweep(claim.sweep_id).usage

    assert [attempt.usage.gpu_hours for attempt in found.attempts] == [2, 1]
    assert found.usage == MachineUse(
        cpu_hours=3,
        gpu_hours=3,
        gpu_utilization_percentage=pytest.approx(40),
        energy_watt_hours=900,
        memory_megabytes=2000,
        gpu_memory_megabytes=5000,
        sharing=1,
    )
    assert (whole.gpu_hours, whole.energy_watt_hours, whole.sharing) == (7, 2100, 3)
    assert whole.gpu_utilization_percentage == pytest.approx(100 * (1 + 0.2 + 1.6) / 7)


def test_what_was_not_measured_is_none_and_no_column(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial(0), trial(1)])
    attempt = store.start_attempt(claim, 0)
    measured = Usage(totals={"seconds": 9, "cpu_hours": 0.5, "memory_megabytes": 7}, samples={})
    store.record(claim, 0, attempt.id, [report(1, usage=measured)])

    first, second = store.export_rows(claim.sweep_id)

    assert store.trial(claim.sweep_id, 0).usage.gpu_hours is None
    assert {n: v for n, v in first.items() if n.startswith("usage.")} == {
        "usage.cpu_hours": 0.5,
        "usage.memory_megabytes": 7,
    }
    assert not [name for name in second if name.startswith("usage.")]


def test_samples_are_curves_over_time_and_no_metrics(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    begun = store.trial(claim.sweep_id, 0).started_at
    at = round(begun.timestamp() * 1000) + 4000
    store.record(claim, 0, attempt.id, [report(1, usage=usage(1, at=at))])

    curves = store.usage_curves(claim.sweep_id, 0)

    assert curves == {
        "gpu_0_power_usage_watts": [
            (pytest.approx(4, abs=0.1), 300),
            (pytest.approx(9, abs=0.1), 310),
        ]
    }
    assert store.usage_names(claim.sweep_id) == list(curves)
    assert store.metric_names(claim.sweep_id) == ["validation_error"]
    assert store.series_names(claim.sweep_id) == []
    assert store.series(claim.sweep_id, 0, "gpu_0_power_usage_watts") == []
    assert store.trial(claim.sweep_id, 0).metrics == {"validation_error": 0.5}


def test_the_mirror_gets_samples_once_under_the_names_of_mlflow(store: Store) -> None:
    claim = claimed(store)
    store.add_trials(claim, [trial()])
    attempt = store.start_attempt(claim, 0)
    begun = round(attempt.started_at.timestamp() * 1000)
    store.record(claim, 0, attempt.id, [report(1, usage=usage(1, at=begun + 5000))])

    (first,) = store.mirror_pending().attempts
    store.mirror_sent(attempt.id, first.upto, "running", first.usage_upto)
    store.record(claim, 0, attempt.id, [report(2, usage=usage(2, at=begun + 15_000))])
    (second,) = store.mirror_pending().attempts
    store.mirror_again(claim.sweep_id)
    (again,) = store.mirror_pending().attempts

    name = "system/gpu_0_power_usage_watts"
    assert [(m.name, m.value, m.at_ms - begun) for m in first.usage] == [
        (name, 300, 5000),
        (name, 310, 10_000),
    ]
    assert [m.step for m in first.usage + second.usage] in ([5, 10, 15, 20], [4, 9, 14, 19])
    assert again.usage == first.usage + second.usage
