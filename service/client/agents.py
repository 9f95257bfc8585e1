"""Run trials of a sweep anywhere: ask for one, report, tell how it ended.

    agent = Agent(service, sweep_id)
    while (trial := agent.ask()) is not None:
        with trial:
            for step in range(1, 101):
                loss = train(**trial.params)
                if trial.report(step=step, metrics={"loss": loss}):
                    break
            else:
                trial.tell()

Reports are sent by a thread, several in one request, which also keeps the lease while nothing is
reported. Every request is repeated until the service answers, and may be: nothing counts twice.
"""

import contextlib
import math
import operator
import os
import secrets
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from service.client.client import Client, ServiceRefused, ServiceUnreachable
from service.contract.agents import MAX_LEASE, MAX_REASON, MAX_WAIT, AskOut, HeardOut, LeasedOut
from sweeps.store.commands.agent_requests import LEASE_SECONDS
from worker.pauses import pauses

T = TypeVar("T")
End = Literal["complete", "failed", "diverged"]

#: Seconds that reports wait for company.
GATHER_SECONDS = 0.2
#: Reports of one request.
MOST = 500
#: Reports that may wait for a service that does not answer; then ``report`` waits.
BACKLOG = 100_000
#: Seconds for which an agent that ends tries to give its trial back.
GIVE_BACK_SECONDS = 5.0
#: Answers after which the same request may succeed.
_PASSING = (500, 502, 503, 504)


class _ToBeSentAlone(Exception):
    """One of several reports was refused."""


class AgentTrial:
    """A trial that this process may run. ``Agent.ask`` makes it.

    As a context manager it tells ``failed``, with the exception, where its block raises, and where
    it ends without ``tell`` although the trial need not stop.
    """

    def __init__(self, agent: "Agent", sweep_id: str, leased: LeasedOut) -> None:
        self._agent = agent
        self.sweep_id = sweep_id
        self.number = leased.number
        self.point = leased.point
        self.seed = leased.seed
        #: The sampled values.
        self.params = leased.params
        #: All fields: those of the base, the sampled values, the seed.
        self.config = leased.config
        self._lease = leased.lease
        self._pending: list[dict[str, Any]] = []
        # Of one request. A refused one leaves nothing, so that the others are sent again then.
        self._most = MOST
        # Held while some are on their way, so that they arrive in order.
        self._sending = threading.Lock()
        self._last_step: int | None = None
        self._heard_at = time.monotonic()
        self._refusal: ServiceRefused | None = None
        self._is_over = False
        #: Why it must stop; "" while it need not.
        self.stop_reason = ""

    def __repr__(self) -> str:
        return f"<trial {self.number} of sweep {self.sweep_id}: {self.params}>"

    @property
    def should_stop(self) -> bool:
        """Whether it must stop: its point is doing badly, somebody cancelled, its lease is lost."""
        return bool(self.stop_reason)

    def report(
        self, *, step: int, metrics: Mapping[str, float], num_steps: int | None = None
    ) -> bool:
        """Hand over metrics at a step; return ``should_stop``. Does not wait for the service.

        A value that is not finite is allowed; as the objective it ends the trial as diverged.

        Raises:
            TypeError: A metric is no number, or the step is no integer.
            ValueError: The step is smaller than the one before.
            ServiceRefused: The service refused an earlier report; the sentence says why.
        """
        self._raise_refusal()
        checked = {name: _number(name, value) for name, value in metrics.items()}
        if isinstance(step, bool) or not hasattr(step, "__index__"):
            raise TypeError(f"step must be an integer, got {step!r:.80}")
        step = operator.index(step)
        if step < (self._last_step or 0):
            raise ValueError(
                f"step must not go backwards: trial {self.number} is at step "
                f"{self._last_step or 0}, got {step}"
            )
        if self._is_over:
            return self.should_stop
        self._last_step = step
        report: dict[str, Any] = {"step": step, "metrics": checked}
        if num_steps is not None:
            report["num_steps"] = num_steps
        self._agent._take(self, report)
        return self.should_stop

    def tell(
        self,
        metrics: Mapping[str, float] | None = None,
        *,
        state: End = "complete",
        step: int | None = None,
        reason: str = "",
    ) -> str:
        """End the trial, once all reports have arrived; return its state.

        Another state than the one told means that a verdict came before: "pruned", "cancelled".
        ``metrics`` are last values; ``complete`` needs one of the objective, here or in a report.

        Raises:
            ServiceRefused: What is told breaks a rule, or the lease is lost (409 ``LeaseEnded``).
            ServiceUnreachable: Nothing answered for the agent's patience.
        """
        told: dict[str, Any] = {"state": state, "reason": reason[-MAX_REASON:]}
        told["metrics"] = {name: _number(name, value) for name, value in (metrics or {}).items()}
        if step is not None:
            told["step"] = step
        return self._agent._end(self, told)

    def give_back(self, reason: str = "") -> None:
        """Let others run it, at once: this process ends. It counts as no failure.

        Where the service does not answer for five seconds, others get it when its lease is over.
        """
        self._agent._give_back(self, reason)

    def leave(self) -> None:
        """Say nothing more of it: others may run it when its lease is over, if it has not ended."""
        self._agent._drop(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if self.should_stop:
            self.leave()
            return
        if error is not None and not isinstance(error, Exception):
            self.give_back(type(error).__name__)  # this process is stopped
            return
        reason = "ended without a tell" if error is None else _told(error)
        if error is None:
            self.tell(state="failed", reason=reason)
            return
        with contextlib.suppress(ServiceRefused, ServiceUnreachable):
            self.tell(state="failed", reason=reason)

    def _raise_refusal(self) -> None:
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            raise refusal

    def _hear(self, heard: HeardOut) -> None:
        self._heard_at = time.monotonic()
        if heard.stop:
            self.stop_reason = heard.reason or "stopped"


class Agent:
    """Asks one sweep for trials and keeps the leases of those that run. Safe for threads."""

    def __init__(
        self,
        service: Client,
        sweep_id: str,
        *,
        name: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = MAX_LEASE,
    ) -> None:
        """``name``: who asks, for people; None = host and process.

        ``lease_seconds``: how long this process may be silent, 5 to 3,600; then others may run its
        trials. ``patience``: seconds after which a service that does not answer raises.
        """
        self._service = service
        self.sweep_id = sweep_id
        self.name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._lease_seconds = lease_seconds
        self._patience = patience
        self._changed = threading.Condition()
        self._open: list[AgentTrial] = []
        self._sender: threading.Thread | None = None
        #: Why there was no trial when ``ask`` returned None.
        self.reason = ""
        #: Whether none will come any more, unless somebody extends the sweep.
        self.is_over = False

    def ask(self, *, wait_seconds: float | None = None) -> AgentTrial | None:
        """Wait for a trial to run; None when the sweep has ended (``reason`` says how).

        With ``wait_seconds``, also None where none waited for that long. A paused sweep is waited
        for.

        Raises:
            ServiceRefused: There is no such sweep, or the service runs its trials itself.
            ServiceUnreachable: Nothing answered for the agent's patience.
        """
        until = math.inf if wait_seconds is None else time.monotonic() + wait_seconds
        while True:
            wait = max(0.0, min(MAX_WAIT / 2, until - time.monotonic()))
            answer = self._ask_once(wait)
            self.reason, self.is_over = answer.reason, answer.retry_seconds is None
            if answer.trials:
                self.is_over = False
                trial = AgentTrial(self, self.sweep_id, answer.trials[0])
                self._keep(trial)
                return trial
            if answer.retry_seconds is None or time.monotonic() >= until:
                return None
            if answer.state == "paused":
                time.sleep(max(0.0, min(answer.retry_seconds, 2.0, until - time.monotonic())))

    def _ask_once(self, wait_seconds: float) -> AskOut:
        asked = {
            "agent": self.name,
            "wait_seconds": wait_seconds,
            "lease_seconds": self._lease_seconds,
        }
        # An answer that was lost is given again.
        key = secrets.token_hex(16)
        return self._repeated(lambda: self._service.ask(self.sweep_id, key=key, **asked))

    # --- Of its trials ------------------------------------------------------------------------

    def _keep(self, trial: AgentTrial) -> None:
        with self._changed:
            self._open.append(trial)
            if self._sender is None:
                self._sender = threading.Thread(target=self._send, name="agent", daemon=True)
                self._sender.start()
            self._changed.notify_all()

    def _drop(self, trial: AgentTrial) -> None:
        with self._changed:
            trial._is_over = True
            trial._pending.clear()
            if trial in self._open:
                self._open.remove(trial)
            self._changed.notify_all()

    def _take(self, trial: AgentTrial, report: dict[str, Any]) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(trial._pending) < BACKLOG or trial._is_over)
            trial._pending.append(report)
            self._changed.notify_all()

    def _end(self, trial: AgentTrial, told: dict[str, Any]) -> str:
        # Reports first, from this thread: the sender may be in a pause.
        while trial._pending and not trial.should_stop:
            self._repeated(lambda: self._send_reports(trial))
            trial._raise_refusal()
        answer = self._repeated(
            lambda: self._service.tell(trial.sweep_id, trial.number, trial._lease.token, **told)
        )
        self._drop(trial)
        if answer.state != told["state"]:
            trial.stop_reason = trial.stop_reason or answer.reason or answer.state
        return str(answer.state)

    def _give_back(self, trial: AgentTrial, reason: str) -> None:
        told = {"state": "waiting", "reason": reason[-MAX_REASON:]}
        lease = trial._lease.token
        self._drop(trial)
        with contextlib.suppress(ServiceRefused, ServiceUnreachable):
            self._repeated(
                lambda: self._service.tell(trial.sweep_id, trial.number, lease, **told),
                patience=min(self._patience, GIVE_BACK_SECONDS),
            )

    def _repeated(self, work: Callable[[], T], patience: float | None = None) -> T:
        """Do it until the service answers. Raises ServiceRefused, ServiceUnreachable."""
        end = time.monotonic() + (self._patience if patience is None else patience)
        waits = pauses(0.2, 5.0)
        while True:
            try:
                return work()
            except ServiceUnreachable:
                if time.monotonic() > end:
                    raise
            except ServiceRefused as error:
                if error.status not in _PASSING or time.monotonic() > end:
                    raise
            time.sleep(next(waits))

    # --- The thread ---------------------------------------------------------------------------

    def _send(self) -> None:
        """Send reports and signs of life until no trial is open."""
        waits, pause = pauses(0.2, 5.0), 0.0
        while True:
            with self._changed:
                self._changed.wait_for(self._has_work, max(pause, self._beat_seconds / 4))
                if not self._open:
                    self._sender = None
                    return
                trials = list(self._open)
            time.sleep(max(pause, GATHER_SECONDS))
            try:
                for trial in trials:
                    self._send_of(trial)
                waits, pause = pauses(0.2, 5.0), 0.0
            except (ServiceUnreachable, ServiceRefused):
                # Said again until it is heard; the lease may be over then.
                pause = next(waits)
            except RuntimeError:
                if not self._service.is_closed:
                    raise
                for trial in trials:
                    trial.stop_reason = trial.stop_reason or "its client was closed"
                    self._drop(trial)

    @property
    def _beat_seconds(self) -> float:
        return self._lease_seconds / 3

    def _has_work(self) -> bool:
        return not self._open or any(trial._pending for trial in self._open)

    def _send_of(self, trial: AgentTrial) -> None:
        if trial._is_over:
            return
        if trial._pending:
            self._send_reports(trial)
        elif time.monotonic() - trial._heard_at >= self._beat_seconds:
            lease = trial._lease.token
            self._heard(trial, lambda: self._service.heartbeat(trial.sweep_id, trial.number, lease))

    def _send_reports(self, trial: AgentTrial) -> None:
        """Send what waits of a trial, once; it waits on if nobody answers."""
        with trial._sending:
            batch = trial._pending[: trial._most]
            if not batch:
                return
            lease = trial._lease.token
            try:
                self._heard(
                    trial, lambda: self._service.report(trial.sweep_id, trial.number, lease, batch)
                )
            except _ToBeSentAlone:
                trial._most = 1
                return
            with self._changed:
                del trial._pending[: len(batch)]
                self._changed.notify_all()

    def _heard(self, trial: AgentTrial, send: Callable[[], HeardOut]) -> None:
        try:
            trial._hear(send())
        except ServiceRefused as error:
            if error.status in _PASSING:
                raise
            if error.status in (404, 409):
                trial.stop_reason = str(error)
            elif trial._most > 1 and len(trial._pending) > 1:
                raise _ToBeSentAlone from error
            else:
                trial._refusal = error


def _number(name: str, value: Any) -> float | None:
    """Return a metric's value as it is sent. Raises TypeError for what is no number."""
    try:
        if isinstance(value, bool) or not hasattr(value, "__float__"):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"metric {name!r} must be a number, got {value!r:.80}") from error
    return number if math.isfinite(number) else None


def _told(error: BaseException) -> str:
    """Return an error with its traceback; the last line alone says what it is."""
    text = str(error).strip().splitlines()
    lines = "".join(traceback.format_exception(error)).rstrip()
    return lines if len(text) < 2 else f"{lines}\n{type(error).__name__}: {text[-1]}"
