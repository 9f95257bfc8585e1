"""The best point, and the weights of the best trial in one line: whole, checked, of a model."""

import pytest
import torch

import ndsweep
from service.api.routes import results
from sweeps.retention.best_weights import weights_of
from worker.config.train_config import TrainConfig
from worker.networks.build import build_network
from worker.training.final_weights import save_state

CONFIG = TrainConfig(dataset="made-up", depth=10, widen_factor=1.0, steps=5, batch_size=8)


@pytest.fixture
def network():
    torch.manual_seed(0)
    return build_network(CONFIG.resolved(), 2, 1, torch.device("cpu"))


@pytest.fixture
def kept(home, trained, network):
    """Weights of trial 0 lie where a runner keeps them; returns their file."""
    path = weights_of(home, trained.id)
    path.parent.mkdir(parents=True)
    values = {
        "config": CONFIG.stored(),
        "num_classes": 2,
        "shape": [8, 8, 1],
        "channel": None,
        "state": network.state_dict(),
    }
    torch.save(values, path)
    (path.parent / "best.json").write_text(
        '{"trial": 0, "objective": 0.1, "params": {"alpha_v": 0.05}}'
    )
    return path


def test_the_best_point_is_the_one_with_the_best_mean(sweep):
    best = sweep.best()

    assert (best.point, best.params, best.n) == (0, {"alpha_v": 0.05}, 2)
    assert best.mean == pytest.approx(0.105)
    assert best.label == "selected, optimistic"


def test_weights_load_into_a_model_in_one_line(sweep, kept, network):
    model = build_network(CONFIG.resolved(), 2, 1, torch.device("cpu"))
    first = next(iter(network.state_dict()))

    same = sweep.best().load(model)

    assert same is model
    assert model.training
    torch.testing.assert_close(model.state_dict()[first], network.state_dict()[first])


def test_without_a_model_the_network_is_built(sweep, kept, network):
    model = sweep.best().load()

    assert not model.training
    assert model.state_dict().keys() == network.state_dict().keys()


def test_whose_weights_they_are_and_what_else_the_file_holds(sweep, kept):
    about = sweep.best().weights

    assert (about.trial, about.seed, about.objective) == (0, 0, 0.1)
    assert about.bytes == kept.stat().st_size
    assert sweep.best().values()["shape"] == [8, 8, 1]


def test_weights_of_another_network_are_refused_in_a_sentence(sweep, kept):
    with pytest.raises(ValueError, match=r"do not fit this model .* load\(\) without a model"):
        sweep.best().load(torch.nn.Linear(2, 3))


def test_weights_of_a_training_of_ones_own_load_into_its_model(sweep, kept):
    model, other = torch.nn.Linear(2, 3), torch.nn.Linear(2, 3)
    save_state(kept.parent, model, {"width": 3, "seed": 0})

    assert sweep.best().load(other) is other
    torch.testing.assert_close(other.state_dict(), model.state_dict())
    assert sweep.best().values()["config"] == {"width": 3, "seed": 0}
    with pytest.raises(ValueError, match="builds its network itself: build it, and give it to"):
        sweep.best().load()
    with pytest.raises(ValueError, match=r"settings of their trial, \{'alpha_v': 0.05\}"):
        sweep.best().load(torch.nn.Linear(4, 3))


def test_a_damaged_download_is_refused(sweep, kept, monkeypatch):
    def others(file):
        with file:
            yield b"x" * kept.stat().st_size

    monkeypatch.setattr(results, "_pieces", others)

    with pytest.raises(ndsweep.DamagedDownload, match="another checksum"):
        sweep.best().load(torch.nn.Linear(2, 3))


def test_a_pickle_is_not_run(sweep, kept):
    """Weights are read with weights_only: an object that calls something is refused."""

    class Calls:
        def __reduce__(self):
            return (print, ("called",))

    torch.save({"state": Calls()}, kept)

    with pytest.raises(Exception, match="Weights only load failed"):
        sweep.best().values()


def test_no_weights_say_why(sweep):
    with pytest.raises(ndsweep.ServiceRefused, match="another NDSWEEP_HOME"):
        sweep.best().load()


def test_no_result_yet_says_so(connected, spec):
    with pytest.raises(ndsweep.NothingToShow, match=r"no point .* has a result yet \(it is queued"):
        connected.submit(spec).best()
