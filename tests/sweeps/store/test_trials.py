"""The store's contract on trials: recorded once, counted once, the best is the best finite one."""

import math

import pytest

from sweeps.errors import InvalidSort, SweepStateConflict, TrialNotFound
from sweeps.records import SweepState, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import claimed, report, run, trial


class TestAdding:
    def test_numbers_count_up_and_repeats_are_answered_from_the_store(self, store: Store) -> None:
        claim = claimed(store)

        first = store.add_trials(claim, [trial(0, 0), trial(0, 1), trial(1, 0)])
        again = store.add_trials(claim, [trial(0, 1), trial(2, 0), trial(2, 0)])

        assert [t.number for t in first] == [0, 1, 2]
        assert [t.number for t in again] == [1, 3, 3]
        assert store.get_sweep(claim.sweep_id).trials["waiting"] == 4
        assert [t.number for t in store.all_trials(claim.sweep_id)] == [0, 1, 2, 3]

    def test_what_was_added_comes_back_unchanged(self, store: Store) -> None:
        claim = claimed(store)

        added = store.add_trials(
            claim, [trial(3, 7, role="source", measurement={"start": 0, "every": 2})]
        )

        assert added == [store.trial(claim.sweep_id, 0)]
        assert (added[0].point, added[0].seed, added[0].role) == (3, 7, "source")
        assert added[0].params == {"lr": 3.0}
        assert added[0].config == {"lr": 3.0, "seed": 7}
        assert added[0].measurement == {"start": 0, "every": 2}
        assert (added[0].state, added[0].objective) == (TrialState.WAITING, None)

    def test_thousands_are_added_in_one_call(self, store: Store) -> None:
        claim = claimed(store)

        added = store.add_trials(claim, [trial(p) for p in range(2000)])

        assert len({t.number for t in added}) == 2000
        assert len(list(store.all_trials(claim.sweep_id))) == 2000


class TestAttempts:
    def test_a_trial_passes_through_its_states(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial()])

        attempt = store.start_attempt(claim, 0)
        running = store.trial(claim.sweep_id, 0)
        store.record(claim, 0, attempt.id, [report(50, 0.4, provenance={"host": "a"})])
        store.record(claim, 0, attempt.id, [report(100, 0.3, provenance={"peak": 1.0})])
        store.finish_attempt(
            claim, 0, attempt.id, TrialState.COMPLETE, "complete", trial_state=TrialState.COMPLETE
        )
        done = store.trial(claim.sweep_id, 0)

        assert (running.state, running.started_at) == (TrialState.RUNNING, attempt.started_at)
        assert (done.state, done.objective, done.step, done.num_steps) == (
            TrialState.COMPLETE,
            0.3,
            100,
            100,
        )
        assert done.metrics == {"validation_error": 0.3}
        assert done.attempts[0].provenance == {"host": "a", "peak": 1.0}
        assert done.finished_at is not None
        kinds = [(e.kind, e.data.get("state")) for e in store.events(claim.sweep_id)]
        assert kinds[-5:] == [
            ("trial", "waiting"),
            ("trial", "running"),
            ("progress", None),
            ("progress", None),
            ("trial", "complete"),
        ]

    def test_starting_twice_under_one_token_is_one_attempt(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial()])

        assert store.start_attempt(claim, 0) == store.start_attempt(claim, 0)

    def test_an_attempt_may_fail_and_the_trial_wait_for_the_next(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial()])
        first = store.start_attempt(claim, 0)
        store.finish_attempt(
            claim, 0, first.id, TrialState.FAILED, "killed", trial_state=TrialState.WAITING
        )

        waiting = store.trial(claim.sweep_id, 0)
        second = store.start_attempt(claim, 0)

        assert (waiting.state, waiting.exit_cause) == (TrialState.WAITING, "killed")
        assert (second.number, second.state) == (2, TrialState.RUNNING)
        assert [a.exit_cause for a in store.trial(claim.sweep_id, 0).attempts] == ["killed", ""]

    def test_a_finished_trial_neither_starts_nor_ends_again(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial()])
        attempt = run(store, claim, 0, 0.25)

        with pytest.raises(SweepStateConflict, match="complete"):
            store.start_attempt(claim, 0)
        store.finish_attempt(
            claim, 0, attempt.id, TrialState.FAILED, "late", trial_state=TrialState.FAILED
        )

        assert store.trial(claim.sweep_id, 0).state == TrialState.COMPLETE
        counts = store.get_sweep(claim.sweep_id).trials
        assert {state: n for state, n in counts.items() if n} == {"complete": 1}

    def test_the_objective_given_at_the_end_stands_if_finite(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0), trial(1)])
        for number, objective in enumerate((0.125, math.nan)):
            attempt = store.start_attempt(claim, number)
            store.record(claim, number, attempt.id, [report(9, 0.5)])
            store.finish_attempt(
                claim,
                number,
                attempt.id,
                TrialState.COMPLETE,
                "complete",
                trial_state=TrialState.COMPLETE,
                objective=objective,
            )

        assert [t.objective for t in store.all_trials(claim.sweep_id)] == [0.125, 0.5]

    def test_waiting_trials_are_ended_together_or_alone(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p) for p in range(4)])
        store.start_attempt(claim, 0)

        store.finish_waiting(claim, 0, TrialState.PRUNED, "not waiting")
        store.finish_waiting(claim, 1, TrialState.PRUNED, "its point was stopped")
        ended = store.fail_waiting(claim, "no data")

        assert ended == [2, 3]
        states = [t.state.value for t in store.all_trials(claim.sweep_id)]
        assert states == ["running", "pruned", "failed", "failed"]

    def test_unknown_trials_are_not_found(self, store: Store) -> None:
        claim = claimed(store)

        for number in (-1, 0, 2**31, 10**30):
            with pytest.raises(TrialNotFound):
                store.trial(claim.sweep_id, number)
        with pytest.raises(TrialNotFound):
            store.start_attempt(claim, 5)


class TestPoints:
    def test_mean_and_deviation_are_those_of_the_seeds(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0, seed) for seed in range(3)])
        for number, error in enumerate((0.1, 0.2, 0.6)):
            run(store, claim, number, error)

        point = store.points(claim.sweep_id).items[0]

        assert point.mean == pytest.approx(0.3, abs=1e-12)
        # sqrt((0.04 + 0.01 + 0.09) / 2)
        assert point.sd == pytest.approx(0.07**0.5, abs=1e-12)
        assert (point.n, point.state) == (3, TrialState.COMPLETE)

    def test_the_best_is_the_best_finite_point_and_never_a_diverged_one(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p) for p in range(4)])
        # The first to report diverges, with a value that would win.
        attempt = store.start_attempt(claim, 0)
        store.record(claim, 0, attempt.id, [report(3, 0.01, status="diverged", diverged_at_step=3)])
        store.finish_attempt(
            claim,
            0,
            attempt.id,
            TrialState.DIVERGED,
            "diverged at step 3",
            trial_state=TrialState.DIVERGED,
        )
        assert store.get_sweep(claim.sweep_id).best is None

        # The second reports NaN only, the third infinity first, the last is plain.
        run(store, claim, 1, math.nan)
        run(store, claim, 2, math.inf)
        run(store, claim, 3, 0.9)

        best = store.get_sweep(claim.sweep_id).best
        assert best == {"point": 3, "params": {"lr": 3.0}, "mean": 0.9, "sd": None, "n": 1}
        assert store.points(claim.sweep_id).items[0].number == 3
        assert store.trial(claim.sweep_id, 0).diverged_at_step == 3
        assert store.trial(claim.sweep_id, 1).objective is None

    def test_a_point_with_one_diverged_seed_has_no_mean(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0, 0), trial(0, 1), trial(1, 0), trial(1, 1)])
        run(store, claim, 0, 0.01)
        run(store, claim, 1, 0.02, TrialState.DIVERGED)
        run(store, claim, 2, 0.5)
        run(store, claim, 3, 0.6)

        points = store.points(claim.sweep_id).items

        assert [(p.number, p.mean, p.state.value) for p in points] == [
            (1, 0.55, "complete"),
            (0, None, "diverged"),
        ]
        best = store.get_sweep(claim.sweep_id).best
        assert best is not None
        assert best["point"] == 1

    def test_equal_means_favour_the_lower_number_and_settled_points(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0, 0), trial(0, 1), trial(1, 0), trial(2, 0)])
        run(store, claim, 0, 0.1)
        run(store, claim, 3, 0.5)
        run(store, claim, 2, 0.5)

        best = store.get_sweep(claim.sweep_id).best

        # Point 0 leads, but its second seed is still out.
        assert best is not None
        assert best["point"] == 1

    def test_a_maximised_objective_has_its_largest_mean_as_best(self, store: Store) -> None:
        spec = {"objective": {"metric": "validation_error", "direction": "maximize"}}
        claim = claimed(store, spec=spec)
        store.add_trials(claim, [trial(0), trial(1)])
        run(store, claim, 0, 0.1)
        run(store, claim, 1, 0.4)

        best = store.get_sweep(claim.sweep_id).best
        assert best is not None
        assert best["point"] == 1


class TestListing:
    @pytest.mark.parametrize("sign", ["", "-"])
    @pytest.mark.parametrize(
        "sort",
        ["number", "point", "seed", "state", "objective", "step", "started_at", "finished_at"],
    )
    def test_pages_of_trials_are_stable_for_every_key(
        self, store: Store, sort: str, sign: str
    ) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p // 2, p % 2) for p in range(9)])
        for number, error in ((0, 0.5), (4, 0.5), (2, 0.1), (7, math.nan)):
            run(store, claim, number, error)

        whole = store.trials(claim.sweep_id, sort=sign + sort).items
        paged, cursor = [], None
        while True:
            page = store.trials(claim.sweep_id, sort=sign + sort, limit=2, cursor=cursor)
            paged += page.items
            # A row that arrives meanwhile moves nothing.
            if cursor is None:
                store.add_trials(claim, [trial(99, 99)])
            cursor = page.next
            if cursor is None:
                break

        known = [t.number for t in whole]
        assert [t.number for t in paged if t.point != 99] == known
        assert sorted(known) == list(range(9))
        values = [v for t in whole if (v := getattr(t, sort)) is not None]
        assert values == sorted(values, reverse=sign == "-")

    @pytest.mark.parametrize("sort", ["number", "mean", "-mean", "sd", "n", "-state"])
    def test_pages_of_points_are_stable_for_every_key(self, store: Store, sort: str) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p, s) for p in range(5) for s in range(2)])
        for number, error in ((0, 0.5), (1, 0.7), (4, 0.2), (5, 0.3), (6, 0.9)):
            run(store, claim, number, error)

        whole = store.points(claim.sweep_id, sort=sort).items
        paged, cursor = [], None
        while True:
            page = store.points(claim.sweep_id, sort=sort, limit=2, cursor=cursor)
            paged += page.items
            cursor = page.next
            if cursor is None:
                break

        assert paged == whole
        assert sorted(p.number for p in whole) == list(range(5))
        assert whole == sorted(whole, key=lambda p: p.number) or sort != "number"

    def test_filters_of_trials_combine(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p, s) for p in range(2) for s in range(2)])
        run(store, claim, 1, 0.5)

        found = store.trials(claim.sweep_id, state="complete", point=0).items
        none = store.trials(claim.sweep_id, point=10**20).items

        assert [t.number for t in found] == [1]
        assert none == []
        with pytest.raises(InvalidSort, match="objective"):
            store.trials(claim.sweep_id, sort="config")

    def test_an_export_row_holds_everything_flat(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(1, 5)])
        run(store, claim, 0, 0.25)

        (row,) = store.export_rows(claim.sweep_id)

        assert row["config.lr"] == 1.0
        assert row["metrics.validation_error"] == 0.25
        assert (row["trial"], row["seed"], row["state"]) == (0, 5, "complete")


class TestProgress:
    def test_the_eta_extrapolates_finished_trials(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(p) for p in range(4)])
        before = store.get_sweep(claim.sweep_id).eta_seconds
        run(store, claim, 0, 0.5)
        seconds = store.trial(claim.sweep_id, 0).attempts[0]
        assert seconds.finished_at is not None
        one = (seconds.finished_at - seconds.started_at).total_seconds()

        eta = store.get_sweep(claim.sweep_id).eta_seconds

        assert before is None
        # Three left, none running: one after the other.
        assert eta == pytest.approx(3 * one, rel=1e-6)
        store.release(claim, SweepState.COMPLETE, "all done")
        assert store.get_sweep(claim.sweep_id).eta_seconds is None

    def test_the_eta_of_a_match_goes_by_the_steps_that_its_procedure_knows(
        self, store: Store
    ) -> None:
        claim = claimed(store, num_trials=None)
        store.add_trials(claim, [trial(p) for p in range(2)])
        run(store, claim, 0, 0.5)
        before = store.get_sweep(claim.sweep_id)

        store.set_result(claim, {"progress": 0.2})

        assert before.eta_seconds is None
        eta = store.get_sweep(claim.sweep_id).eta_seconds
        assert eta == pytest.approx(4 * before.trial_seconds, rel=1e-6)

    def test_results_and_reasons_are_announced(self, store: Store) -> None:
        claim = claimed(store)

        store.set_reason(claim, "waiting for resources")
        store.set_reason(claim, "waiting for resources")
        store.set_result(claim, {"alpha_v": 0.05, "odd": math.inf})

        sweep = store.get_sweep(claim.sweep_id)
        assert sweep.reason == "waiting for resources"
        assert sweep.result == {"alpha_v": 0.05, "odd": None}
        assert [e.kind for e in store.events(claim.sweep_id)] == [
            "sweep",
            "sweep",
            "sweep",
            "result",
        ]
