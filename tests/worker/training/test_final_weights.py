"""The final weights of a run: written at its end, and enough to build the network again."""

import pytest
import torch

from worker.data.prepared import load
from worker.training.final_weights import FILE, load_network
from worker.training.train import train


def test_a_finished_run_leaves_a_network_that_can_be_used(data_home, tiny_config, tmp_path):
    for _ in train(tiny_config, data_home=data_home, checkpoint_dir=tmp_path):
        pass

    model, about = load_network(tmp_path / FILE)
    height, width, channels = about["shape"]
    with torch.no_grad():
        logits = model(torch.zeros(2, channels, height, width))

    assert not model.training
    assert logits.shape == (2, about["num_classes"])
    assert torch.isfinite(logits).all()
    assert about["config"] == tiny_config.stored()


@pytest.mark.parametrize("norm", ["per_image", "channel"])
def test_the_network_makes_the_errors_that_the_run_reported(norm, data_home, tiny_config, tmp_path):
    config = tiny_config.model_copy(update={"input_norm": norm, "steps": 2})
    *_, last = train(config, data_home=data_home, checkpoint_dir=tmp_path)

    model, about = load_network(tmp_path / FILE)
    arrays = load("colours", data_home).arrays
    images = torch.from_numpy(arrays.x_test.astype("float32"))
    if about["channel"] is None:
        flat = images.flatten(1)
        images = ((flat - flat.mean(1, True)) / flat.std(1, correction=0, keepdim=True)).view(
            images.shape
        )
    else:
        scale, shift = map(torch.tensor, about["channel"])
        images = images * scale + shift
    with torch.no_grad():
        found = model(images.permute(0, 3, 1, 2)).argmax(1)

    wrong = (found.numpy() != arrays.y_test).sum()
    assert wrong / len(found) == last.metrics["test_error"]
    assert 0 < wrong < len(found)


def test_a_run_that_was_stopped_leaves_none(data_home, tiny_config, tmp_path):
    for _ in train(tiny_config, data_home=data_home, checkpoint_dir=tmp_path, stop=lambda: True):
        pass

    assert not (tmp_path / FILE).exists()
    assert list(tmp_path.glob("*.ckpt"))
