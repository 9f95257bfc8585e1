"""Trains one configuration: a generator of reports."""

from collections.abc import Callable, Generator
from contextlib import closing
from pathlib import Path
from time import monotonic, perf_counter

from worker.checkpoints import checkpoint
from worker.config.train_config import TrainConfig
from worker.data.prepared import dataset_info, default_home
from worker.data.run_length import check_fits
from worker.report import Measurement, Report
from worker.steps.device import card_bytes, choose_device
from worker.steps.memory_estimate import check_memory
from worker.steps.turns import STEPS_PER_TURN, Turn, isolated
from worker.training.final_weights import save_weights
from worker.training.handle import CHECKPOINT_SECONDS
from worker.training.run import Run, Stopped


def train(
    config: TrainConfig,
    *,
    data_home: Path | str | None = None,
    checkpoint_dir: Path | str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    measurement: Measurement | None = None,
    stop: Callable[[], bool] | None = None,
    replay_steps: bool = True,
) -> Generator[Report, None, None]:
    """Train a configuration and yield a report at each ``report_every`` steps.

    A run that cannot be trained is refused before the first step: FieldError names the field of a
    config that does not fit the data or the machine, WorkerError a data set or checkpoint.

    The last report has status "complete", or "diverged" when the loss became NaN or infinite. A run
    that ``stop`` ends has no such report; its checkpoint is written, and calling ``train`` again
    with the same ``checkpoint_dir`` continues as if it had never stopped, bit for bit on a CPU.

    While it trains, the run sets torch's default random generators (seeded with ``config.seed``)
    and precision switches; while it has yielded a report, the caller's values are restored.

    Args:
        config: Hyperparameters; unset fields resolve to the published values.
        data_home: Folder of prepared data sets; none = ``NDSWEEP_DATA`` or the user's cache.
        checkpoint_dir: Folder in which checkpoints are written and looked for; one per run.
        checkpoint_seconds: Seconds between checkpoints.
        measurement: Weight dynamics to record per step.
        stop: Called before every step and between batches of an evaluation; True ends the run.
        replay_steps: On CUDA, capture the step of a WRN once and replay it, more than twice as fast
            (decision record 0013); never with ``deterministic``, and with a measurement all of a
            step except the optimizer's part. False takes eager steps everywhere.
    """
    turns = train_in_turns(
        config,
        data_home=data_home,
        checkpoint_dir=checkpoint_dir,
        checkpoint_seconds=checkpoint_seconds,
        measurement=measurement,
        stop=stop,
        replay_steps=replay_steps,
    )

    def reports() -> Generator[Report, None, None]:
        with closing(turns):
            for item in turns:
                if isinstance(item, Report):
                    yield item

    return reports()


def train_in_turns(
    config: TrainConfig,
    *,
    data_home: Path | str | None = None,
    checkpoint_dir: Path | str | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    measurement: Measurement | None = None,
    stop: Callable[[], bool] | None = None,
    replay_steps: bool = True,
    threads: int = 0,
    steps_per_turn: int = STEPS_PER_TURN,
) -> Generator[Report | Turn, None, None]:
    """Train like ``train``, for several runs in one thread: also yield a ``Turn`` every few steps.

    Each run computes the same as alone, whatever the others do with torch's process-wide state.
    ``threads`` of torch for a run on a CPU, 0 = as many as the process uses.
    """
    config = config.resolved()
    home = Path(data_home) if data_home is not None else default_home()
    device = choose_device(config)
    if "dataset" not in config.parts():
        info = dataset_info(config.dataset, home)
        check_fits(config, info)
        if (card := card_bytes(device)) is not None:
            check_memory(config, info, card, measured=measurement is not None)
    folder = Path(checkpoint_dir) if checkpoint_dir is not None else None
    never = stop or (lambda: False)

    def turns() -> Generator[Report | Turn, None, None]:
        run = Run(config, home, device, measurement, never, replay_steps=replay_steps)
        if folder is not None:
            run.resume(checkpoint.load_newest(folder, run.key, run.older_key))
        with closing(run.writer):
            yield from _loop(run, folder, checkpoint_seconds, never, steps_per_turn)

    return isolated(turns(), config, device, threads)


def _loop(
    run: Run,
    folder: Path | None,
    checkpoint_seconds: float,
    stop: Callable[[], bool],
    steps_per_turn: int,
) -> Generator[Report | Turn, None, None]:
    saved_at = monotonic()
    began = perf_counter()
    while True:
        if run.is_report_due():
            yield Turn.SETTLE
            run.tally.drain()  # waits for the device, so that the time includes queued work
            run.tally.seconds += perf_counter() - began
            try:
                report = yield from run.report()
            except Stopped:
                run.save(folder)
                return
            if report.status != "running":
                # The receiver of the final report may delete the checkpoints.
                run.writer.finish()
                if folder is not None and report.status == "complete":
                    save_weights(folder, run)
                yield report
                return
            yield report
            began = perf_counter()
        stopping = stop()
        if stopping or (folder is not None and monotonic() - saved_at >= checkpoint_seconds):
            yield Turn.SETTLE
            run.tally.drain()
            run.tally.seconds += perf_counter() - began
            run.save(folder, wait=stopping)
            if stopping:
                return
            saved_at, began = monotonic(), perf_counter()
        run.take_step()
        if run.step % steps_per_turn == 0:
            yield Turn.NEXT
