"""The loop as its callers see it."""

import math
import time

import pytest
import torch

from tests.worker.conftest import made_up_arrays
from worker import Measurement, TrainConfig, train
from worker.config.train_config import FieldError
from worker.data.prepared import write_dataset
from worker.errors import DatasetNotFound
from worker.steps.metrics import RunningMetrics
from worker.training import provenance

LAYERS = [f"conv{i}" for i in range(1, 9)]


def with_fields(config, **fields):
    return TrainConfig.model_validate(config.model_dump(exclude_unset=True) | fields)


def sgd(config, **fields):
    return with_fields(
        TrainConfig.model_validate(
            config.model_dump(exclude_unset=True, exclude={"alpha_s"}) | {"optimizer": "sgd"}
        ),
        **fields,
    )


def run(config, data_home, **options):
    return list(train(config, data_home=data_home, **options))


def test_a_run_learns_and_ends_complete(data_home, tiny_config):
    reports = run(with_fields(tiny_config, steps=40, report_every=10), data_home)

    assert [report.step for report in reports] == [10, 20, 30, 40]
    assert [report.status for report in reports] == ["running"] * 3 + ["complete"]
    assert all(report.num_steps == 40 for report in reports)
    losses = [report.metrics["train_loss"] for report in reports]
    assert losses[-1] < losses[0] / 2
    assert reports[-1].metrics["test_error"] < 0.2


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "ndadam"])
@pytest.mark.parametrize("recipe", ["paper-tf", "paper-wrn"])
def test_every_optimizer_and_recipe_reports_finite_metrics(
    optimizer, recipe, data_home, tiny_config
):
    fields = tiny_config.model_dump(exclude_unset=True, exclude={"alpha_s"})
    config = TrainConfig.model_validate(fields | {"optimizer": optimizer, "recipe": recipe})

    reports = run(config, data_home)

    expected = {"train_loss", "train_error", "logit_rms", "images_per_second", "validation_error"}
    quantities = ["effective_lr", "angular_update", "weight_norm"]
    if optimizer == "sgd":
        quantities.append("projection_ratio")
    # The shortcut convolutions of paper-wrn are layers too.
    layers = LAYERS if recipe == "paper-tf" else [f"conv{i}" for i in range(1, 11)]
    expected |= {f"{quantity}/{layer}" for quantity in quantities for layer in layers}
    assert set(reports[0].metrics) == expected
    assert set(reports[-1].metrics) == expected | {"test_error"}
    for report in reports:
        assert all(math.isfinite(value) for value in report.metrics.values())


def test_reports_come_once_per_epoch_unless_told_otherwise(data_home, tiny_config):
    # 84 training images in batches of 20: an epoch has four steps, and five with its rest.
    assert [r.step for r in run(tiny_config, data_home)] == [4, 8, 12]
    kept = with_fields(tiny_config, last_batch="keep")
    assert [r.step for r in run(kept, data_home)] == [5, 10, 12]
    assert [r.step for r in run(with_fields(tiny_config, report_every=7), data_home)] == [7, 12]


def test_the_test_set_is_read_at_the_end_or_as_a_curve(data_home, tiny_config):
    at_end = run(tiny_config, data_home)
    curve = run(with_fields(tiny_config, test_evaluation="curve"), data_home)

    assert ["test_error" in report.metrics for report in at_end] == [False, False, True]
    assert all("test_error" in report.metrics for report in curve)
    assert curve[-1].metrics["test_error"] == at_end[-1].metrics["test_error"]


def test_without_a_validation_split_all_images_are_trained_on(data_home, tiny_config):
    reports = run(
        with_fields(tiny_config, validation_fraction=0.0, epochs=1, steps=None), data_home
    )

    assert [report.step for report in reports] == [96 // 20]
    assert "validation_error" not in reports[0].metrics


def comparable(reports):
    return [
        (
            r.step,
            r.status,
            {name: value for name, value in r.metrics.items() if name != "images_per_second"},
            r.series,
        )
        for r in reports
    ]


def test_two_runs_are_equal_and_another_seed_is_not(data_home, tiny_config):
    first, second = (comparable(run(tiny_config, data_home)) for _ in range(2))
    other = comparable(run(with_fields(tiny_config, seed=1), data_home))

    assert first == second
    assert first != other


def test_the_split_seed_moves_the_split_and_not_the_weights(data_home, tiny_config):
    one = with_fields(tiny_config, steps=1, split_seed=0)
    other = with_fields(tiny_config, steps=1, split_seed=1)

    reports = [run(config, data_home)[0].metrics for config in (one, other)]

    assert reports[0]["train_loss"] != reports[1]["train_loss"]
    # Measured before the first step.
    norms = [[report[f"weight_norm/{layer}"] for layer in LAYERS] for report in reports]
    assert norms[0] == norms[1]


def test_ndadam_keeps_its_weight_vectors_on_the_unit_sphere(data_home, tiny_config):
    last = run(tiny_config, data_home)[-1].metrics

    for layer in LAYERS:
        assert last[f"weight_norm/{layer}"] == pytest.approx(1, abs=1e-6)


def test_the_first_ndadam_step_turns_every_vector_by_arctan_alpha_v(data_home, tiny_config):
    config = with_fields(tiny_config, steps=1, lr_schedule="constant", alpha_v=0.05, eps=0.0)

    metrics = run(config, data_home)[0].metrics

    for layer in LAYERS:
        assert metrics[f"angular_update/{layer}"] == pytest.approx(math.atan(0.05), rel=1e-4)


def test_a_divergence_ends_the_run_at_its_step_with_the_last_finite_values(data_home, tiny_config):
    config = sgd(tiny_config, lr=1e12, steps=400, report_every=300)

    reports = run(config, data_home)

    (last,) = reports
    assert last.status == "diverged"
    assert last.diverged_at_step == last.step <= 20
    assert last.metrics["train_loss"] > 0
    assert all(math.isfinite(value) for value in last.metrics.values())
    assert last.provenance["peak_memory_bytes"] > 0


def test_a_divergence_after_a_report_repeats_the_last_values(data_home, tiny_config):
    schedule = ((0, 1e-12), (8, 1e-12), (9, 1.0))
    config = sgd(tiny_config, lr=1e12, lr_schedule=schedule, steps=30, report_every=4)

    reports = run(config, data_home)

    assert [report.status for report in reports][:2] == ["running"] * 2
    last, before = reports[-1], reports[-2]
    assert last.status == "diverged"
    assert last.step > before.step
    assert last.metrics["validation_error"] == before.metrics["validation_error"]
    assert "test_error" not in last.metrics


def test_a_last_step_that_breaks_the_weights_is_a_divergence_too(data_home, tiny_config):
    """The loss is taken before the step, so only the evaluation can see it."""
    schedule = ((0, 1e-3), (10, 1e-3), (11, 1e38))
    config = sgd(tiny_config, lr=0.1, lr_schedule=schedule, momentum=0.0)

    last = run(config, data_home)[-1]

    assert (last.status, last.diverged_at_step) == ("diverged", 12)
    assert math.isfinite(last.metrics["train_loss"])


def test_diverged_series_end_before_the_first_value_that_is_not_finite(data_home, tiny_config):
    config = sgd(tiny_config, lr=1e12, steps=400, report_every=300)

    (last,) = run(config, data_home, measurement=Measurement(per_layer=True))

    lengths = {len(series.values) for series in last.series.values()}
    assert len(lengths) <= 1
    for series in last.series.values():
        assert all(math.isfinite(value) for value in series.values)


def test_measured_series_have_every_step_of_the_window(data_home, tiny_config):
    window = Measurement(start=3, stop=10, per_layer=True)

    reports = run(tiny_config, data_home, measurement=window)

    joined = {}
    for report in reports:
        for name, series in report.series.items():
            joined.setdefault(name, []).append((series.start, len(series.values)))
    assert set(joined) == {"effective_lr", *(f"effective_lr/{layer}" for layer in LAYERS)}
    assert joined["effective_lr"] == [(3, 1), (4, 4), (8, 2)]
    # The step before a report is measured twice, by two programs.
    for report in reports[:2]:
        for layer in LAYERS:
            name = f"effective_lr/{layer}"
            assert report.series[name].values[-1] == pytest.approx(report.metrics[name], rel=1e-4)


def test_a_series_can_skip_steps(data_home, tiny_config):
    window = Measurement(start=2, every=3)

    reports = run(with_fields(tiny_config, report_every=12), data_home, measurement=window)

    series = reports[0].series["effective_lr"]
    assert (series.start, series.every, len(series.values)) == (2, 3, 4)


def test_measuring_changes_nothing_that_is_trained(data_home, tiny_config):
    plain = comparable(run(tiny_config, data_home))
    measured = comparable(run(tiny_config, data_home, measurement=Measurement()))

    assert [metrics for *_, metrics, _ in plain] == [
        {name: m[name] for name in p}
        for (*_, p, _), (*_, m, _) in zip(plain, measured, strict=True)
    ]


def test_shadow_moments_and_the_balance_law_are_in_the_last_report(data_home, tiny_config):
    config = sgd(tiny_config, steps=80, report_every=40)
    window = Measurement(shadow_betas=(0.9, 0.999))

    last = run(config, data_home, measurement=window)[-1]

    # 1 for independent gradients, (1 + 0.9) / (1 - 0.9) = 19 for gradients that never change.
    assert 0 < last.metrics["gain"] < 19
    assert {f"gain/{layer}" for layer in LAYERS} <= set(last.metrics)
    assert abs(last.metrics["balance_residual"]) < 0.05
    assert math.isfinite(last.metrics["kappa"])
    counts = last.provenance["probe"]["counts"]
    assert counts["invariant"] > 0
    assert set(last.provenance["probe"]["layers"]) == set(LAYERS)


def test_provenance_is_in_the_first_and_the_last_report(data_home, tiny_config):
    first, middle, last = run(tiny_config, data_home)

    assert middle.provenance == {}
    for report in (first, last):
        assert report.provenance["versions"]["torch"] == torch.__version__.split("+")[0]
        assert report.provenance["device"] == "cpu"
        assert len(report.provenance["data"]["checksum"]) == 64
        assert {"git_commit", "host", "pid", "card", "threads"} <= set(report.provenance)


@pytest.mark.parametrize(
    "fields",
    [
        {"precision": "bf16"},
        {"deterministic": True},
        {"gamma_c": 2.5},
        {"lambda_c": 0.01, "gamma_c": 1.0},
        {"bn_scale": "fixed", "last_batch": "keep"},
        {"warmup_steps": 5, "alpha_s_schedule": "constant"},
        {"lr_schedule": ((0, 0.0), (6, 1.0), (12, 0.1))},
    ],
)
def test_variants_train(fields, data_home, tiny_config):
    last = run(with_fields(tiny_config, **fields), data_home)[-1]

    assert last.status == "complete"
    assert last.metrics["train_loss"] > 0


def test_bn_softmax_holds_the_logits_at_gamma_c(data_home, tiny_config):
    metrics = run(with_fields(tiny_config, gamma_c=2.5, steps=4), data_home)[-1].metrics

    # Batch statistics give each logit deviation 2.5, but for eps; the bias has hardly moved.
    assert metrics["logit_rms"] == pytest.approx(2.5, rel=0.05)


def test_grey_and_odd_images_of_two_classes_train(tmp_path, tiny_config):
    arrays = made_up_arrays(side=7, channels=1, classes=2, train=40, test=10)
    write_dataset("odd", tmp_path, arrays, classes=("a", "b"), source="made up")
    config = with_fields(tiny_config, dataset="odd", batch_size=10, steps=3)

    assert run(config, tmp_path)[-1].status == "complete"


@pytest.mark.parametrize(("classes", "side", "channels"), [(2, 4, 1), (1000, 6, 7)])
@pytest.mark.parametrize("recipe", ["paper-tf", "paper-wrn"])
def test_sets_from_two_to_a_thousand_classes_train(
    recipe, classes, side, channels, tmp_path, tiny_config
):
    arrays = made_up_arrays(side, channels, classes, train=max(classes, 40), test=classes)
    names = tuple(map(str, range(classes)))
    write_dataset("own", tmp_path, arrays, classes=names, source="made up")
    fields = {"dataset": "own", "recipe": recipe, "steps": 2, "validation_fraction": 0.0}

    last = run(with_fields(tiny_config, **fields), tmp_path)[-1]

    assert last.status == "complete"
    assert 0 <= last.metrics["test_error"] <= 1
    assert last.metrics["train_loss"] > 0.1 * math.log(classes)


def test_a_missing_data_set_and_a_batch_too_large_are_refused_at_the_call(data_home, tiny_config):
    with pytest.raises(DatasetNotFound, match="'nothing' is not prepared"):
        train(with_fields(tiny_config, dataset="nothing"), data_home=data_home)
    with pytest.raises(FieldError, match="batch_size must be at most"):
        train(with_fields(tiny_config, batch_size=97), data_home=data_home)


def test_the_time_of_steps_that_a_device_has_queued_is_counted(data_home, tiny_config, monkeypatch):
    """Reading the losses is what waits for a device; here each read takes a while."""
    drain = RunningMetrics.drain

    def slow(tally):
        if tally._pending:
            time.sleep(0.2)
        drain(tally)

    monkeypatch.setattr(RunningMetrics, "drain", slow)
    config = tiny_config.model_copy(update={"report_every": 12})

    last = list(train(config, data_home=data_home))[-1]

    assert last.metrics["images_per_second"] < 12 * 20 / 0.2


def test_an_installed_package_takes_no_commit_from_the_checkout_around_it(tmp_path, monkeypatch):
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("0" * 40)
    inside, own = tmp_path / ".venv" / "site-packages", tmp_path
    found = []
    for root in (inside, own):
        monkeypatch.setattr(
            provenance, "__file__", str(root / "worker" / "training" / "provenance.py")
        )
        provenance.git_commit.cache_clear()
        found.append(provenance.git_commit())
    provenance.git_commit.cache_clear()

    assert found == [None, "0" * 40]
