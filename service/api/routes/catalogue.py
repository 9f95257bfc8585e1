"""``/presets``, ``/datasets``, ``/optimizers``, …: what specs can name, and on which machines."""

from fastapi import APIRouter

from service.contract.errors import answers
from service.contract.inputs import SettingsDep, StoreDep
from service.contract.outputs import (
    DatasetOut,
    ListOut,
    MachineOut,
    OptimizerOut,
    PartOut,
    PresetOut,
    TrainingOut,
)
from service.submission.admission import cluster_shape
from service.submission.own_training import described, described_parts
from sweeps.spec.presets import preset_names, read_preset
from worker.config.train_config import OPTIMIZER_FIELDS, PUBLISHED
from worker.config.training import training_names
from worker.data.prepared import list_datasets

router = APIRouter(tags=["catalogue"])


@router.get("/presets", responses=answers())
def presets() -> ListOut[PresetOut]:
    """Specs that ship with the product: the quickstart, and the paper's tables and figures."""
    return ListOut(items=[PresetOut.model_validate(read_preset(n)) for n in preset_names()])


@router.get("/datasets", responses=answers())
def datasets(settings: SettingsDep) -> ListOut[DatasetOut]:
    """Data sets that are prepared on this machine. Others come by `ndsweep data`."""
    infos = list_datasets(settings.data_home())
    return ListOut(items=[DatasetOut.model_validate(info) for info in infos])


@router.get("/optimizers", responses=answers())
def optimizers() -> ListOut[OptimizerOut]:
    """Built-in optimizers with the fields they read and the published value of each by recipe."""
    return ListOut(items=[_optimizer(name) for name in OPTIMIZER_FIELDS])


@router.get("/trainings", responses=answers())
def trainings() -> ListOut[TrainingOut]:
    """Trainings with the schema of their config and their metrics, as far as they are known.

    Packages are imported by processes of their own; until then a training's state is "loading".
    """
    return ListOut(items=[described(name) for name in training_names()])


@router.get("/parts", responses=answers())
def parts() -> ListOut[PartOut]:
    """Parts of training images that packages register, with their fields. Imports the packages."""
    return ListOut(items=list(described_parts()))


@router.get("/machines", responses=answers())
def machines(store: StoreDep) -> ListOut[MachineOut]:
    """Machines of the cluster, and why trials run on none of those that are refused.

    Empty while no runner has seen the cluster.
    """
    shape = cluster_shape(store.runners())
    found = () if shape is None else shape.nodes
    return ListOut(items=[MachineOut.model_validate(machine) for machine in found])


def _optimizer(name: str) -> OptimizerOut:
    published = {recipe: values for (recipe, owner), values in PUBLISHED.items() if owner == name}
    return OptimizerOut(
        name=name,
        fields=sorted(OPTIMIZER_FIELDS[name] | {"weight_decay", "decay_on"}),
        published=published,
    )
