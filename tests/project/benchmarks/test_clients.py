"""The benchmark of clients counts what they met."""

from collections import Counter

from benchmarks.sweep.clients import ARRIVAL, P99, SHARES, Seen, _figures


def test_figures_are_of_every_request_and_errors_miss_the_target() -> None:
    seen = Seen(errors=Counter({"GET /sweeps: timeout": 2}))
    seen.times["GET /sweeps"] = [float(n) for n in range(1, 100)]
    seen.times["GET /sweeps/ID"] = [2 * P99, 1.0]
    seen.times[ARRIVAL] = [9e9]  # is no request

    found = {figure.name: figure for figure in _figures("sqlite", seen, 100.0, 104.0, 0.5)}

    assert found["requests"].value == 101
    assert found["every route, p99"].value == 99.0
    assert found["GET /sweeps, p50"].value == 50.0
    assert found["GET /sweeps/ID, p99 of 2"].value == 2 * P99
    assert (found["errors"].value, found["errors"].holds) == (2, False)
    assert found["the API's memory, growth"].holds
    assert sum(SHARES.values()) == 100
