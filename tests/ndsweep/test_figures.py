"""Figures: those of the pages, as plotly figures; what cannot be drawn is a sentence."""

import pytest

import ndsweep


@pytest.mark.parametrize(
    ("what", "options", "address"),
    [
        ("curves", {}, "plots/curves"),
        ("curves", {"metric": "train_loss"}, "plots/curves"),
        ("curves", {"x": "time", "y": "log", "smooth": "0.6"}, "plots/curves"),
        ("sensitivity", {"field": "alpha_v"}, "plots/sensitivity/alpha_v"),
        ("parallel", {}, "plots/parallel"),
        ("timeline", {}, "plots/timeline"),
        ("metric", {"trial": 0, "metric": "train_loss"}, "trials/0/plots/metric/train_loss"),
        ("layers", {"trial": 0, "quantity": "effective_lr"}, "trials/0/plots/layers"),
    ],
)
def test_a_figure_is_the_one_of_the_page(sweep, client, what, options, address):
    query = {name: value for name, value in options.items() if name not in ("trial", "field")}
    page = client.get(f"/sweeps/{sweep.id}/{address}.json", params=query).json()

    figure = sweep.plot(what, **options)

    assert len(figure.data) == len(page["data"]) > 0
    drawn = figure.to_dict()
    assert drawn["layout"]["xaxis"]["title"] == page["layout"]["xaxis"]["title"]
    assert [trace.get("name") for trace in drawn["data"]] == [
        trace.get("name") for trace in page["data"]
    ]


@pytest.mark.parametrize("what", ["importance", "variance", "contour"])
def test_what_needs_more_results_says_so(sweep, what):
    with pytest.raises(ndsweep.NothingToShow) as caught:
        sweep.plot(what)

    assert str(caught.value).endswith(".")


@pytest.mark.parametrize(
    ("what", "options", "sentence"),
    [
        ("heatmap", {}, "a sweep has the figures curves, sensitivity, .*, got 'heatmap'"),
        ("sensitivity", {}, "figure 'sensitivity' needs field="),
        ("metric", {"trial": 0}, "figure 'metric' needs metric="),
        ("parallel", {"metric": "a"}, "figure 'parallel' takes no options, got metric"),
        ("sensitivity", {"field": "lr"}, "varies alpha_v; .* was asked for 'lr'"),
        ("contour", {"x": "alpha_v", "y": "lr"}, "varies alpha_v; .* was asked for 'lr'"),
        ("layers", {"trial": 9}, "has no trial 9"),
        ("curves", {"x": "years"}, "has no figure 'curves' of x='years'"),
    ],
)
def test_what_there_is_not_is_a_sentence(sweep, what, options, sentence):
    with pytest.raises((ValueError, ndsweep.ServiceRefused), match=sentence):
        sweep.plot(what, **options)


def test_contours_of_fields_without_ranges_are_refused(connected, client, spec):
    words = {"kind": "choice", "values": ["constant", "cosine"]}
    sweep = connected.submit(spec | {"space": spec["space"] | {"lr_schedule": words}})

    with pytest.raises(ValueError, match="contours need two fields that vary over ranges"):
        sweep.plot("contour", x="alpha_v", y="lr_schedule")


def test_a_match_has_its_own_figures(connected, match_spec):
    match = connected.match(match_spec)

    for what in ("curves", "layers"):
        with pytest.raises(ndsweep.NothingToShow):
            match.plot(what)
    with pytest.raises(ValueError, match="a match has the figures curves, layers"):
        match.plot("parallel")
