"""What was found becomes one finished sweep: points, seeds, intervals, importance, words."""

import math
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sweeps.batch.imports.as_sweep import import_found
from sweeps.batch.imports.found import Found, FoundTrial, field_name, metric_name, plain_value
from sweeps.records import SweepState, TrialState
from sweeps.spec.sweep_spec import SweepSpec
from sweeps.store.commands.imports import ImportRefused

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def trial(label, error=None, *, state=TrialState.COMPLETE, seed=None, **params):
    metrics = {} if error is None else {"error": error}
    return FoundTrial(label, params, state, metrics, seed=seed)


def found(trials, **changes):
    values = {
        "tool": "CSV",
        "identity": "here",
        "name": "table",
        "objective": "error",
        "direction": "minimize",
        "trials": trials,
        "at": AT,
    }
    return Found(**(values | changes))


def grid(seeds=(0, 1)):
    """Two rates, two optimizers, each with every seed; adam at 0.1 is best."""
    return [
        trial(f"{name}-{lr}-{seed}", lr + (name == "sgd") + 0.01 * seed, seed=seed, lr=lr, opt=name)
        for name in ("sgd", "adam")
        for lr in (0.1, 0.2)
        for seed in seeds
    ]


def test_trials_become_points_with_intervals_and_comparisons(store):
    report = import_found(store, found(grid(seeds=(0, 1, 2))))

    sweep = report.sweep.sweep
    assert (sweep.state, sweep.reason) == (SweepState.COMPLETE, "imported: all done")
    assert sweep.training == "external"
    assert (sweep.tags, sweep.notes) == (("csv", "imported"), "Imported from CSV: table.")
    assert [point.n for point in store.all_points(sweep.id)] == [3, 3, 3, 3]
    assert sweep.best["params"] == {"lr": 0.1, "opt": "adam"}
    assert sweep.best["mean"] == pytest.approx(0.11)
    assert sweep.result["seed_deviation"] == pytest.approx(0.01)
    assert report.taken == [
        "12 trials of 4 points: 12 complete",
        "objective error, smaller is better",
        "fields that vary: lr, opt",
        "intervals for 4 of 4 points, of 3 complete trials each",
    ]
    assert report.lacks == [
        "no curves: the source has last values only",
        "no times: that of the file stands in for them",
    ]
    # What is stored can be read as a spec again: extended, confirmed, shown in a form.
    assert SweepSpec.model_validate(sweep.spec).initial_points[0] == {"lr": 0.1, "opt": "sgd"}


def test_many_points_have_an_importance(store):
    trials = [trial(str(n), (n % 5) ** 2 + 0.001 * n, a=n % 5, b=n / 40) for n in range(40)]

    sweep = import_found(store, found(trials)).sweep.sweep

    [branch] = sweep.result["importance"]
    assert set(branch["fields"]) == {"a", "b"}


def test_importing_again_adds_nothing_and_a_source_that_grew_adds_its_new_trials(store):
    first = import_found(store, found(grid()))
    again = import_found(store, found(grid()))
    grown = import_found(store, found([*grid(), trial("new", 0.05, seed=0, lr=0.15, opt="adam")]))

    assert [one.sweep.added for one in (first, again, grown)] == [8, 0, 1]
    assert len({one.sweep.sweep.id for one in (first, again, grown)}) == 1
    assert grown.sweep.sweep.best["params"] == {"lr": 0.15, "opt": "adam"}
    numbers = [
        (point.number, point.params["lr"]) for point in store.all_points(again.sweep.sweep.id)
    ]
    assert numbers == [(0, 0.1), (1, 0.2), (2, 0.1), (3, 0.2), (4, 0.15)]


def test_points_keep_their_numbers_where_the_source_comes_in_another_order(store):
    before = import_found(store, found(grid())).sweep.sweep
    known = {str(point.params): point.number for point in store.all_points(before.id)}

    import_found(store, found([trial("new", 1.0, seed=0, lr=0.3, opt="sgd"), *reversed(grid())]))

    now = {str(point.params): point.number for point in store.all_points(before.id)}
    assert {params: now[params] for params in known} == known
    assert len(now) == 5


def test_a_failed_trial_is_replaced_by_the_one_that_did_not_fail(store):
    broken = trial("a", state=TrialState.FAILED, seed=0, lr=0.1)
    import_found(store, found([broken, trial("b", 0.2, seed=0, lr=0.2)]))

    report = import_found(
        store, found([trial("a", 0.1, seed=0, lr=0.1), trial("b", 0.2, seed=0, lr=0.2)])
    )

    assert (report.sweep.added, report.sweep.replaced) == (0, 1)
    assert report.sweep.sweep.trials["failed"] == 0


def test_other_sources_are_other_sweeps(store):
    ids = {
        import_found(store, found(grid(), **changes)).sweep.sweep.id
        for changes in ({}, {"identity": "there"}, {"tool": "W&B"})
    }

    assert len(ids) == 3


def test_a_field_that_varies_only_now_is_refused(store):
    import_found(store, found([trial("a", 0.1, lr=0.1, wd=0), trial("b", 0.2, lr=0.2, wd=0)]))

    with pytest.raises(ImportRefused, match=r"other fields varied \(now different: wd\)"):
        import_found(store, found([trial("a", 0.1, lr=0.1, wd=0), trial("b", 0.2, lr=0.2, wd=1)]))


def test_what_is_the_same_in_all_is_the_base(store):
    trials = [trial("a", 0.1, lr=0.1, epochs=3), trial("b", 0.2, lr=0.2, epochs=3)]

    report = import_found(store, found(trials))

    spec = report.sweep.sweep.spec
    assert spec["base"] == {"epochs": 3, "seed": 0}
    assert list(spec["space"]) == ["lr"]
    assert "fields that vary: lr; the same in all: epochs" in report.taken


def test_points_and_trials_can_be_sorted_by_a_field(store):
    sweep = import_found(store, found(grid())).sweep.sweep

    points = store.points(sweep.id, sort="-params.lr").items
    trials = store.trials(sweep.id, sort="params.opt").items

    assert [point.params["lr"] for point in points] == [0.2, 0.2, 0.1, 0.1]
    assert [trial.params["opt"] for trial in trials] == ["adam"] * 4 + ["sgd"] * 4


def test_one_configuration_with_seeds_is_one_point(store):
    trials = [trial(str(seed), 0.1 + 0.01 * seed, seed=seed, lr=0.1) for seed in (3, 4, 5)]

    sweep = import_found(store, found(trials)).sweep.sweep

    assert sweep.best["n"] == 3
    assert sweep.spec["space"] == {"lr": {"kind": "choice", "values": [0.1]}}
    assert (sweep.spec["base"]["seed"], sweep.spec["replicates"]) == (3, 3)


def test_every_state_is_kept_and_only_complete_trials_have_an_objective(store):
    trials = [
        trial("a", 0.1, lr=0.1),
        trial("b", 0.5, lr=0.2, state=TrialState.PRUNED),
        trial("c", lr=0.3, state=TrialState.FAILED),
        trial("d", lr=0.4, state=TrialState.DIVERGED),
    ]

    report = import_found(store, found(trials))

    stored = list(store.all_trials(report.sweep.sweep.id))
    assert [one.state.value for one in stored] == ["complete", "pruned", "failed", "diverged"]
    assert [one.objective for one in stored] == [0.1, None, None, None]
    assert stored[1].metrics == {"error": 0.5}
    assert report.taken[0] == "4 trials of 4 points: 1 complete, 1 pruned, 1 failed, 1 diverged"


def test_curves_times_and_the_source_of_a_trial_are_stored(store):
    one = replace(
        trial("run-7", 0.1, lr=0.1),
        curves={"error": [(1, 0.5), (2, 0.1)]},
        step=2,
        started_at=AT,
        finished_at=AT.replace(hour=13),
        provenance={"host": "gpu-3"},
    )

    report = import_found(store, found([one, trial("b", 0.2, lr=0.2)]))

    stored = store.trial(report.sweep.sweep.id, 0)
    assert store.metrics(stored.sweep_id, 0) == {"error": [(1, 0.5), (2, 0.1)]}
    assert (stored.started_at, stored.finished_at) == (AT, AT.replace(hour=13))
    assert stored.attempts[0].provenance == {
        "source": "CSV",
        "source_trial": "run-7",
        "host": "gpu-3",
    }
    assert "curves of 1 trial: error" in report.taken
    assert "no times of 1 trial: that of the file stands in for them" in report.lacks


def test_percentages_under_the_name_of_a_fraction_get_another_name(store):
    trials = [
        FoundTrial("a", {"lr": 0.1}, TrialState.COMPLETE, {"test_error": 12.5, "train_error": 0.1}),
        FoundTrial("b", {"lr": 0.2}, TrialState.COMPLETE, {"test_error": 10.0, "train_error": 0.2}),
    ]

    report = import_found(store, found(trials, objective="test_error"))

    sweep = report.sweep.sweep
    assert sweep.objective.metric == "test_error_as_given"
    assert sweep.best["mean"] == 10.0
    assert set(store.trial(sweep.id, 0).metrics) == {"test_error_as_given", "train_error"}
    assert (
        "test_error has values outside 0 to 1, and is a fraction here: it is stored as "
        "test_error_as_given" in report.lacks
    )


def test_a_name_with_a_fixed_meaning_keeps_its_direction(store):
    trials = [FoundTrial("a", {"lr": v}, TrialState.COMPLETE, {"train_loss": v}) for v in (1, 2)]

    with pytest.raises(ImportRefused, match="train_loss has a fixed meaning, direction 'minimize'"):
        import_found(store, found(trials, objective="train_loss", direction="maximize"))


def test_fields_that_follow_a_choice_are_conditional_and_others_are_noted(store):
    trials = [
        trial("a", 0.1, opt="sgd", momentum=0.9),
        trial("b", 0.2, opt="sgd", momentum=0.8),
        trial("c", 0.3, opt="adam"),
    ]
    by_rule = import_found(store, found(trials)).sweep.sweep
    no_rule = import_found(
        store,
        found([*trials, trial("d", 0.4, opt="adam", momentum=0.7)], identity="other"),
    )

    assert by_rule.spec["space"]["momentum"]["when"] == {"opt": ["sgd"]}
    assert by_rule.spec["sampler"] == "list"
    assert no_rule.sweep.sweep.spec["sampler"] == "random"
    assert "momentum is set in some trials only, by no rule that a spec can state" in no_rule.lacks


def test_more_points_than_a_spec_lists_are_stored_without_the_list(store):
    trials = [trial(str(n), float(n), x=n) for n in range(1001)]

    sweep = import_found(store, found(trials)).sweep.sweep

    assert sum(sweep.trials.values()) == 1001
    assert "initial_points" not in sweep.spec


@pytest.mark.parametrize(
    ("trials", "sentence"),
    [
        ([], "table of CSV holds no finished trial"),
        ([trial("a", 0.1)], "have no fields"),
        (
            [FoundTrial("a", {"a/b": 1, "a.b": 2}, TrialState.COMPLETE)],
            r"'a/b' and 'a.b' would both be named 'a.b' here; rename one of them",
        ),
        (
            [trial(str(n), 0.1, **{f"f{i}": n for i in range(60)}) for n in range(2)],
            "fits no spec: .*space",
        ),
    ],
)
def test_what_cannot_be_a_sweep_is_refused_in_a_sentence(store, trials, sentence):
    with pytest.raises(ImportRefused, match=sentence):
        import_found(store, found(trials))


def test_a_name_can_be_given(store):
    assert import_found(store, found(grid()), name="mine").sweep.sweep.name == "mine"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (True, True),
        (3, 3),
        (2**60, str(2**60)),
        (math.nan, "nan"),
        (math.inf, "inf"),
        ((0.9, 0.999), [0.9, 0.999]),
        (["a", "b"], '["a", "b"]'),
        ({}, "{}"),
        (None, None),
    ],
)
def test_values_that_no_config_holds_become_text(value, plain):
    assert plain_value(value) == plain


def test_long_text_is_cut_and_stays_different():
    one, other = plain_value("x" * 500 + "a"), plain_value("x" * 500 + "b")

    assert len(one) <= 200
    assert one != other


def test_names_become_what_a_spec_can_write():
    assert field_name("optim/lr (peak)") == "optim.lr__peak_"
    assert field_name("3d") == "_3d"
    assert metric_name("val/acc@1 %") == "val/acc@1 _"
