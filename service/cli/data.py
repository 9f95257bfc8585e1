"""``ndsweep data fetch|import|list``: prepared data sets."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from worker.data.prepared import DatasetInfo, default_home, list_datasets
from worker.errors import WorkerError

app = typer.Typer(help="Prepare data sets and list them.", no_args_is_help=True)

_Home = Annotated[
    Path | None, typer.Option(help="Folder of prepared sets; default: NDSWEEP_DATA or the cache.")
]
_REFUSED = 2


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="cifar10, cifar100 or digits.")],
    data_home: _Home = None,
) -> None:
    """Download and prepare a published data set and verify its checksum."""
    from worker.data.fetch import fetch as fetch_set
    from worker.data.fetch import prepare_digits

    home = data_home or default_home()
    if name == "digits":  # ships with scikit-learn: nothing to download
        _prepare(lambda: prepare_digits(home), name)
    else:
        _prepare(lambda: fetch_set(name, home), name)


@app.command("import")
def import_(
    name: Annotated[str, typer.Argument(help="Name that configs will use.")],
    path: Annotated[
        Path,
        typer.Argument(
            help="An .npz with x_train, y_train, x_test, y_test; an official CIFAR archive "
            "(Python or binary); or a folder with train and test images by class."
        ),
    ],
    data_home: _Home = None,
) -> None:
    """Check and prepare a data set from a file or folder."""
    from worker.data.import_set import import_dataset

    home = data_home or default_home()
    _prepare(lambda: import_dataset(name, path, home), name)


@app.command("list")
def list_(
    data_home: _Home = None,
    counts: Annotated[bool, typer.Option("--counts", help="Also images per class.")] = False,
) -> None:
    """Show the prepared data sets: sizes, classes, channel statistics."""
    home = data_home or default_home()
    found = list_datasets(home)
    console = Console()
    if not found:
        console.print(f"no prepared data set in {home}")
        return
    console.print(_table(found, str(home)))
    if counts:
        for info in found:
            console.print(_class_table(info))


def _prepare(prepare: Callable[[], DatasetInfo], name: str) -> None:
    errors = Console(stderr=True)
    try:
        with errors.status(f"preparing {name}"):
            info = prepare()
    except WorkerError as error:
        errors.print(f"refused: {error}", markup=False, highlight=False, soft_wrap=True)
        raise typer.Exit(_REFUSED) from None
    except OSError as error:
        errors.print(
            f"cannot prepare {name}: {error}; NDSWEEP_DATA sets the folder of the data sets",
            markup=False,
            highlight=False,
            soft_wrap=True,
        )
        raise typer.Exit(1) from None
    Console().print(_table([info], "prepared"))


def _table(infos: list[DatasetInfo], title: str) -> Table:
    # Few columns: one for each number would make nine, too many for 80 characters.
    table = Table(box=None, show_header=False, title=title, title_justify="left")
    table.add_column(overflow="fold", style="bold")
    table.add_column(overflow="fold")
    for info in infos:
        table.add_row(info.name, _in_words(info))
    return table


def _in_words(info: DatasetInfo) -> str:
    return (
        f"{info.num_train:,} training + {info.num_test:,} test images of "
        f"{' x '.join(map(str, info.shape))}\n"
        f"{info.num_classes:,} classes of {_per_class(info)} images\n"
        f"channel means {_numbers(info.channel_means)}; "
        f"deviations {_numbers(info.channel_deviations)}\n"
        f"sha256 {info.checksum[:12]}; {info.source}"
    )


def _class_table(info: DatasetInfo) -> Table:
    table = Table("class", "train", "test", title=info.name)
    for row in zip(info.classes, info.train_counts, info.test_counts, strict=True):
        table.add_row(*map(str, row))
    return table


def _per_class(info: DatasetInfo) -> str:
    """Number of training and test images per class, or its range if classes differ."""

    def span(counts: tuple[int, ...]) -> str:
        fewest, most = min(counts), max(counts)
        return f"{fewest:,}" if fewest == most else f"{fewest:,}-{most:,}"

    return f"{span(info.train_counts)} + {span(info.test_counts)}"


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.1f}" for value in values)
