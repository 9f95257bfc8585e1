"""What the examples consist of: short programs, in which marked lines are there for ndsweep."""

import ast
from collections.abc import Iterator
from typing import TypeGuard

import pytest

from tests.project.documents import fenced
from tests.project.examples.packages import EXAMPLES, MARK, ROOT, Example

#: Lines of a program at most, and of those that were added for ndsweep, in pyproject.toml too.
LINES, ADDED = 60, 12
#: Of an entry point: the name of the group, and of the function.
ENTRY_POINT = 2
PACKAGES = [example for example in EXAMPLES if example.is_package]


def test_there_are_seven_examples() -> None:
    assert [example.name for example in EXAMPLES] == [
        "gradient-boosting",
        "hf-trainer",
        "lightning-module",
        "own-parts",
        "shell-script",
        "tabular-mlp",
        "timm-model",
    ]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_is_short_and_few_lines_of_it_are_for_ndsweep(example: Example) -> None:
    lines = example.program.read_text("utf-8").splitlines()

    assert len(lines) <= LINES
    added = len(example.added()) + (ENTRY_POINT if example.is_package else 0)
    assert 0 < added <= ADDED or example.name == "own-parts"


@pytest.mark.parametrize("example", PACKAGES, ids=lambda example: example.name)
def test_every_line_for_ndsweep_is_marked(example: Example) -> None:
    text = example.program.read_text("utf-8")
    lines = text.splitlines()
    ours = {line for node in ast.walk(ast.parse(text)) for line in lines_for_ndsweep(node)}

    assert ours
    assert [lines[line - 1] for line in sorted(ours) if not lines[line - 1].endswith(MARK)] == []


def lines_for_ndsweep(node: ast.AST) -> Iterator[int]:
    """Lines of a statement that names ndsweep or its run.

    Of a class all of them, of other compound statements those of the head.
    """
    if isinstance(node, ast.Import):
        if any(one.name == "ndsweep" for one in node.names):
            yield node.lineno
    elif isinstance(node, ast.ClassDef):
        if any(names_ndsweep(part) for part in ast.walk(node)):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)
    elif isinstance(node, ast.stmt):
        heads = [one for one in ast.iter_child_nodes(node) if not isinstance(one, ast.stmt)]
        yield from (p.lineno for one in heads for p in ast.walk(one) if names_ndsweep(p))


def names_ndsweep(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and node.id in ("ndsweep", "run")


@pytest.mark.parametrize(
    "example", [one for one in PACKAGES if one.has_training], ids=lambda example: example.name
)
def test_an_example_is_registered_under_the_name_of_its_folder(example: Example) -> None:
    entry_points = example.project["entry-points"]["ndsweep.training"]

    assert entry_points == {example.name: f"{example.program.stem}:train"}
    assert f"\ntraining: {example.name}\n" in example.read("sweep.yaml")


def test_the_guide_shows_examples_as_they_are() -> None:
    guide = ROOT / "docs" / "your-own.md"
    files = [
        path.read_text("utf-8")
        for example in EXAMPLES
        for path in sorted(example.folder.iterdir())
        if path.is_file()
    ]
    shown = [
        text for language in ("python", "toml", "yaml", "sh") for text in fenced(guide, language)
    ]

    assert len(shown) >= len(EXAMPLES)
    for text in shown:
        assert any(text in file for file in files), text


def test_the_readme_shows_the_lines_that_the_first_example_has_for_ndsweep() -> None:
    (first,) = [example for example in EXAMPLES if example.name == "gradient-boosting"]
    entry_point = [
        '[project.entry-points."ndsweep.training"]',
        f'{first.name} = "gradient_boosting:train"',
    ]
    shown = [text for text in fenced(ROOT / "README.md", "python") if "import ndsweep" in text]
    declared = [text for text in fenced(ROOT / "README.md", "toml") if "ndsweep.training" in text]

    assert [[line.strip() for line in text.splitlines() if line.strip()] for text in shown] == [
        first.added()
    ]
    assert [text.splitlines() for text in declared] == [entry_point]
    assert len(first.added()) + len(entry_point) <= ADDED
