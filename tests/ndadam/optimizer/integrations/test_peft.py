"""Low-rank adapters of peft, trained by NDAdam."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from ndadam import NDAdam, describe_groups, param_groups

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of the package's own
    pytest.mark.skipif(
        find_spec("peft") is None, reason="peft is not installed (extra integrations)"
    ),
]


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(9, 16)
        self.first = nn.Linear(16, 24)
        self.conv = nn.Conv1d(24, 8, 3)

    def forward(self, ids):
        return self.conv(self.first(self.embedding(ids)).transpose(1, 2))


def adapted(**settings):
    import peft  # takes seconds, which each process that collects the tests would spend

    config = peft.LoraConfig(r=2, target_modules=["embedding", "first", "conv"], **settings)
    return peft.get_peft_model(Network(), config)


@pytest.mark.parametrize("settings", [{}, {"use_dora": True}], ids=["LoRA", "DoRA"])
def test_factors_that_start_at_zero_are_scalars_and_the_rest_is_frozen(settings):
    model = adapted(**settings)
    dims = {n: g["vector_dim"] for g in param_groups(model) for n in g["names"]}

    trained = {n: dims[n] for n, p in model.named_parameters() if p.requires_grad}
    kinds = {n.partition(".lora_")[2].partition(".")[0]: dim for n, dim in trained.items()}

    expected = {"A": 0, "B": None, "embedding_A": None, "embedding_B": 0}
    assert kinds == expected | ({"magnitude_vector": None} if settings else {})
    lines = describe_groups(model).splitlines()
    assert all("frozen" in line for line in lines if ".base_layer." in line)


def test_the_first_steps_leave_the_function_near_what_it_was():
    model = adapted()
    ids = torch.arange(9)[None]
    before = model(ids).detach()
    optimizer = NDAdam(param_groups(model, alpha_s=1e-3))
    torch.testing.assert_close(model(ids).detach(), before, rtol=0, atol=1e-6)

    model(ids).square().mean().backward()
    optimizer.step()

    # As vectors the factors that start at zero would have unit norm: as large a change as all else.
    moved = (model(ids).detach() - before).abs().max() / before.abs().max()
    assert 0 < moved < 0.05
