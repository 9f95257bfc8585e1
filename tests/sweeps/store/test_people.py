"""Tokens, quotas, links and the audit log, in each database."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
import sqlalchemy as sa

from sweeps.errors import (
    LinkNotFound,
    NotOwner,
    QuotaExceeded,
    SweepNotFound,
    TokenNameTaken,
    TokenNotFound,
)
from sweeps.records import NewTrial, TrialState
from sweeps.store.database.people import Actor, Quotas, Scope, Use, acting_as
from sweeps.store.store import Store

GPU = {"resources": {"gpus": 0.5}}


@pytest.fixture
def who() -> str:
    """A name of this test's own: the audit log keeps those of others."""
    return f"ada {uuid4().hex}"


def submit(store: Store, name: str = "s", trials: int = 4, key: str | None = None) -> str:
    made, _ = store.create_sweep("sweep", GPU, name=name, num_trials=trials, idempotency_key=key)
    return made.id


def test_tokens_come_back_without_their_secret_and_end_when_they_are_revoked(
    store: Store, who: str
) -> None:
    quotas = Quotas(queued_sweeps=3, gpu_hours=1.5)
    token, text = store.create_token(who, Scope.SUBMIT, quotas=quotas)
    other, _ = store.create_token(f"{who} 2", Scope.READ, owner="bob")

    assert store.token_of_text(text) == token
    assert (token.owner, token.quotas, other.owner) == (who, quotas, "bob")
    with pytest.raises(TokenNameTaken):
        store.create_token(who, Scope.READ)
    changed = store.change_token(token.id, {"quotas": Quotas(trials=1)})
    assert changed.quotas == Quotas(trials=1)
    store.open_session("cookie", token.id, datetime.now(UTC) + timedelta(hours=1))
    assert store.session_of_cookie("cookie") is not None

    store.revoke_token(who)

    assert store.token_of_text(text) is None
    assert store.session_of_cookie("cookie") is None
    with pytest.raises(TokenNotFound):
        store.revoke_token(token.id)
    store.create_token(who, Scope.READ)  # the name is free again


def test_two_tokens_of_one_name_are_never_made_at_the_same_moment(store: Store, who: str) -> None:
    def make(_: int) -> bool:
        try:
            store.create_token(who, Scope.READ)
        except TokenNameTaken:
            return False
        return True

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(make, range(4))) == 1


def test_use_counts_what_waits_and_the_gpu_time_of_thirty_days(store: Store, who: str) -> None:
    with acting_as(Actor(who, Scope.SUBMIT)):
        submit(store, trials=3)
        old = submit(store)
    submit(store)  # of nobody
    claim = store.claim("runner")
    assert claim is not None
    store.add_trials(claim, [NewTrial(0, 0, {}, {}, "a"), NewTrial(0, 1, {}, {}, "b")])
    attempt = store.start_attempt(claim, 0)
    done = TrialState.COMPLETE
    store.finish_attempt(claim, 0, attempt.id, done, "complete", trial_state=done)
    mine = sa.text("UPDATE sweeps SET trial_seconds = 7200 WHERE submitted_by = :who")
    with store._engine.begin() as conn:
        conn.execute(mine, {"who": who})
        conn.execute(
            sa.text("UPDATE sweeps SET created_at = 1, state = 'failed' WHERE id = :id"),
            {"id": old},
        )

    assert store.use_of(who) == Use(queued_sweeps=0, trials=2, gpu_hours=1.0)
    assert store.use_of("nobody else") == Use(0, 0, 0.0)


def test_submissions_at_the_same_moment_do_not_share_the_last_place(store: Store, who: str) -> None:
    ada = Actor(who, Scope.SUBMIT, quotas=Quotas(queued_sweeps=2))

    def try_one(_: int) -> bool:
        with acting_as(ada):
            try:
                submit(store)
            except QuotaExceeded:
                return False
            return True

    with ThreadPoolExecutor(6) as threads:
        assert sum(threads.map(try_one, range(6))) == 2
    assert store.use_of(who).queued_sweeps == 2


def test_a_paused_sweep_does_not_come_back_beyond_the_quota(store: Store, who: str) -> None:
    with acting_as(Actor(who, Scope.SUBMIT, quotas=Quotas(queued_sweeps=1))):
        first = submit(store)
        store.request(first, "pause")
        submit(store)
        with pytest.raises(QuotaExceeded, match=r"queued_sweeps.*: wait until one has started"):
            store.resume(first)

    assert store.get_sweep(first).state == "paused"


def test_a_key_is_its_owners_own(store: Store, who: str) -> None:
    shared = submit(store, key="first")
    with acting_as(Actor(who, Scope.SUBMIT)):
        mine = submit(store, key="first")
        assert submit(store, key="first") == mine
    with acting_as(Actor("admin", Scope.ADMIN, token="NDSWEEP_TOKEN")):
        assert submit(store, key="first") == shared

    assert mine != shared


def test_links_belong_to_a_sweep_and_go_with_it(store: Store, who: str) -> None:
    ada, bob = Actor(who, Scope.SUBMIT), Actor("bob", Scope.SUBMIT)
    later = datetime.now(UTC) + timedelta(days=1)
    with acting_as(ada):
        sweep = submit(store)
        link = store.create_link(sweep, later)
        gone = store.create_link(sweep, later)
        store.revoke_link(sweep, gone.id)
        with pytest.raises(LinkNotFound):
            store.revoke_link(sweep, gone.id)
    with acting_as(bob), pytest.raises(NotOwner):
        store.create_link(sweep, later)
    with pytest.raises(SweepNotFound):
        store.create_link("0" * 12, later)

    assert store.links_of(sweep) == [link]
    assert store.link_of_key(link.key) == link
    with acting_as(ada):
        store.request(sweep, "delete")
        store.delete_sweep(sweep)
    with pytest.raises(LinkNotFound):
        store.link_of_key(link.key)


def _half_a_change(store: Store, sweep: str) -> None:
    with store.together():
        store.set_notes(sweep, "never")
        store.set_notes("0" * 12, "of no sweep")


def test_what_is_done_is_recorded_with_it_or_not_at_all(store: Store, who: str) -> None:
    with acting_as(Actor(who, Scope.SUBMIT, "t1", address="192.0.2.1")):
        sweep = submit(store, name="mine")
        store.set_tags(sweep, ["a"])
        with pytest.raises(SweepNotFound):
            _half_a_change(store, sweep)
        store.request(sweep, "cancel")
    submit(store)  # by nobody

    log = store.audit_log(who=who).items
    assert [one.action for one in log] == ["sweep.cancel", "sweep.tags", "sweep.create"]
    assert {(one.target, one.token, one.address) for one in log} == {(sweep, "t1", "192.0.2.1")}
    assert log[2].data == {"name": "mine", "kind": "sweep"}
    assert [one.action for one in store.audit_log(who=who, action="sweep.tags").items] == [
        "sweep.tags"
    ]


#: Statements by the database that knows them.
_CHANGES = {
    "sqlite": (
        "UPDATE audit SET who = ''",
        "DELETE FROM audit",
        "REPLACE INTO audit SELECT * FROM audit",
    ),
    "postgresql": ("UPDATE audit SET who = ''", "DELETE FROM audit", "TRUNCATE audit"),
}


def test_the_database_refuses_to_change_the_audit_log(store: Store, who: str) -> None:
    with acting_as(Actor(who, Scope.ADMIN)):
        submit(store)
    before = store.audit_log(who=who).items

    for change in _CHANGES[store._engine.dialect.name]:
        with pytest.raises(sa.exc.DBAPIError, match="append-only"), store._engine.begin() as conn:
            conn.execute(sa.text(change))

    assert store.audit_log(who=who).items == before
