"""Two processes: data parallel training equals one process, whole rows shard, cut rows do not."""

import datetime
import multiprocessing
import traceback

import pytest
import torch
import torch.distributed as dist
from torch import nn

from ndadam import EffectiveLR, NDAdam, param_groups

pytestmark = pytest.mark.skipif(
    not dist.is_available() or not dist.is_gloo_available(), reason="needs torch's gloo"
)
STEPS = 4


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 3)
    ).double()


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(8, 2, 4, 4, dtype=torch.float64, generator=generator)


def train(model, optimizer, part=slice(None)):
    for step in range(STEPS):
        optimizer.zero_grad()
        model(batch(step)[part]).square().mean().backward()
        optimizer.step()


def alone():
    model = make_model()
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer)
    return model, optimizer


def assert_close(values, expected):
    for a, b in zip(values, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def data_parallel(rank):
    """Each process sees half of every batch."""
    model = nn.parallel.DistributedDataParallel(make_model())
    train(model, NDAdam(param_groups(model)), slice(rank * 4, rank * 4 + 4))

    assert_close(model.parameters(), alone()[0].parameters())


def sharded_along_rows(rank):
    """Every process holds whole rows, five of a layer unevenly, and turns its own."""
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(make_model())
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, slice(rank * 4, rank * 4 + 4))
    other, expected = alone()

    assert_close((p.full_tensor() for p in model.parameters()), other.parameters())
    for p, q in zip(model.parameters(), other.parameters(), strict=True):
        state, whole = optimizer.state[p], expected.state[q]
        assert state["step"].item() == whole["step"].item()
        for key in ("exp_avg", "exp_avg_sq"):
            assert state[key].shape == whole[key].shape
            assert state[key].placements == p.placements
            assert_close([state[key].full_tensor()], [whole[key]])
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    train(model, optimizer, slice(rank * 4, rank * 4 + 4))
    train(other, expected)
    assert_close((p.full_tensor() for p in model.parameters()), other.parameters())
    with pytest.raises(ValueError, match=r"all of them are on each process, but 0\.weight is a DT"):
        EffectiveLR(model, optimizer)


def state_divided(rank):
    """Each process keeps the state of its share of the parameters, as the guide says."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    model = nn.parallel.DistributedDataParallel(make_model())
    NDAdam(param_groups(model))
    optimizer = ZeroRedundancyOptimizer(param_groups(model), optimizer_class=NDAdam)
    train(model, optimizer, slice(rank * 4, rank * 4 + 4))

    assert_close(model.parameters(), alone()[0].parameters())


def sharded_through_rows(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    w = torch.arange(1.0, 13.0).view(4, 3)
    cut = nn.Parameter(distribute_tensor(w, mesh, [Shard(1)]))
    with pytest.raises(ValueError, match=r"head\.weight of shape \(4, 3\) is sharded through its"):
        NDAdam([("head.weight", cut)], vector_dim=0)
    transposed = fully_shard(nn.Sequential(nn.ConvTranspose1d(4, 3, 2)))
    with pytest.raises(ValueError, match=r"0\.weight of shape \(4, 3, 2\) is sharded through its"):
        NDAdam(param_groups(transposed))
    NDAdam([cut])  # scalars know no rows
    NDAdam([cut], vector_dim=1)  # its columns are whole
    copies = nn.Parameter(distribute_tensor(w, mesh, [Replicate()]))
    NDAdam([copies], vector_dim=0)

    rows = torch.linalg.vector_norm(copies.full_tensor(), dim=1)
    torch.testing.assert_close(rows, torch.ones(4))


def sharded_in_half_precision(rank):
    """Layers compute in bf16, their weights and moments stay float32 shards of unit vectors."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
    model = fully_shard(make_model().float(), mp_policy=policy)
    optimizer = NDAdam(param_groups(model))
    whole = make_model().float()
    expected = NDAdam(param_groups(whole))
    for step in range(STEPS):
        for net, stepped, part in (
            (model, optimizer, slice(rank * 4, rank * 4 + 4)),
            (whole, expected, slice(None)),
        ):
            stepped.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=net is whole):
                net(batch(step)[part].float()).float().square().mean().backward()
            stepped.step()

    for p, q in zip(model.parameters(), whole.parameters(), strict=True):
        assert (p.dtype, optimizer.state[p]["exp_avg"].dtype) == (torch.float32, torch.float32)
        # Gradients are those of bf16 layers, of half a batch here: equal to their rounding.
        torch.testing.assert_close(p.full_tensor(), q, rtol=0, atol=0.02)
    w = model[0].weight.full_tensor().flatten(1)
    torch.testing.assert_close(w.norm(dim=1), torch.ones(4))


def saved(rank, folder):
    """What the next world size loads: see below."""
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_state_dict
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(make_model())
    optimizer = NDAdam(param_groups(model))
    train(model, optimizer, slice(rank * 4, rank * 4 + 4))
    checkpoints.save(state_of(get_state_dict, model, optimizer), checkpoint_id=folder)


def state_of(get_state_dict, model, optimizer):
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}


CASES = {
    f.__name__: f
    for f in (
        data_parallel,
        sharded_along_rows,
        state_divided,
        sharded_through_rows,
        sharded_in_half_precision,
        saved,
    )
}


def process(rank, port, results, folder):
    """Run every case; the results are the names of those that passed, and tracebacks."""
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, 2, timeout=datetime.timedelta(seconds=300))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    outcome = {}
    for name, case in CASES.items():
        try:
            case(rank, folder) if case is saved else case(rank)
            outcome[name] = "passed"
        except BaseException:
            outcome[name] = traceback.format_exc()
    results.put(outcome)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where two processes save a checkpoint."""
    return str(tmp_path_factory.mktemp("checkpoint"))


@pytest.fixture(scope="module")
def outcomes(folder):
    """What each of two processes says about each case."""
    store = dist.TCPStore("127.0.0.1", 0, 2, is_master=True, wait_for_workers=False)
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    workers = [
        context.Process(target=process, args=(rank, store.port, results, folder)) for rank in (0, 1)
    ]
    try:
        for worker in workers:
            worker.start()
        return [results.get(timeout=300) for _ in workers]
    finally:
        for worker in workers:
            if worker.pid is not None:
                worker.join(timeout=60)
                worker.kill()  # one that does not end would keep this process from its own end
                worker.join()


@pytest.mark.parametrize("case", CASES)
def test_two_processes(case, outcomes):
    assert [outcome[case] for outcome in outcomes] == ["passed", "passed"]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_checkpoint_of_two_processes_goes_on_in_one(outcomes, folder):
    import torch.distributed.checkpoint as checkpoints
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    assert [outcome["saved"] for outcome in outcomes] == ["passed", "passed"]
    model = make_model()
    optimizer = NDAdam(param_groups(model, alpha_v=0.1))
    state = state_of(get_state_dict, model, optimizer)
    checkpoints.load(state, checkpoint_id=folder, no_dist=True)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    other, expected = alone()

    assert optimizer.param_groups[0]["lr"] == expected.param_groups[0]["lr"]
    for net, stepped in ((model, optimizer), (other, expected)):
        train(net, stepped)
    assert_close(model.parameters(), other.parameters())
