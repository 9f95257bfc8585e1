"""The final weights of a run: written at its end, and enough to build the network again."""

import torch

from worker.train import train
from worker.weights import FILE, load_network


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


def test_a_run_that_was_stopped_leaves_none(data_home, tiny_config, tmp_path):
    for _ in train(tiny_config, data_home=data_home, checkpoint_dir=tmp_path, stop=lambda: True):
        pass

    assert not (tmp_path / FILE).exists()
    assert list(tmp_path.glob("*.ckpt"))
