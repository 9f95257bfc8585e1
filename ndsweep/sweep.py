"""``Sweep``: one sweep or match, to follow, to steer and to read as data frames and figures."""

import threading
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any, Self

from ndsweep.best import Best, best_of
from ndsweep.figures import drawn
from ndsweep.frames import curve_frame, dynamics_frame, front_frame, point_frame, trial_frame
from ndsweep.results import Analysis, Comparison, NothingToShow, analysis_of, compare
from service.client.agents import Agent, AgentTrial
from service.client.client import Client as Service
from service.contract.outputs import SweepOut
from sweeps.records import objectives_of

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure


class Sweep:
    """A sweep or match of a service. ``Client.submit`` and ``Client.sweep`` make it.

    Every method asks the service anew, so that a sweep that runs can be looked at again and again.
    All raise ServiceUnreachable where nothing answers, and ServiceRefused where the sweep was
    deleted.
    """

    def __init__(self, service: Service, known: SweepOut) -> None:
        self.service = service
        self.id = known.id
        self.name = known.name
        #: "sweep" or "match".
        self.kind = known.kind
        self._agent: Agent | None = None
        self._starting = threading.Lock()

    @property
    def url(self) -> str:
        """Address of its page."""
        place = "matches" if self.kind == "match" else "sweeps"
        return f"{self.service.url}/{place}/{self.id}"

    @property
    def info(self) -> SweepOut:
        """Everything that the API says of it now: state, reason, spec, counts, best, result, …"""
        return self.service.get(self.id)

    @property
    def state(self) -> str:
        """queued, running, paused, complete, failed or cancelled."""
        return str(self.info.state)

    def __repr__(self) -> str:
        return f"<ndsweep.Sweep {self.name!r} {self.url}>"

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.url)}">{escape(self.name)}</a> <code>{self.id}</code>'

    # Following and steering

    def watch(self) -> Self:
        """Show progress until it is finished, then return the sweep.

        In Jupyter: one table that is updated in place. In a terminal: a progress bar. Interrupting
        it stops the display; the sweep goes on.
        """
        from ndsweep.watching import watch

        watch(self.service, self.info)
        return self

    def cancel(self) -> Self:
        """End it for good."""
        self.service.cancel(self.id)
        return self

    def pause(self) -> Self:
        """Stop it; running trials keep their checkpoints."""
        self.service.pause(self.id)
        return self

    def resume(self) -> Self:
        """Go on with a paused or failed sweep."""
        self.service.resume(self.id)
        return self

    def retry(self) -> Self:
        """Run its failed trials again."""
        self.service.retry(self.id)
        return self

    def extend(self, **totals: Any) -> Self:
        """Raise ``num_points``, ``replicates`` or ``budget`` to these totals."""
        self.service.extend(self.id, **totals)
        return self

    def confirm(self, **how: Any) -> "Sweep":
        """Submit a sweep of the best points on fresh seeds: ``points`` (how many), ``replicates``.

        Asking again returns the same sweep.
        """
        return Sweep(self.service, self.service.confirm(self.id, **how))

    # Trials that run elsewhere

    def ask(self, *, wait_seconds: float | None = None) -> AgentTrial | None:
        """A trial to run here, of a sweep of training "external"; None when there is none left.

            while (trial := sweep.ask()) is not None:
                with trial:
                    trial.report(step=1, metrics={"loss": train(**trial.params)})
                    trial.tell()

        Waits for one; with ``wait_seconds``, at most so long. Meanwhile this process keeps the
        trial's lease; when it dies, others may run the trial. Safe for threads.

        Raises ServiceRefused for a sweep whose trials the service runs itself.
        """
        with self._starting:
            if self._agent is None:
                self._agent = Agent(self.service, self.id)
        return self._agent.ask(wait_seconds=wait_seconds)

    # Data frames

    def trials(self, *, config: bool = False) -> "pandas.DataFrame":
        """All trials, a row each, by number.

        Columns: ``trial``, ``point``, ``seed``, ``state`` (category), ``objective`` (NaN without),
        ``step`` reached, ``num_steps`` of the whole run, ``diverged_at_step``, ``exit_cause``,
        ``created_at``, ``started_at``, ``finished_at`` (UTC), ``role`` (in a match),
        ``params.FIELD`` (sampled values), ``metrics.NAME`` (last values). With ``config``, also
        ``config.FIELD``: the whole configuration.

        Units are in ``attrs["units"]``: errors are fractions, losses nats, rates per step.
        """
        spec = self.info.spec
        return trial_frame(spec, self.service.all_trials(self.id), with_config=config)

    def points(self) -> "pandas.DataFrame":
        """All points (configurations), a row each, by number.

        Columns: ``point``, ``state`` (category), ``mean`` of the objective over ``n`` complete
        seeds (NaN where a replicate diverged), its deviation ``sd``, the ends ``low`` and ``high``
        of its 95 % interval (of an error, on the logit scale; NaN for fewer than two seeds),
        ``selected`` (the best so far), ``params.FIELD``.

        ``mean``, ``sd``, ``low`` and ``high`` are in the objective's own unit: ``attrs["units"]``.
        """
        about = self.info
        best = None if about.best is None else about.best.point
        return point_frame(about.spec, self.service.all_points(self.id), best)

    def curves(self, *metrics: str) -> "pandas.DataFrame":
        """All values that trials reported over their steps, none left out; a row each.

        ``metrics``: only these; none = all but those of single layers, which ``dynamics`` has.
        Columns: ``trial``, ``point``, ``seed``, ``metric`` (category), ``step``, ``value``.

        ``attrs["units"]["value"]`` has the unit of each metric that has one. A table with a column
        for each metric: ``curves().pivot(index=["trial", "step"], columns="metric",
        values="value")``.
        """
        names = list(metrics) or None
        return curve_frame(self.info.spec, self.service.all_curves(self.id, name=names))

    def dynamics(self, *names: str) -> "pandas.DataFrame":
        """How fast weights turn, layer by layer over the steps; a row for each value.

        Of a sweep, what trials reported; of a match, its records of every step, in which layer ""
        is the whole network. ``names``: only these, such as "effective_lr/conv1"; none = all.
        Columns: ``trial``, ``point``, ``seed``, ``quantity`` (category: effective_lr,
        angular_update, weight_norm, …), ``layer`` (ordered category), ``step``, ``value``.

        ``attrs["units"]["value"]`` has the unit of each quantity: effective learning rates are per
        step, rotations radians per step.
        """
        chosen = list(names) or None
        found = self.service.all_curves(self.id, kind="dynamics", name=chosen)
        return dynamics_frame(self.info.spec, found)

    # Results

    def best(self) -> Best:
        """The point with the best mean; ``best().load(model)`` loads the best trial's weights.

        Raises NothingToShow before a point has a mean, and for a sweep with several objectives:
        none of its points is best, and ``front()`` has those that no other one beats.
        """
        about = self.info
        if len(names := [one.metric for one in objectives_of(about.spec)]) > 1:
            raise NothingToShow(
                f"sweep {self.id} has {len(names)} objectives ({', '.join(names)}), so no single "
                "point is best: front() has those that no other one beats"
            )
        if about.best is None:
            raise NothingToShow(
                f"no point of {self.kind} {self.id} has a result yet (it is {about.state})"
                if self.kind == "sweep"
                else f"match {self.id} has no best point: its result is in info.result"
            )
        return best_of(self.service, self.id, about.best)

    def front(self) -> "pandas.DataFrame":
        """The points that no other one beats in every objective, by means over seeds; a row each.

        Columns: ``point``, ``n`` seeds, for each objective ``METRIC.mean``, ``.sd``, ``.low`` and
        ``.high`` (95 % interval), ``is_distinct`` (shown to differ from every other point of the
        front in some objective; NA where that was not asked), ``params.FIELD``.

        ``attrs`` has ``units``, ``hypervolume``, its ``reference`` by metric, ``num_points`` with
        means, ``num_reaching`` (points off the front whose intervals reach beyond it) and
        ``notes``. Raises NothingToShow for a sweep with one objective, and before there is a front.
        """
        found = self.service.analysis(self.id).front
        spec = self.info.spec
        if found is None:
            one = len(objectives_of(spec)) == 1
            raise NothingToShow(
                f"sweep {self.id} has one objective: best() is its best point"
                if one
                else f"sweep {self.id} has no front yet: its driver computes it from means"
            )
        return front_frame(spec, found)

    def analysis(self) -> Analysis:
        """Arms with intervals, their differences, sensitivity and importance, as data frames."""
        return analysis_of(self.info.spec, self.service.analysis(self.id))

    def compare(
        self,
        *others: "Sweep | str | Mapping[str, Any]",
        metric: str | None = None,
        baseline: int | None = None,
    ) -> Comparison:
        """Compare its arms with each other and with other sweeps; see ``Client.compare``."""
        return compare(self.service, (self, *others), metric=metric, baseline=baseline)

    def plot(self, what: str = "curves", **options: Any) -> "Figure":
        """The figures of its page, as plotly figures.

        Args:
            what: ``curves`` of the best points (``metric=``), ``sensitivity`` (``field=``),
                ``importance``, ``variance``, ``parallel``, ``contour`` (``x=``, ``y=``),
                ``timeline``, ``front`` (``x=``, ``y=``: two of several objectives); of a trial
                (``trial=``) ``metric`` (``metric=``) and ``layers`` (``quantity=``). Of a match:
                ``curves`` and ``layers``. Curves of metrics also take what the page's buttons
                choose: ``x``, ``y``, ``smooth``.
            options: As named above.

        Raises:
            ValueError: There is no such figure, or it does not take such an option.
            NothingToShow: There are no results for it yet; the sentence says what it needs.
        """
        return drawn(self.service, self.info, what, options)
