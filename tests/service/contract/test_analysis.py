"""The analysis as the API states it: every part has a schema, and the JSON is what it was."""

import copy
import json
import re

from pydantic import TypeAdapter
from rich.console import Console

from service.cli.terminal.printing import print_results
from service.contract.analysis import AnalysisOut
from sweeps.analysis.whole import full_analysis
from sweeps.spec.sweep_spec import SweepSpec

#: Every part that an answer of 0.1.0 has, numbers of both kinds, and what is null.
STORED = {
    "sweep_id": "2706dca60923",
    "analysis": {
        "metric": "validation_error",
        "direction": "minimize",
        "arm_fields": ["optimizer"],
        "arms": [
            {
                "arm": {"optimizer": "ndadam"},
                "points": 3,
                "points_with_mean": 2,
                "points_diverged": 1,
                "point": 0,
                "params": {"optimizer": "ndadam", "betas": [0.9, 0.999], "gamma_c": None},
                "selected": True,
                "objective": {"mean": 0.085, "sd": 0.012, "n": 2, "low": -0.025, "high": 0.195},
                "test_error": {"mean": 0.1, "sd": None, "n": 1, "low": None, "high": None},
                "objective_values": [0.08, 0.09],
                "test_error_values": [0.1],
            },
            {
                "arm": {"optimizer": "sgd"},
                "points": 1,
                "points_with_mean": 0,
                "points_diverged": 1,
                "point": None,
                "params": {},
                "selected": False,
                "objective": None,
                "test_error": None,
                "objective_values": [],
                "test_error_values": [],
            },
        ],
        "comparisons": [
            {
                "a": {"optimizer": "ndadam"},
                "b": {"optimizer": "sgd"},
                "metric": "test_error",
                "difference": -0.01,
                "low": -0.02,
                "high": 1e-05,
                "p_value": 0.0501,
                "p_holm": 0.1002,
                "verdict": "not shown",
            }
        ],
        "seed_deviation": 0.012,
        "detectable_difference": None,
        "sensitivity": [
            {
                "field": "batch_size",
                "log": True,
                "bins": [
                    {
                        "value": None,
                        "low": 16,
                        "high": 40.3,
                        "n": 2,
                        "mean": 0.1,
                        "mean_low": 0.0,
                        "mean_high": 0.2,
                        "diverged": 0,
                    },
                    {
                        "value": "cosine",
                        "low": None,
                        "high": None,
                        "n": 0,
                        "mean": None,
                        "mean_low": None,
                        "mean_high": None,
                        "diverged": 1,
                    },
                ],
            }
        ],
        "notes": ["One seed per point: no intervals. Set replicates to 2 or more."],
        "confirmed": [
            {
                "sweep": "51c07d2f9a10",
                "state": "running",
                "point": 0,
                "params": {"optimizer": "ndadam"},
                "metric": "validation_error",
                "objective": {"mean": 0.09, "sd": 0.01, "n": 2, "low": 0.0, "high": 0.18},
                "test_error": None,
                "seeds": [5, 6],
                "diverged": 0,
            }
        ],
        "confirms": {"sweep": "2706dca60923", "points": [4, 0]},
        "importance": [
            {
                "branch": {"optimizer": "ndadam"},
                "points": 40,
                "method": "ped-anova",
                "quantile": 0.1,
                "fields": {"alpha_v": 0.8, "alpha_s": 0.2},
            }
        ],
        "rungs": [
            {"step": 25, "points": 4, "spearman": 1.0},
            {"step": 50, "points": 2, "spearman": None},
        ],
        # Answers of before have none: with one objective there is no front.
        "front": None,
    },
}


def test_an_answer_of_before_is_written_byte_by_byte_as_it_was() -> None:
    compact = json.dumps(STORED, separators=(",", ":"))

    as_typed = AnalysisOut.model_validate(STORED).model_dump_json()

    assert as_typed == TypeAdapter(dict).dump_json(STORED).decode()
    assert json.loads(as_typed) == json.loads(compact)


def test_the_route_answers_with_what_was_computed(client, store, trained):
    confirming = client.post(f"/api/v1/sweeps/{trained.id}/confirm", json={"replicates": 2})
    assert SweepSpec.model_validate(confirming.json()["spec"]).confirms is not None

    for sweep_id in (trained.id, confirming.json()["id"]):
        answer = client.get(f"/api/v1/sweeps/{sweep_id}/analysis")

        found = {"sweep_id": sweep_id, "analysis": full_analysis(store, sweep_id)}
        assert answer.content == TypeAdapter(dict).dump_json(found)


def test_the_schema_states_every_part(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    part = schemas["AnalysisOut"]["properties"]["analysis"]
    assert part["$ref"] == "#/components/schemas/FindingsOut"
    assert set(schemas["FindingsOut"]["properties"]) == set(STORED["analysis"])
    for name, example in (
        ("ArmOut", STORED["analysis"]["arms"][0]),
        ("ArmDifferenceOut", STORED["analysis"]["comparisons"][0]),
        ("SensitivityBinOut", STORED["analysis"]["sensitivity"][0]["bins"][0]),
        ("ConfirmedOut", STORED["analysis"]["confirmed"][0]),
        ("ImportanceOut", STORED["analysis"]["importance"][0]),
        ("RungOut", STORED["analysis"]["rungs"][0]),
    ):
        assert schemas[name]["required"] == list(example)


def test_the_terminal_shows_every_part():
    console = Console(width=200)
    with console.capture() as captured:
        print_results(console, AnalysisOut.model_validate(STORED).analysis)

    lines = [line.strip() for line in captured.get().splitlines()]
    assert lines[0].split("  ")[0] == "arm"
    assert "validation error % (95 %)" in lines[0]
    assert "8.50 (-2.50 to 19.50)" in lines[1]
    assert lines[1].endswith("selected of 3 (1 diverged)")
    assert lines[2].split() == ["sgd", "–", "–", "0", "1", "(1", "diverged)"]
    assert lines[3:] == [
        "ndadam: betas 0.9 0.999, gamma_c none",
        "sgd: nothing was chosen",
        "ndadam against sgd: no difference shown in test error",
        "point 0 confirmed by sweep 51c07d2f9a10: validation error % 9.00 (0.00 to 18.00), "
        "test error % – over 2 fresh seeds",
        "importance (ndadam): alpha_v 80 %, alpha_s 20 %",
        "rung at step 25: ranks agree with the end by 1.00 (Spearman, 4 points)",
        "One seed per point: no intervals. Set replicates to 2 or more.",
    ]


def test_the_terminal_shows_declared_units_and_no_test_error_that_is_not_reported():
    stored = copy.deepcopy(STORED)
    analysis = stored["analysis"]
    for arm in [*analysis["arms"], *analysis["confirmed"]]:
        arm["test_error"] = None
    analysis["metric"] = analysis["confirmed"][0]["metric"] = "score"
    found = AnalysisOut.model_validate(stored).analysis
    console = Console(width=200)
    with console.capture() as captured:
        print_results(console, found, {"score": {"direction": "maximize", "unit": "[red]points/s"}})

    lines = [line.strip() for line in captured.get().splitlines()]
    assert re.split("  +", lines[0]) == ["arm", "score [red]points/s (95 %)", "seeds", "point"]
    assert "0.085 ± 0.11" in lines[1]
    assert "score [red]points/s 0.09 ± 0.09 over 2 fresh seeds" in captured.get()
    assert "test error %" not in captured.get()
