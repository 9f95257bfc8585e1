"""``/api/v1/comparisons``: arms of finished sweeps, checked against statistics done by hand."""

import statistics

import pytest

from ndadam.statistics.inference import detectable_difference, holm, paired, welch

COMPARISONS = "/api/v1/comparisons"
SGD = [0.10, 0.12, 0.11, 0.13]
NDADAM = [0.07, 0.09, 0.09, 0.10]
ADAM = [0.20, 0.24, 0.21, 0.22]


def compared(client, *ids, **how):
    answer = client.post(COMPARISONS, json={"arms": [{"sweep": one} for one in ids], **how})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_two_arms_differ_as_welch_says(client, finished):
    found = compared(client, finished("sgd", SGD), finished("ndadam", NDADAM))

    row = found["differences"][0]
    expected = welch(SGD, NDADAM)
    assert (found["metric"], row["method"], row["verdict"]) == ("test_error", "welch", "higher")
    assert row["difference"] == pytest.approx(0.0275)
    assert (row["low"], row["high"]) == pytest.approx((expected.low, expected.high))
    assert row["p_holm"] == row["p_value"] == pytest.approx(expected.p_value)
    assert found["arms"][0]["values"] == SGD


def test_holm_corrects_for_every_pair_and_a_baseline_makes_fewer(client, finished):
    ids = [finished("sgd", SGD), finished("ndadam", NDADAM), finished("adam", ADAM)]

    all_pairs = compared(client, *ids)["differences"]
    with_baseline = compared(client, *ids, baseline=0)["differences"]

    pairs = [(SGD, NDADAM), (SGD, ADAM), (NDADAM, ADAM)]
    expected = holm([welch(a, b).p_value for a, b in pairs])
    assert [row["p_holm"] for row in all_pairs] == pytest.approx(expected)
    assert [row["b"] for row in with_baseline] == ["sgd #0", "sgd #0"]
    assert with_baseline[0]["difference"] == pytest.approx(-0.0275)


def test_pairing_and_margin_hold_only_where_every_sweep_declared_them(client, finished):
    declared = {"comparison": {"pairing": True, "margin": 0.01}}
    sgd = finished("sgd", SGD, **declared)
    ndadam = finished("ndadam", NDADAM, **declared)
    late = finished("adam", ADAM)

    both = compared(client, sgd, ndadam)
    mixed = compared(client, sgd, late)

    expected = paired(SGD, NDADAM)
    row = both["differences"][0]
    assert (both["pairing"], both["margin"], row["method"]) == (True, 0.01, "paired")
    gaps = [x - y for x, y in zip(SGD, NDADAM, strict=True)]
    seen = detectable_difference(statistics.stdev(gaps), len(gaps), paired=True)
    assert both["detectable_difference"] == pytest.approx(seen)
    assert row["p_value"] == pytest.approx(expected.p_value)
    assert row["non_inferior"] is False
    assert row["worst_case"] == pytest.approx(expected.high)
    assert (mixed["pairing"], mixed["margin"]) == (False, None)
    assert mixed["differences"][0]["non_inferior"] is None
    assert sum("declare" in note for note in mixed["notes"]) == 2


def test_neither_can_be_asked_for_afterwards(client, finished, assert_error):
    body = {"arms": [{"sweep": finished("sgd", SGD)}], "pairing": True}

    assert_error(client.post(COMPARISONS, json=body), 422, "ValidationError")


def test_the_better_arm_is_not_inferior(client, finished):
    declared = {"comparison": {"margin": 0.005}}
    found = compared(
        client, finished("ndadam", NDADAM, **declared), finished("sgd", SGD, **declared)
    )

    assert found["differences"][0]["non_inferior"] is True


def test_every_field_that_differs_is_listed_and_no_other(client, finished):
    found = compared(client, finished("sgd", SGD), finished("ndadam", NDADAM[:3], sampler="qmc"))

    assert {row["field"]: list(row["values"].values()) for row in found["differing_fields"]} == {
        "optimizer": ["sgd", "ndadam"],
        "search.replicates": [4, 3],
        "search.sampler": ["random", "qmc"],
    }


def test_mixed_provenance_is_shown(client, finished):
    other = {"card": "A100", "versions": {"torch": "2.14"}}
    found = compared(client, finished("sgd", SGD), finished("ndadam", NDADAM, provenance=other))

    assert found["mixed_provenance"] == [
        {"what": "card", "values": {"sgd #0": ["H100"], "ndadam #0": ["A100"]}}
    ]
    assert any("Mixed provenance" in note for note in found["notes"])


def test_an_arm_with_a_diverged_seed_is_shown_and_not_compared(client, finished):
    found = compared(
        client,
        finished("sgd", SGD),
        finished("ndadam", NDADAM),
        finished("ndadam", NDADAM[::-1]),
    )
    assert [arm["label"][:9] for arm in found["arms"][1:]] == ["ndadam #0", "ndadam #0"]

    sweep = finished("adam", ADAM, lost=(None,))
    mine = {"sweep": found["arms"][0]["sweep"], "label": "mine"}
    whole, part = (
        client.post(COMPARISONS, json={"arms": [{"sweep": sweep} | arm, mine]}).json()
        for arm in ({"point": 0}, {"trials": [0, 1]})
    )

    assert whole["differences"] == []
    assert whole["arms"][0]["lost"] == {"diverged": 1}
    assert any("adam #0 is not compared: 1 diverged" in note for note in whole["notes"])
    assert [(row["a"], row["b"]) for row in part["differences"]] == [("adam (trials)", "mine")]
    assert any("adam (trials) was put together by hand" in note for note in part["notes"])


def test_a_trial_cannot_be_on_both_sides(client, finished, assert_error):
    sweep = finished("sgd", SGD)
    for arms in (
        [{"sweep": sweep}, {"sweep": sweep, "point": 0}],
        [{"sweep": sweep, "trials": [0, 1]}, {"sweep": sweep, "trials": [1, 2]}],
    ):
        answer = client.post(COMPARISONS, json={"arms": arms})

        body = assert_error(answer, 422, "ValidationError")
        assert body["fields"][0]["path"] == "arms.1"
        assert "is in two arms" in body["detail"]


def test_what_makes_an_interval_doubtful_is_said(client, finished):
    declared = {"comparison": {"pairing": True}}
    same = finished("sgd", [0.1, 0.1, 0.1], **declared)
    fewer = finished("adam", ADAM, **declared)

    notes = compared(client, same, fewer)["notes"]

    assert any("sgd #0 has one value for all of its seeds" in note for note in notes)
    assert any("Not paired where two arms were not trained on the same seeds" in n for n in notes)
    assert not any("adam #0 has one value" in note for note in notes)


def test_trials_named_one_by_one_stay_as_optimistic_as_their_point(client, store, trained):
    best = {"sweep": trained.id, "trials": [0, 1]}
    rest = {"sweep": trained.id, "trials": [2, 3]}

    asked = {"arms": [best, rest], "metric": "validation_error"}
    answer = client.post(COMPARISONS, json=asked).json()

    assert [(arm["selected"], arm["chosen_from"]) for arm in answer["arms"]] == [
        (True, 2),
        (False, 1),
    ]


def test_an_arm_of_several_points_says_so(client, trained, finished):
    mixed = {"sweep": trained.id, "trials": [0, 2]}

    answer = client.post(
        COMPARISONS,
        json={"arms": [mixed, {"sweep": finished("sgd", SGD)}], "metric": "validation_error"},
    )

    assert any("mixes 2 points" in note for note in answer.json()["notes"])


@pytest.mark.parametrize(
    ("change", "status", "name", "path"),
    [
        ({"arms": [{"sweep": "0123456789ab"}]}, 404, "SweepNotFound", "id"),
        ({"arms": [{"sweep": "nope"}]}, 422, "ValidationError", "arms.0.sweep"),
        ({"arms": []}, 422, "ValidationError", "arms"),
        ({"metric": "no_such"}, 422, "ValidationError", "metric"),
        ({"baseline": 2}, 422, "ValidationError", "baseline"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    client, finished, change, status, name, path, assert_error
):
    ids = [finished("sgd", SGD), finished("ndadam", NDADAM)]
    body = {"arms": [{"sweep": one} for one in ids]} | change

    refused = assert_error(client.post(COMPARISONS, json=body), status, name)

    assert refused["fields"][0]["path"] == path


def test_one_arm_and_an_unfinished_sweep_are_refused(client, spec, finished, assert_error):
    one = finished("sgd", SGD)
    waiting = client.post("/api/v1/sweeps", json=spec).json()["id"]

    lonely = client.post(COMPARISONS, json={"arms": [{"sweep": one}]})
    early = client.post(COMPARISONS, json={"arms": [{"sweep": one}, {"sweep": waiting}]})

    assert "2 to 20 arms" in assert_error(lonely, 422, "ValidationError")["detail"]
    assert "not finished" in assert_error(early, 409, "SweepStateConflict")["detail"]


class TestWhatCannotBeHeldAgainstEachOther:
    def test_errors_on_other_data_get_no_verdict_and_the_data_are_named(self, client, finished):
        ids = [
            finished("sgd", SGD, config={"dataset": "cifar10"}),
            finished("ndadam", NDADAM, config={"dataset": "cifar100"}),
            finished("adam", ADAM, config={"dataset": "cifar100"}),
        ]
        found = compared(client, *ids)

        # Holm's correction is for the one verdict that is given.
        assert [(row["a"], row["b"]) for row in found["differences"]] == [("ndadam #0", "adam #0")]
        assert found["differences"][0]["p_holm"] == pytest.approx(welch(NDADAM, ADAM).p_value)
        assert [(row["a"], row["b"]) for row in found["not_comparable"]] == [
            ("sgd #0", "ndadam #0"),
            ("sgd #0", "adam #0"),
        ]
        reason = "other data: dataset cifar10 and cifar100"
        assert {row["reason"] for row in found["not_comparable"]} == {reason}

    def test_other_bytes_under_one_name_are_other_data(self, client, finished):
        one, other = (
            finished(name, errors, provenance={"data": {"name": "made-up", "checksum": checksum}})
            for name, errors, checksum in (("sgd", SGD, "aa11"), ("ndadam", NDADAM, "bb22"))
        )
        found = compared(client, one, other)

        assert found["differences"] == []
        assert "checksums aa11 and bb22" in found["not_comparable"][0]["reason"]
        assert found["detectable_difference"] is None

    def test_a_split_matters_to_the_validation_error_and_is_named_beside_the_test_error(
        self, client, finished
    ):
        one = finished("sgd", SGD, config={"split_seed": 0, "validation_fraction": 0.2})
        other = finished("ndadam", NDADAM, config={"split_seed": 3, "validation_fraction": 0.2})

        validation = compared(client, one, other, metric="validation_error")
        test = compared(client, one, other)

        assert validation["differences"] == []
        assert validation["not_comparable"][0]["reason"] == (
            "errors on other images: split_seed 0 and 3"
        )
        assert test["differences"][0]["verdict"] == "higher"
        assert any(note.endswith("split_seed 0 and 3.") for note in test["notes"])

    def test_another_recipe_is_named_beside_its_verdict(self, client, finished):
        one = finished("sgd", SGD, config={"recipe": "paper-tf"})
        other = finished("ndadam", NDADAM, config={"recipe": "paper-wrn"})
        found = compared(client, one, other)

        assert len(found["differences"]) == 1
        expected = "Not trained alike, which may be the difference: recipe paper-tf and paper-wrn."
        assert expected in found["notes"]

    def test_a_table_says_why_there_is_no_verdict(self, client, finished):
        one = finished("sgd", SGD, config={"dataset": "cifar10"})
        other = finished("ndadam", NDADAM, config={"dataset": "cifar100"})
        body = {"arms": [{"sweep": one}, {"sweep": other}]}
        text = client.post(COMPARISONS, params={"format": "markdown"}, json=body).text

        assert "| sgd #0 | ndadam #0 | other data: dataset cifar10 and cifar100 |" in text

    def test_two_arms_without_any_spread_get_no_verdict(self, client, finished):
        found = compared(client, finished("sgd", [0.1, 0.1]), finished("ndadam", [0.2, 0.2]))

        assert found["differences"] == []
        assert "neither has a spread" in found["not_comparable"][0]["reason"]

    def test_pairs_that_all_lie_equally_far_apart_get_no_verdict(self, client, finished):
        declared = {"comparison": {"pairing": True}}
        further = [error + 0.01 for error in SGD]
        one, other = finished("sgd", SGD, **declared), finished("ndadam", further, **declared)
        paired_found = compared(client, one, other)
        apart = compared(client, one, finished("adam", further))

        assert paired_found["differences"] == []
        assert (
            "every pair of seeds is equally far apart"
            in (paired_found["not_comparable"][0]["reason"])
        )
        assert [row["method"] for row in apart["differences"]] == ["welch"]

    def test_where_nothing_is_held_out_the_seed_of_the_split_does_not_matter(
        self, client, finished
    ):
        one = finished("sgd", SGD, config={"split_seed": 0, "validation_fraction": 0.0})
        other = finished("ndadam", NDADAM, config={"split_seed": 3, "validation_fraction": 0.0})
        found = compared(client, one, other, metric="validation_error")

        assert [row["verdict"] for row in found["differences"]] == ["higher"]
        assert not any("split_seed" in note for note in found["notes"])
