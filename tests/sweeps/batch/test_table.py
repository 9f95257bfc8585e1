"""The last words of a batch fit on a screen, however long its failures are."""

from pathlib import Path

from sweeps.batch.plan import plan_runs, read_specs
from sweeps.batch.table import outcome_table
from tests.sweeps.batch.batch_cases import failed_result, write_spec
from worker.data.fetch import prepare_digits

LONG = "CheckpointError: none of the 3 checkpoints below /data/a-folder can be read, " * 4


def test_long_failures_are_shortened_in_the_table_and_told_whole_below_it(tmp_path: Path) -> None:
    prepare_digits(tmp_path)
    path = write_spec(tmp_path, optimizers=["sgd", "adam"], replicates=5)
    runs = plan_runs(read_specs([path]), tmp_path)
    short, *others, untried = runs
    results = {short.name: failed_result(short, "RuntimeError: no")}
    results |= {run.name: failed_result(run, LONG) for run in others}
    lines = outcome_table(runs, results).splitlines()

    assert max(map(len, lines)) <= 100
    rows = dict(zip((run.name for run in runs), lines[1:], strict=False))
    assert "RuntimeError: no  " in rows[short.name]
    assert all("CheckpointError: none of the 3 …  " in rows[run.name] for run in others)
    assert rows[untried.name].endswith("left")
    told = " ".join(line.strip() for line in lines[len(runs) + 2 :])
    files = ", ".join(f"{run.name}.json" for run in others[:3])
    assert told == f"{files} and {len(others) - 3} more: {LONG.strip()}"


def test_what_is_short_is_told_once(tmp_path: Path) -> None:
    prepare_digits(tmp_path)
    (run,) = plan_runs(read_specs([write_spec(tmp_path)]), tmp_path)
    table = outcome_table([run], {run.name: failed_result(run, "diverged at step 12")})

    assert table.splitlines()[-1] == "0 complete, 0 diverged, 1 failed, 0 left of 1 runs"
