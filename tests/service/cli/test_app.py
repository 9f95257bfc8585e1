"""The command line: what it prints and what it leaves."""

import errno
import json
import os

import pytest
import yaml
from typer.testing import CliRunner

from service.cli.app import app
from sweeps.records import NewTrial, SweepState, TrialState
from tests.service.one_line import one_line


@pytest.fixture
def spec_file(tmp_path, spec):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(spec))
    return path


def test_submit_prints_the_id_and_the_page(ndsweep, spec_file, store, live):
    result = ndsweep("submit", spec_file)

    sweep = store.list_sweeps().items[0]
    assert result.exit_code == 0
    assert result.stdout == f"{sweep.id}  {live}/sweeps/{sweep.id}\n"


def test_dry_run_says_what_it_would_do_and_creates_nothing(ndsweep, spec_file, store):
    result = ndsweep("submit", spec_file, "--dry-run")

    assert result.exit_code == 0
    assert "4 × 2 seeds" in result.stdout
    assert "Nothing was created" in result.stdout
    assert store.list_sweeps().items == []


def test_json_specs_are_read_too(ndsweep, tmp_path, spec, store):
    path = tmp_path / "sweep.json"
    path.write_text(json.dumps(spec))

    assert ndsweep("submit", path, "--key", "k").exit_code == 0
    assert ndsweep("submit", path, "--key", "k").exit_code == 0
    assert len(store.list_sweeps().items) == 1


def test_list_cancel_pause_resume_retry(ndsweep, spec_file, store):
    ndsweep("submit", spec_file)
    sweep_id = store.list_sweeps().items[0].id

    assert sweep_id in ndsweep("list").stdout
    assert sweep_id not in ndsweep("list", "--state", "complete").stdout
    assert ndsweep("pause", sweep_id).stdout == f"{sweep_id}  paused\n"
    assert ndsweep("resume", sweep_id).stdout == f"{sweep_id}  queued\n"
    assert ndsweep("retry", sweep_id).stdout == f"{sweep_id}  queued\n"
    assert ndsweep("cancel", sweep_id).stdout == f"{sweep_id}  cancelled\n"


def test_list_and_watch_show_the_results_of_a_finished_sweep_in_percent(ndsweep, trained):
    result = ndsweep("watch", trained.id)

    assert result.exit_code == 0
    assert "4 trials, complete" in result.stdout
    assert "10.50 (" in result.stdout
    assert "10.50 %" in ndsweep("list").stdout


def test_logs_prints_the_end_or_all_of_it_and_nothing_that_steers_a_terminal(
    ndsweep, trained, home
):
    log = home / "logs" / trained.id / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {k}\n" for k in range(20_000)) + "red \x1b[31m\ttext\n")

    end = ndsweep("logs", trained.id, 0, "--lines", 2)
    whole = ndsweep("logs", trained.id, 0, "--follow")

    assert end.output == "line 19999\nred \ufffd[31m\ttext\n"
    assert whole.output.startswith("line 0\nline 1\n")
    assert whole.output.endswith(end.output)
    assert whole.output.count("\n") == 20_001


def test_watching_a_cancelled_sweep_ends_with_1(ndsweep, spec_file, store):
    ndsweep("submit", spec_file)
    sweep_id = store.list_sweeps().items[0].id
    store.request(sweep_id, "cancel")

    assert ndsweep("watch", sweep_id).exit_code == 1


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_export_writes_the_file_whole(ndsweep, trained, tmp_path, format):
    out = tmp_path / f"trials.{format}"

    assert ndsweep("export", trained.id, "--format", format, "--out", out).exit_code == 0
    assert out.stat().st_size > 100
    assert list(tmp_path.glob("*trials*")) == [out]


def test_export_of_nothing_leaves_no_file(ndsweep, tmp_path):
    out = tmp_path / "trials.csv"

    assert "there is no sweep" in one_line(ndsweep("export", "0123456789ab", "--out", out))
    assert not out.exists()


@pytest.mark.parametrize(
    ("command", "cause", "advice"),
    [
        ("export ID", "ENOSPC", "free some"),
        ("compare ID:t0,t1 ID:t2,t3 --metric validation_error", "ENOSPC", "free some"),
        ("report ID", "EROFS", "in a folder"),
    ],
)
def test_a_disk_that_takes_no_file_is_named_with_it_and_keeps_what_was_there(
    ndsweep, trained, tmp_path, monkeypatch, command, cause, advice
):
    number = getattr(errno, cause)
    out = tmp_path / "asked.txt"
    out.write_text("from before")

    def refuses(handle):
        raise OSError(number, os.strerror(number))

    given = command.replace("ID", trained.id).split()
    with monkeypatch.context() as patched:
        patched.setattr("worker.atomic_file.os.fsync", refuses)
        line = one_line(ndsweep(*given, "--out", out))

    assert f"--out: cannot write {out}: {os.strerror(number)}; " in line
    assert advice in line
    assert out.read_text() == "from before"
    assert list(tmp_path.glob("*asked*")) == [out]


def test_an_export_may_go_into_a_device(ndsweep, trained):
    assert "--out: cannot write /dev/full: " in one_line(
        ndsweep("export", trained.id, "--out", "/dev/full")
    )
    assert ndsweep("export", trained.id, "--out", "/dev/null").exit_code == 0


def test_doctor_looks_at_everything(ndsweep):
    result = ndsweep("doctor")

    assert result.exit_code == 0
    for what in (
        "python",
        "packages",
        "bash",
        "home",
        "disk",
        "address",
        "store",
        "data sets",
        "gpu",
    ):
        assert f"{what}:" in result.stdout
    assert "made-up" in result.stdout


def test_doctor_takes_an_empty_database_for_one_that_serve_will_fill(ndsweep, home):
    (home / "store.db").unlink()
    (home / "store.db").touch()

    assert (
        "ok  store: answers; the first `ndsweep serve` will create its" in ndsweep("doctor").stdout
    )


def test_names_and_reasons_are_shown_as_they_are(ndsweep, store, spec):
    """Square brackets are markup to the library that prints."""
    name = "a [b] [/c]"
    sweep, _ = store.create_sweep("sweep", spec | {"name": name}, name=name)
    store.release(store.claim("driver"), SweepState.FAILED, "no [/x] left")

    listed, watched = ndsweep("list"), ndsweep("watch", sweep.id)

    assert name in listed.stdout
    assert f"{name} failed: no [/x] left" in watched.stdout


def test_a_fault_of_our_own_still_shows_its_traceback(monkeypatch):
    def broken(*arguments, **query):
        raise ZeroDivisionError

    monkeypatch.setattr("service.client.Client.list_sweeps", broken)

    assert isinstance(CliRunner().invoke(app, ["list"]).exception, ZeroDivisionError)


def test_gc_says_what_it_removes_and_a_dry_run_only_says_it(ndsweep, home, store):
    left = home / "checkpoints" / "0123456789ab" / "0"
    left.mkdir(parents=True)
    (left / "a.pt").write_bytes(b"x" * 2_000_000)

    dry = ndsweep("gc", "--dry-run")
    assert dry.exit_code == 0
    assert left.exists()
    real = ndsweep("gc")

    assert "checkpoints/0123456789ab  2.0 MB  its sweep was deleted" in dry.stdout
    assert "would free 0.00 GB of 0.00 GB and 0 progress events" in dry.stdout
    assert real.stdout == dry.stdout.replace("would free", "freed")
    assert not left.exists()


@pytest.mark.parametrize("variable", ["NDSWEEP_HOME", "NDSWEEP_STORE_URL"])
@pytest.mark.parametrize("command", ["report paper", "report 0123456789ab", "gc", "gc --dry-run"])
def test_a_mistyped_place_is_refused_by_what_reads_and_gets_no_folder(
    tmp_path, monkeypatch, command, variable
):
    place = tmp_path / "mistyped"
    url = f"sqlite:///{place}/store.db"
    monkeypatch.setenv(variable, url if variable == "NDSWEEP_STORE_URL" else str(place))

    line = one_line(CliRunner().invoke(app, command.split()))

    assert str(place) in line
    assert f"set {variable}" in line or variable in line.split(" must ")[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_something_else_is_no_home_and_stays_as_it_is(home):
    assert "holds no store" in one_line(CliRunner().invoke(app, ["report", "paper"]))
    assert list(home.iterdir()) == []


def test_an_extension_by_nothing_is_told_what_there_is_to_extend(ndsweep, trained):
    result = ndsweep("extend", trained.id)

    said = " ".join(result.stderr.replace("│", " ").split())
    assert result.exit_code == 2
    assert "name what to extend: --more-points or --points, --replicates" in said


@pytest.mark.parametrize("command", ["resume", "retry", "extend --more-points 1"])
def test_a_cancelled_sweep_does_not_go_on_and_what_to_do_is_said(
    ndsweep, spec_file, store, command
):
    ndsweep("submit", spec_file)
    sweep_id = store.list_sweeps().items[0].id
    ndsweep("cancel", sweep_id)
    verb, *options = command.split()

    line = one_line(ndsweep(verb, sweep_id, *options))

    assert "it is cancelled; what is cancelled does not go on, so submit its spec again" in line


def test_doctor_makes_no_home(tmp_path):
    found = CliRunner().invoke(app, ["doctor"])

    assert f"note  home: {tmp_path / 'home'} is not there; `ndsweep serve` makes it" in found.stdout
    assert not (tmp_path / "home").exists()


def test_extend_confirm_compare_label_delete(ndsweep, trained, store, tmp_path):
    more = ndsweep("extend", trained.id, "--more-points", 50)
    assert more.stdout == f"{trained.id}  queued\n"
    assert store.get_sweep(trained.id).spec["num_points"] == 54
    ndsweep("cancel", trained.id)

    confirming = ndsweep("confirm", trained.id, "--replicates", 3)
    assert confirming.exit_code == 0, confirming.output
    made = store.confirmations(trained.id)[0]
    assert confirming.stdout.startswith(made.id)
    assert made.num_trials == 3

    compared = ndsweep("compare", f"{trained.id}:0", f"{trained.id}:t2,t3", "-f", "csv")
    assert compared.stdout.startswith("a,b,difference"), compared.output
    out = tmp_path / "table.tex"
    assert ndsweep("compare", f"{trained.id}:0", f"{trained.id}:t2,t3", "-f", "latex", "-o", out)
    assert r"\begin{tabular}" in out.read_text()
    assert ndsweep("compare", f"{trained.id}:x", trained.id).exit_code == 2

    labelled = ndsweep("label", trained.id, "--tag", "a", "--tag", "b", "--notes", "n")
    assert labelled.stdout == f"{trained.id}  tags: a, b\n"
    assert ndsweep("delete", trained.id, "--yes").stdout == f"{trained.id}  deleted\n"
    assert "no sweep" in one_line(ndsweep("delete", trained.id, "--yes"))


def test_watch_shows_what_was_confirmed_and_what_mattered(ndsweep, trained, store):
    ndsweep("confirm", trained.id, "--replicates", 2)
    confirming = store.confirmations(trained.id)[0]
    claim = store.claim("driver")
    for seed in (2, 3):
        new = NewTrial(0, seed, {"alpha_v": 0.05}, {"seed": seed}, "key")
        trial = store.add_trials(claim, [new])[0]
        attempt = store.start_attempt(claim, trial.number)
        ended = TrialState.COMPLETE
        store.finish_attempt(
            claim, trial.number, attempt.id, ended, "x", trial_state=ended, objective=0.11
        )
    row = {"branch": {}, "points": 10, "method": "ped-anova", "quantile": 0.1}
    row |= {"fields": {"alpha_s": 0.25, "alpha_v": 0.75}}
    rung = {"step": 9, "points": 4, "spearman": 0.8}
    store.set_result(claim, {"importance": [row], "rungs": [rung]})
    store.release(claim, SweepState.COMPLETE, "all done")

    first = ndsweep("watch", trained.id).stdout
    second = ndsweep("watch", confirming.id).stdout

    assert f"point 0 confirmed by sweep {confirming.id}" in first
    assert "11.00 (11.00 to 11.00)" in " ".join(first.split())
    assert "importance: alpha_v 75 %, alpha_s 25 %" in second
    assert "ranks agree with the end by 0.80" in second
