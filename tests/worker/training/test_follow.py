"""A config whose alpha_v is set while training, so that a curve is followed."""

import math

import pytest
from pydantic import ValidationError

from worker import Measurement, TrainConfig, train

SHORT = {
    "dataset": "digits",
    "network": "mlp",
    "depth": 2,
    "widen_factor": 0.5,
    "recipe": "paper-wrn",
    "flip": False,
    "batch_size": 32,
    "last_batch": "drop",
    "steps": 600,
    "validation_fraction": 0.0,
    "alpha_s": 0.01,
    "lr_schedule": "constant",
}
CURVE = ((0, 0.012), (600, 0.006))


def test_the_measured_rate_follows_the_curve(data_home):
    config = TrainConfig(**SHORT, follow=CURVE)
    values = []
    for report in train(config, data_home=data_home, measurement=Measurement(every=1)):
        values += report.series["effective_lr"].values

    for start in (200, 400):
        wanted = [0.012 - 0.006 * s / 600 for s in range(start, start + 200)]
        ratio = math.fsum(v * v for v in values[start : start + 200]) / math.fsum(
            w * w for w in wanted
        )
        assert math.sqrt(ratio) == pytest.approx(1.0, abs=0.06)
    assert 0 < report.metrics["alpha_v"] < 0.2


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"alpha_v": 0.05}, "alpha_v", "alpha_v is what follow sets"),
        ({"follow": ((0, 0.0),)}, "follow", "below 1 and not all 0; got 0 to 0"),
        ({"follow": ((0, 1.2), (9, 1.0))}, "follow", "got 1 to 1.2"),
        ({"follow": ((5, 0.01), (5, 0.02))}, "follow", "steps that increase"),
        (
            {"optimizer": "adamw", "alpha_s": None},
            "follow",
            "follow is not used by optimizer 'adamw'",
        ),
    ],
)
def test_curves_that_cannot_be_followed_are_refused(changes, field, words):
    with pytest.raises(ValidationError, match=words) as refused:
        TrainConfig.model_validate({**SHORT, "follow": CURVE, **changes})
    assert refused.value.errors()[0]["ctx"]["error"].field == field


def test_a_config_without_a_curve_keeps_the_key_it_had_before_the_field_existed():
    plain = TrainConfig(**SHORT)

    assert "follow" not in plain.stored()
    assert TrainConfig.model_validate(plain.stored()).key() == plain.key()
    assert TrainConfig(**SHORT, follow=CURVE).key() != plain.key()
    assert TrainConfig(**SHORT, follow=CURVE).stored()["alpha_v"] is None
