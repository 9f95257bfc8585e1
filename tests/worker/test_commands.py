"""``ndsweep train`` and ``ndsweep data``."""

import contextlib
import json
import threading

import numpy as np
import pytest
import typer
from pydantic import ValidationError
from typer.testing import CliRunner

from service.cli.data import app as data_app
from service.cli.train import DIVERGED, INTERRUPTED, REFUSED, parse_assignments, train

app = typer.Typer()
app.command("train")(train)
app.add_typer(data_app, name="data")

CONFIG = [
    "dataset=colours",
    "depth=10",
    "widen_factor=1",
    "crop_pad=1",
    "batch_size=20",
    "steps=12",
    "validation_fraction=0.125",
]


@pytest.fixture
def ndsweep(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    runner = CliRunner()
    return lambda *args: runner.invoke(app, [str(arg) for arg in args])


def test_train_prints_the_metrics_of_the_run(ndsweep, data_home):
    answer = ndsweep("train", *CONFIG, "alpha_v=5e-2", "--data-home", data_home)

    assert answer.exit_code == 0, answer.output
    assert "complete at step 12" in answer.output
    for metric in ("test_error", "validation_error", "effective_lr/conv5", "images_per_second"):
        assert metric in answer.output
    assert "12/12" in answer.output


def test_train_prints_reports_as_json_lines(ndsweep, data_home):
    answer = ndsweep("train", *CONFIG, "betas=[0.9,0.99]", "--json", "--data-home", data_home)

    reports = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [report["step"] for report in reports] == [4, 8, 12]


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("alpha_v", "every argument must be KEY=VALUE, got 'alpha_v'"),
        ("alpha_w=1", "alpha_w: there is no field 'alpha_w' in the training config"),
        ("steps=13", "steps must be given once"),
        ("alpha_v=-1", "alpha_v: alpha_v should be greater than or equal to 0, got -1"),
        ("alpha_v=fast", "alpha_v: alpha_v should be a valid number, got 'fast'"),
        ("lr=0.1", "lr: lr is not used by optimizer 'ndadam'; remove it (got 0.1)"),
        ("batch_size=200", "batch_size must be given once"),
        ("precision=tf32", "precision: precision must be fp32 or bf16 on a CPU"),
        ("epochs=3", "steps: set steps or epochs, not both"),
        (
            "lr_schedule=linear",
            "lr_schedule: lr_schedule should be 'cosine', 'cosine_epoch' or 'constant', got "
            "'linear'; or lr_schedule should be a list, got 'linear'",
        ),
    ],
)
def test_what_cannot_be_trained_is_one_line_and_an_exit_code(
    argument, sentence, ndsweep, data_home
):
    answer = ndsweep("train", *CONFIG, argument, "device=cpu", "--data-home", data_home)

    assert answer.exit_code == REFUSED
    assert answer.output.startswith("refused: ")
    assert sentence in answer.output
    assert answer.output.count("\n") == 1


def test_a_missing_data_set_says_what_to_do(ndsweep, tmp_path):
    answer = ndsweep("train", *CONFIG, "--data-home", tmp_path)

    assert answer.exit_code == REFUSED
    assert "'colours' is not prepared" in answer.output
    assert "ndsweep data import" in answer.output


def test_a_divergence_has_an_exit_code_of_its_own(ndsweep, data_home):
    answer = ndsweep("train", *CONFIG, "optimizer=sgd", "lr=1e12", "--data-home", data_home)

    assert answer.exit_code == DIVERGED
    assert "the loss was NaN or infinite at step" in answer.output


def test_an_interrupted_run_goes_on_from_its_checkpoint(ndsweep, data_home, tmp_path, monkeypatch):
    options = ("--json", "--data-home", data_home, "--checkpoint-dir", tmp_path)
    whole = ndsweep("train", *CONFIG, *options[:-2])
    with monkeypatch.context() as patch:
        patch.setattr("service.cli.train.stop_requested", interrupted_at_once)
        stopped = ndsweep("train", *CONFIG, *options)

    rest = ndsweep("train", *CONFIG, *options)

    assert stopped.exit_code == INTERRUPTED
    assert "continue with --checkpoint-dir" in stopped.output
    assert last_loss(rest) == last_loss(whole)


def interrupted_at_once(*, once):
    stop = threading.Event()
    stop.set()
    return contextlib.nullcontext(stop)


def last_loss(answer):
    return json.loads(answer.stdout.splitlines()[-1])["metrics"]["train_loss"]


def test_data_sets_are_imported_and_listed(ndsweep, tmp_path, made_up_cifar):
    names = ("x_train", "y_train", "x_test", "y_test")
    np.savez(tmp_path / "set.npz", **dict(zip(names, made_up_cifar.parts(), strict=True)))

    imported = ndsweep("data", "import", "mine", tmp_path / "set.npz", "--data-home", tmp_path)
    listed = ndsweep("data", "list", "--counts", "--data-home", tmp_path)

    assert imported.exit_code == listed.exit_code == 0
    for word in ("mine", "60", "20", "32 x 32 x 3", "10", "6 + 2"):
        assert word in listed.output


def test_digits_need_no_network(ndsweep, tmp_path):
    assert ndsweep("data", "fetch", "digits", "--data-home", tmp_path).exit_code == 0
    listed = ndsweep("data", "list", "--data-home", tmp_path).output
    # Counts per class, means and deviations of the channels.
    for number in ("1,442", "140-147 + 34-36", "73.2", "90.3"):
        assert number in listed


def listed(values):
    return ", ".join(f"{value:.1f}" for value in values)


def test_80_characters_cut_no_number_of_a_set_or_a_run(ndsweep, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = ("x_train", "y_train", "x_test", "y_test")
    images = np.random.default_rng(0).integers(0, 256, (300, 32, 32, 3), np.uint8)
    labels = np.arange(300) % 10
    values = dict(zip(names, (images, labels, images[:100], labels[:100]), strict=True))
    np.savez(tmp_path / "set.npz", **values)
    answer = ndsweep(
        "data", "import", "a-rather-long-name", tmp_path / "set.npz", "--data-home", tmp_path
    )
    fields = (
        "dataset=a-rather-long-name",
        "depth=10",
        "widen_factor=1",
        "steps=2",
        "report_every=1",
    )

    trained = ndsweep("train", *fields, "optimizer=sgd", "batch_size=20", "--data-home", tmp_path)

    assert answer.exit_code == trained.exit_code == 0, answer.output + trained.output
    for word in (
        "a-rather-long-name",
        "300 training + 100 test images of 32 x 32 x 3",
        "10 classes of 30 + 10 images",
        f"channel means {listed(images.mean((0, 1, 2)))}; "
        f"deviations {listed(images.std((0, 1, 2)))}",
    ):
        assert word in " ".join(answer.output.split())  # lines may be broken, not cut
    steps = [line for line in trained.output.splitlines() if line.startswith("step ")]
    assert [line.split("  ")[0] for line in steps] == ["step 1", "step 2"]
    assert steps[1].count(" %") == 3
    assert "…" not in answer.output + trained.output


def test_a_refused_import_is_one_line(ndsweep, tmp_path):
    answer = ndsweep("data", "import", "mine", tmp_path / "nothing", "--data-home", tmp_path)

    assert answer.exit_code == REFUSED
    assert "refused: there is no file or folder" in answer.output


def test_an_empty_home_says_so(ndsweep, tmp_path):
    assert "no prepared data set" in ndsweep("data", "list", "--data-home", tmp_path).output


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000])
def test_a_value_beyond_all_reason_is_refused_like_any_other(value):
    with pytest.raises(ValidationError):
        parse_assignments([f"seed={value}"])
