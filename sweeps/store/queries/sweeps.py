"""Reads over many trials or sweeps: attempts by trial, sweeps by shape."""

from collections import defaultdict
from collections.abc import Sequence

import sqlalchemy as sa

from sweeps.errors import TrialNotFound
from sweeps.records import Attempt, Sweep, SweepState, Trial
from sweeps.store.database.connection import Database
from sweeps.store.database.rows import attempt_of, sweep_of, trial_of
from sweeps.store.database.tables import attempts, sweeps, trials

#: Trials named in one statement; SQLite takes 32,766 parameters.
_CHUNK = 500


class LookupVerbs(Database):
    """Verbs that read across trials and sweeps, in few statements."""

    def attempts_of(self, sweep_id: str, numbers: Sequence[int]) -> dict[int, list[Attempt]]:
        """Return the attempts of trials, oldest first, by the trial's number."""
        found: dict[int, list[Attempt]] = defaultdict(list)
        for start in range(0, len(numbers), _CHUNK):
            some = attempts.c.trial.in_(numbers[start : start + _CHUNK])
            query = (
                sa.select(attempts)
                .where(attempts.c.sweep_id == sweep_id, some)
                .order_by(attempts.c.trial, attempts.c.number)
            )
            with self._reading() as conn:
                for row in conn.execute(query):
                    found[row.trial].append(attempt_of(row))
        return dict(found)

    def trials_of(self, sweep_id: str, numbers: Sequence[int]) -> list[Trial]:
        """Return trials with their attempts, in the order asked. Raises TrialNotFound."""
        tries = self.attempts_of(sweep_id, numbers)
        found: dict[int, Trial] = {}
        for start in range(0, len(numbers), _CHUNK):
            some = trials.c.number.in_(numbers[start : start + _CHUNK])
            query = sa.select(trials).where(trials.c.sweep_id == sweep_id, some)
            with self._reading() as conn:
                for row in conn.execute(query):
                    found[row.number] = trial_of(row, tuple(tries.get(row.number, ())))
        for number in numbers:
            if number not in found:
                raise TrialNotFound(sweep_id, number)
        return [found[number] for number in numbers]

    def recently_complete(
        self, limit: int = 200, *, with_trials: bool = False, skip: int = 0
    ) -> list[Sweep]:
        """Return the sweeps and matches that completed last, newest first.

        ``with_trials``: only those with a complete trial.
        """
        query = (
            sa.select(sweeps)
            .where(sweeps.c.finished_at.is_not(None), sweeps.c.state == SweepState.COMPLETE.value)
            .order_by(sweeps.c.finished_at.desc(), sweeps.c.id.desc())
            .limit(limit)
            .offset(skip)
        )
        if with_trials:
            query = query.where(sweeps.c.n_complete > 0)
        with self._reading() as conn:
            return [sweep_of(row) for row in conn.execute(query)]
