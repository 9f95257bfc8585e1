"""The rooms of the packages: docstrings, the picture and the map tell what the sources import."""

import re

import pytest

from tests.project.rooms.graph import PACKAGES, ROOT, floors, rooms
from tests.project.rooms.picture import PICTURE, picture

FOLDERS = [room for package in PACKAGES for room in rooms()[package].values() if room.is_folder]


def test_there_are_rooms():
    assert len(FOLDERS) > 30


@pytest.mark.parametrize("room", FOLDERS, ids=lambda room: room.path)
def test_a_room_says_what_it_holds_and_imports(room):
    assert room.holds.endswith(".")
    assert room.imports == room.allowed


@pytest.mark.parametrize("package", PACKAGES)
def test_rooms_of_a_package_do_not_import_each_other_in_circles(package):
    for floor in floors(package):
        names = {room.name for room in floor}
        assert all(not room.imports & names for room in floor)


def test_the_picture_is_that_of_the_imports():
    redraw = "draw it again: python -m tests.project.rooms.picture"
    assert PICTURE.read_text("utf-8") == picture(), redraw


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_both_entrances_show_the_picture_or_the_map(name):
    text = (ROOT / name).read_text("utf-8")
    assert "docs/images/rooms.svg" in text or "README.md#map" in text


def test_the_map_leads_to_every_room():
    text = (ROOT / "README.md").read_text("utf-8")
    linked = set(re.findall(rf"\]\(((?:{'|'.join(PACKAGES)})/[\w/.]+)\)", text))
    assert {room.path for room in FOLDERS} <= linked
    assert [path for path in linked if not (ROOT / path).exists()] == []
