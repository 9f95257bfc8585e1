"""What may run next: trials that the store has unfinished, then what the proposer proposes."""

from collections import deque

from sweeps.driver.limits import Limits
from sweeps.records import Claim, NewTrial, Trial, TrialState
from sweeps.retention.best_weights import keep_if_best
from sweeps.retention.places import Places
from sweeps.search.early_stopping import PointScheduler
from sweeps.search.protocol import Finished, Proposal, Proposer, Wait
from sweeps.store.store import Store


class TrialQueue:
    """The trials of one sweep that wait, and the proposer behind them. For one thread.

    May raise StoreUnavailable; calling again then goes on where it was.
    """

    def __init__(
        self,
        store: Store,
        claim: Claim,
        proposer: Proposer,
        *,
        places: Places,
        scheduler: PointScheduler,
        limits: Limits,
        metric: str | None,
        lookahead: int,
    ) -> None:
        self._store = store
        self._claim = claim
        self._proposer = proposer
        self._places = places
        self._scheduler = scheduler
        self._limits = limits
        self._metric = metric
        self._lookahead = lookahead
        self._proposals: list[Proposal] = []
        self._waiting: deque[Trial] = deque()
        # Numbers of trials that wait or run here.
        self._open: set[int] = set()
        # Numbers of trials that failed and may be let run again.
        self._failed: set[int] = set()
        #: Why nothing more will be proposed, once that is so.
        self.finished: str | None = None
        #: Endings that the proposer was told of so far.
        self.told = 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing will be proposed.

        The last proposals may not be written yet, while the store is away.
        """
        return self.finished is not None and not (self._waiting or self._proposals)

    @property
    def needs_results(self) -> bool:
        """Whether the proposer must know every result before it is asked again."""
        return self._lookahead == 1

    def replay(self) -> None:
        """Feed the proposer with what the store has; queue what is unfinished."""
        for trial in self._store.all_trials(self._claim.sweep_id):
            # A match reads its trials' provenance, and has few of them.
            if self._limits.counts_gpus or trial.role:
                trial = self._store.trial(trial.sweep_id, trial.number)
            self._limits.count(trial)
            self._replay_curve(trial)
            self._admit(trial)
        # What has begun goes first, from its checkpoint.
        begun = sorted(self._waiting, key=lambda t: (t.started_at is None, t.number))
        self._waiting = deque(begun)

    def next_waiting(self) -> Trial | None:
        """Take the next trial that waits, past those whose point was stopped."""
        while self._waiting:
            trial = self._waiting[0]
            cause = self._scheduler.cause(trial.point)
            if cause is not None:
                self._store.finish_waiting(self._claim, trial.number, TrialState.PRUNED, cause)
                self.tell(self._store.trial(self._claim.sweep_id, trial.number))
            elif not self._limits.allows(trial):
                self._spend_trials()
                return None
            self._waiting.popleft()
            if cause is None:
                self._limits.taken(trial)
                return trial
        return None

    def propose(self) -> Trial | None:
        """Ask the proposer until a trial waits, or it has no more for now."""
        while not self._waiting:
            if not self.grow():
                return None
        return self.next_waiting()

    def grow(self) -> bool:
        """Ask the proposer for as much as it may be asked; say whether it had anything."""
        self._ask()
        if not self._proposals:
            return False
        trials = self._store.add_trials(self._claim, [_new(p) for p in self._proposals])
        for trial in trials:
            self._admit(trial)
        self._proposals = []
        return True

    def take_all(self) -> list[Trial]:
        """Take every trial that waits or runs elsewhere, to let others hand them out."""
        taken = list(self._waiting)
        self._waiting.clear()
        for trial in taken:
            self._limits.taken(trial)
        return taken

    def holds(self, number: int) -> bool:
        """Whether a trial has yet to come to its end, as far as this queue knows."""
        return number in self._open

    def put_back(self, trial: Trial, *, first: bool = False) -> None:
        """Let a trial wait again that did not come to its end."""
        self._limits.returned(trial)
        (self._waiting.appendleft if first else self._waiting.append)(trial)

    def has_reopened(self) -> bool:
        """Whether trials that failed have been let wait again, and nobody has taken them up."""
        return bool(self._failed and self._store.reopened(self._claim.sweep_id, self._failed))

    def take_reopened(self) -> list[Trial]:
        """Queue trials that failed and that people have let run again; return them."""
        if not self._failed:
            return []
        sweep_id = self._claim.sweep_id
        numbers = self._store.reopened(sweep_id, self._failed)
        trials = [self._store.trial(sweep_id, number) for number in numbers]
        for trial in trials:
            self.reopen(trial)
        return trials

    def reopen(self, trial: Trial) -> None:
        """Queue a trial that failed and may run again."""
        self._failed.discard(trial.number)
        self._limits.reopened(trial)
        self._admit(trial)
        # A match that ended with the failure goes on.
        self.finished = None

    def tell(self, trial: Trial) -> None:
        """Tell the proposer of an ending, and drop what nobody needs any more."""
        if trial.state == TrialState.FAILED:
            self._failed.add(trial.number)
        else:
            # One that failed may be tried again, from where it was.
            keep_if_best(self._store, self._places, trial)
            self._places.discard(trial.number)
        # Last, because it must be told once though the store was away the first time.
        self._open.discard(trial.number)
        self._proposer.tell(trial)
        self.told += 1

    def reopened_untold(self, trial: Trial) -> None:
        """Learn of a trial that failed, and was let run again before anybody was told of it."""
        self._open.discard(trial.number)
        self._failed.add(trial.number)

    def _replay_curve(self, trial: Trial) -> None:
        has_news = trial.step or trial.state.is_finished()
        if self._scheduler.is_active and self._metric is not None and has_news:
            curves = self._store.metrics(self._claim.sweep_id, trial.number, [self._metric])
            self._scheduler.replay(trial, curves.get(self._metric, []))

    def _admit(self, trial: Trial) -> None:
        if trial.number in self._open:
            return
        self._proposer.running(trial)
        if trial.state.is_finished():
            self.tell(trial)
        else:
            self._open.add(trial.number)
            self._waiting.append(trial)

    def _ask(self) -> None:
        while self.finished is None and len(self._proposals) < self._lookahead:
            left = self._limits.trials_left
            if left is not None and left <= len(self._proposals):
                if not self._proposals:
                    self._spend_trials()
                return
            match self._proposer.next():
                case Proposal() as proposal:
                    self._proposals.append(proposal)
                case Wait():
                    return
                case Finished(reason):
                    self.finished = reason

    def _spend_trials(self) -> None:
        self.finished = f"budget spent: {self._limits.trials_started} trials"
        self._waiting.clear()


def _new(proposal: Proposal) -> NewTrial:
    measurement = proposal.measurement
    return NewTrial(
        point=proposal.point,
        seed=proposal.seed,
        params=proposal.params,
        config=proposal.config.stored(),
        config_key=proposal.config.key(),
        role=proposal.role,
        measurement=None if measurement is None else measurement.model_dump(mode="json"),
    )
