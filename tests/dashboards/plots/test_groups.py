"""Groups of points by one field, their colours, and the mean of their curves."""

import pytest

from dashboards.plots.groups import NO_VALUE, PARTS, colours_by, grouped, mean_curve
from sweeps.figures.colours import GREY, OPTIMIZER_COLOURS


class TestGroups:
    def test_words_are_groups_in_their_own_colours(self) -> None:
        groups = grouped("optimizer", ["sgd", "ndadam", "sgd"])

        assert [(one.name, one.members) for one in groups] == [("ndadam", (1,)), ("sgd", (0, 2))]
        assert [one.colour for one in groups] == [OPTIMIZER_COLOURS[o] for o in ("ndadam", "sgd")]

    def test_a_range_is_cut_into_parts_with_as_many_members_each(self) -> None:
        groups = grouped("lr", [0.01 * (40 - at) for at in range(40)])

        assert [len(one.members) for one in groups] == [40 // PARTS] * PARTS
        assert groups[0].name == "α<sub>0</sub> 0.01 to 0.1"
        assert len({one.colour for one in groups}) == PARTS

    def test_few_numbers_are_a_group_each_and_none_is_a_value(self) -> None:
        groups = grouped("gamma_c", [2.5, None, 1, 2.5])

        assert [one.name.split()[-1] for one in groups] == ["none", "1", "2.5"]

    def test_what_does_not_use_the_field_is_grey(self) -> None:
        groups = grouped("lr", [0.1, NO_VALUE])

        assert (groups[-1].members, groups[-1].colour) == ((1,), GREY)
        assert groups[-1].name.endswith("not used")
        assert colours_by("lr", [NO_VALUE])[0][1] == GREY

    def test_many_words_are_taken_together(self) -> None:
        groups = grouped("data", [f"d{at}" for at in range(9)])

        assert groups[-1].name == "data other values"
        assert sum(len(one.members) for one in groups) == 9

    def test_texts_of_people_are_no_markup(self) -> None:
        [group] = grouped("<b>", ["<a href='x'>%{y}"])
        assert "<a" not in group.name
        assert "{" not in group.name


class TestMeanCurve:
    def test_a_curve_counts_between_its_own_steps_and_not_beyond_them(self) -> None:
        mean = mean_curve([[(0, 0.0), (4, 4.0)], [(0, 2.0), (2, 2.0)]])

        # By hand: at 2 the first curve is at 2.0; at 4 the second one has ended.
        assert mean.steps == [0, 2, 4]
        assert mean.mean == [1.0, 2.0, 4.0]
        assert mean.n == [2, 2, 1]
        assert mean.sd == [pytest.approx(2**0.5), 0.0, None]

    def test_no_curve_has_no_mean(self) -> None:
        assert mean_curve([[]]).steps == []
