"""Conversion to torch's SyncBatchNorm, with scales that are constants."""

import copy

import pytest
import torch
from torch import nn

from ndadam import BatchNormSoftmax, NDAdam, WideResNet, convert_sync_batchnorm, param_groups


def network():
    torch.manual_seed(0)
    return WideResNet(10, 1, 10, gamma_c=2.5, bn_scale="fixed")


@pytest.mark.parametrize("training", [True, False])
def test_a_converted_network_computes_the_same_and_trains_no_scale(training):
    model = network().train(training)
    images = torch.randn(4, 3, 8, 8)
    converted = convert_sync_batchnorm(copy.deepcopy(model))
    norms = [m for m in converted.modules() if isinstance(m, nn.SyncBatchNorm)]

    torch.testing.assert_close(converted(images), model(images))
    assert not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d) for m in converted.modules())
    assert [m.weight.requires_grad for m in norms] == [False] * len(norms)
    assert sorted({m.weight.unique().item() for m in norms}) == [1.0, 2.5]
    optimizer = NDAdam(param_groups(converted))
    converted(images).square().mean().backward()
    optimizer.step()
    assert sorted({m.weight.unique().item() for m in norms}) == [1.0, 2.5]
    assert all(m.bias in optimizer.state for m in norms)


def test_other_normalisations_are_converted_as_torch_does():
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm1d(2, affine=False), nn.Linear(2, 2))

    converted = convert_sync_batchnorm(model)

    kinds = [type(m) for m in converted]
    assert kinds == [nn.SyncBatchNorm, nn.SyncBatchNorm, nn.Linear]
    assert converted[0].weight.requires_grad
    assert converted[1].weight is None


def test_a_layer_alone_is_converted():
    converted = convert_sync_batchnorm(BatchNormSoftmax(4, gamma_c=2.0))

    assert isinstance(converted, nn.SyncBatchNorm)
    assert converted.weight.tolist() == [2.0] * 4
