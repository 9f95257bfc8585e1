"""The store's contract on sweeps: created once, listed in order, stopped and resumed at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from sweeps.errors import (
    IdempotencyConflict,
    InvalidCursor,
    InvalidFilter,
    InvalidLimit,
    InvalidSort,
    SweepNotFound,
    SweepStateConflict,
)
from sweeps.records import SweepState, TrialState
from sweeps.store.store import Store
from tests.sweeps.store_cases import LEASE, SPEC, claimed, new_sweep, run, trial


class TestCreating:
    def test_a_new_sweep_is_queued_with_what_was_submitted(self, store: Store) -> None:
        sweep, created = store.create_sweep(
            "match", SPEC, name="α-sweep", tags=["b", "a", "b"], notes="why", num_trials=None
        )

        assert created
        assert sweep == store.get_sweep(sweep.id)
        assert (sweep.kind, sweep.name, sweep.state) == ("match", "α-sweep", SweepState.QUEUED)
        assert (sweep.spec, sweep.tags, sweep.notes) == (SPEC, ("a", "b"), "why")
        assert sweep.num_trials is None
        assert set(sweep.trials) == {state.value for state in TrialState}
        assert set(sweep.trials.values()) == {0}

    def test_twenty_equal_posts_at_once_make_one_sweep(self, store: Store) -> None:
        with ThreadPoolExecutor(20) as threads:
            answers = list(
                threads.map(lambda _: new_sweep(store, idempotency_key="k").id, range(20))
            )

        assert len(set(answers)) == 1
        assert len(store.list_sweeps().items) == 1
        assert len(store.events(answers[0])) == 1

    def test_another_body_under_the_same_key_is_a_conflict(self, store: Store) -> None:
        first = new_sweep(store, idempotency_key="k")

        with pytest.raises(IdempotencyConflict, match=first.id):
            new_sweep(store, "other", idempotency_key="k")
        assert len(store.list_sweeps().items) == 1

    def test_a_replay_after_the_end_changes_nothing(self, store: Store) -> None:
        first = new_sweep(store, idempotency_key="k")
        store.request(first.id, "cancel")

        replay, created = store.create_sweep(
            "sweep", SPEC, name="tiny", num_trials=4, idempotency_key="k"
        )

        assert not created
        assert replay == store.get_sweep(first.id)
        assert replay.state == SweepState.CANCELLED

    def test_text_that_databases_refuse_is_stored_readably(self, store: Store) -> None:
        sweep, _ = store.create_sweep("sweep", SPEC, name="a\x00b", notes="\ud800", tags=["\x00"])

        assert (sweep.name, sweep.notes, sweep.tags) == ("a�b", "?", ("�",))


class TestListing:
    @pytest.mark.parametrize("sort", ["created_at", "name", "state", "started_at", "finished_at"])
    @pytest.mark.parametrize("sign", ["", "-"])
    def test_pages_hold_every_sweep_once_in_order(self, store: Store, sort: str, sign: str) -> None:
        for name in "cabbd":
            new_sweep(store, name)
        first = store.claim("runner", LEASE)
        assert first is not None
        store.release(first, SweepState.COMPLETE, "all done")
        store.claim("runner", LEASE)

        whole = store.list_sweeps(sort=sign + sort).items
        paged, cursor = [], None
        while True:
            page = store.list_sweeps(sort=sign + sort, limit=2, cursor=cursor)
            paged += page.items
            cursor = page.next
            if cursor is None:
                break

        assert [s.id for s in paged] == [s.id for s in whole]
        assert len({s.id for s in paged}) == 5
        known = [v for s in whole if (v := getattr(s, sort)) is not None]
        assert known == sorted(known, reverse=sign == "-")
        # Those without a value come last.
        assert all(getattr(s, sort) is None for s in whole[len(known) :])

    def test_filters_combine(self, store: Store) -> None:
        new_sweep(store, "one", tags=["x"])
        two = new_sweep(store, "two 100%", tags=["x", "y"], notes="Tuned")
        store.create_sweep("match", SPEC, name="two", tags=["x"])

        def found(**filters: str) -> list[str]:
            return [s.id for s in store.list_sweeps(**filters).items]  # type: ignore[arg-type]

        assert len(found(tag="x")) == 3
        assert found(tag="y") == [two.id]
        assert found(tag="x", kind="sweep", search="TWO") == [two.id]
        assert found(search="tuned") == [two.id]
        assert found(search="100%") == [two.id]
        assert found(search="%") == [two.id]
        assert found(search="\x00") == []
        assert len(found(state="queued", kind="match")) == 1

    def test_what_cannot_be_answered_is_refused_in_words(self, store: Store) -> None:
        for _ in range(3):
            new_sweep(store)
        cursor = store.list_sweeps(limit=1).next

        with pytest.raises(InvalidSort, match="created_at, finished_at, name") as error:
            store.list_sweeps(sort="spec; drop table")
        assert error.value.allowed == ["created_at", "finished_at", "name", "started_at", "state"]
        with pytest.raises(InvalidLimit, match="1 to 500, got 501"):
            store.list_sweeps(limit=501)
        with pytest.raises(InvalidLimit):
            store.list_sweeps(limit=0)
        with pytest.raises(InvalidCursor, match="sort"):
            store.list_sweeps(sort="name", cursor=cursor)
        with pytest.raises(InvalidFilter, match="queued, running"):
            store.list_sweeps(state="done")

    @pytest.mark.parametrize("sweep_id", ["", "x", "0" * 12, "0" * 13, "\x00" * 12, "é" * 12])
    def test_an_unknown_id_is_not_found(self, store: Store, sweep_id: str) -> None:
        for ask in (store.get_sweep, store.resume, store.delete_sweep, store.trials, store.points):
            with pytest.raises(SweepNotFound):
                ask(sweep_id)


class TestLabels:
    def test_tags_and_notes_are_replaced(self, store: Store) -> None:
        sweep = new_sweep(store, tags=["old"])

        store.set_notes(sweep.id, "new\x00")
        changed = store.set_tags(sweep.id, ["b", "a"])

        assert (changed.tags, changed.notes) == (("a", "b"), "new�")
        assert store.list_sweeps(tag="old").items == []
        assert [s.id for s in store.list_sweeps(tag="a").items] == [sweep.id]


class TestStopping:
    def test_a_cancelled_queued_sweep_ends_at_once_and_is_never_claimed(self, store: Store) -> None:
        sweep = new_sweep(store)

        cancelled = store.request(sweep.id, "cancel")
        again = store.request(sweep.id, "cancel")

        assert cancelled.state == SweepState.CANCELLED
        assert cancelled.finished_at is not None
        assert again == cancelled
        assert store.claim("runner") is None
        assert [e.data["state"] for e in store.events(sweep.id)] == ["queued", "cancelled"]

    def test_a_running_sweep_is_asked_and_its_driver_carries_it_out(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0), trial(1), trial(2)])
        run(store, claim, 0, 0.5)
        store.start_attempt(claim, 1)

        asked = store.request(claim.sweep_id, "cancel")

        assert (asked.state, asked.requested) == (SweepState.RUNNING, "cancel")
        assert store.request(claim.sweep_id, "pause").requested == "cancel"
        assert store.requested(claim) == "cancel"

        store.release(claim, SweepState.CANCELLED, "cancelled by request")
        ended = store.get_sweep(claim.sweep_id)
        assert (ended.state, ended.requested) == (SweepState.CANCELLED, "none")
        assert [ended.trials[s] for s in ("complete", "cancelled", "running")] == [1, 2, 0]
        assert store.trial(claim.sweep_id, 1).attempts[0].state == TrialState.CANCELLED

    def test_a_paused_sweep_waits_and_resumes_where_it_was(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0), trial(1)])
        store.start_attempt(claim, 0)
        store.request(claim.sweep_id, "pause")
        store.release(claim, SweepState.PAUSED, "paused by request")

        assert store.request(claim.sweep_id, "pause").state == SweepState.PAUSED
        assert store.claim("runner") is None
        assert store.trial(claim.sweep_id, 0).state == TrialState.WAITING

        assert store.resume(claim.sweep_id).state == SweepState.QUEUED
        assert store.resume(claim.sweep_id).state == SweepState.QUEUED
        again = store.claim("runner")
        assert again is not None
        assert again.token > claim.token
        assert store.get_sweep(claim.sweep_id).trials["waiting"] == 2

    def test_resume_takes_back_a_pause_that_was_asked_for(self, store: Store) -> None:
        claim = claimed(store)
        store.request(claim.sweep_id, "pause")

        store.resume(claim.sweep_id)

        assert store.requested(claim) == "none"

    def test_what_has_ended_cannot_be_paused_or_resumed(self, store: Store) -> None:
        claim = claimed(store)
        store.release(claim, SweepState.COMPLETE, "all done")

        for act in (
            lambda: store.request(claim.sweep_id, "cancel"),
            lambda: store.request(claim.sweep_id, "pause"),
            lambda: store.resume(claim.sweep_id),
        ):
            with pytest.raises(SweepStateConflict, match="complete"):
                act()

    def test_retry_lets_only_failed_trials_wait_again(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0), trial(1)])
        run(store, claim, 0, 0.5)
        run(store, claim, 1, None, TrialState.FAILED)
        store.release(claim, SweepState.COMPLETE, "1 trial failed")

        retried = store.retry(claim.sweep_id)

        assert retried.state == SweepState.QUEUED
        assert (retried.trials["complete"], retried.trials["waiting"]) == (1, 1)
        assert store.retry(claim.sweep_id).state == SweepState.QUEUED

    def test_extend_replaces_the_spec_and_queues_what_had_ended(self, store: Store) -> None:
        claim = claimed(store)
        store.release(claim, SweepState.COMPLETE, "all done")

        more = store.extend(claim.sweep_id, SPEC | {"num_points": 9}, num_trials=9)

        assert (more.state, more.num_trials, more.spec["num_points"]) == ("queued", 9, 9)
        assert more.finished_at is None

    def test_extend_lets_what_the_old_budget_cut_off_wait_again(self, store: Store) -> None:
        claim = claimed(store)
        store.add_trials(claim, [trial(0), trial(1), trial(2)])
        run(store, claim, 0, 0.5)
        store.start_attempt(claim, 1)
        store.release(claim, SweepState.COMPLETE, "budget spent: 60 s of wall time")

        more = store.extend(claim.sweep_id, SPEC, num_trials=3)

        assert (more.trials["complete"], more.trials["waiting"]) == (1, 2)
        assert more.trials["cancelled"] == 0

    def test_only_a_finished_sweep_is_deleted_and_nothing_of_it_stays(self, store: Store) -> None:
        claim = claimed(store, tags=["t"])
        store.add_trials(claim, [trial(0)])
        run(store, claim, 0, 0.5)
        with pytest.raises(SweepStateConflict, match="cancel it first"):
            store.delete_sweep(claim.sweep_id)

        store.release(claim, SweepState.COMPLETE, "all done")
        store.delete_sweep(claim.sweep_id)

        with pytest.raises(SweepNotFound):
            store.get_sweep(claim.sweep_id)
        assert store.events(None) == []
        assert store.mirror_backlog().attempts == 0
