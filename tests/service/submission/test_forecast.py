"""What a spec would cost and show, before it is submitted."""

import pytest

from ndadam.statistics.inference import detectable_difference, seeds_needed
from sweeps.records import NewTrial, SweepState, TrialState
from sweeps.spec.sweep_spec import SweepSpec
from worker.report import Report

VALIDATE = "/api/v1/sweeps/validate"


@pytest.fixture
def train(client, store, spec):
    """Trains ``count`` trials of a spec's shape on a card; each step takes ``seconds``."""

    def run(card="H100", seconds=0.5, count=3, interrupted=False, **changes):
        body = spec | {"resources": {"gpus": 1}} | changes
        sweep = client.post("/api/v1/sweeps", json=body).json()
        known = SweepSpec.model_validate(sweep["spec"])
        claim = store.claim("tester")
        for seed in range(count):
            config = known.config({"alpha_v": 0.05}, seed)
            new = NewTrial(0, seed, {"alpha_v": 0.05}, config.stored(), config.key())
            trial = store.add_trials(claim, [new])[0]
            for last in (False, True) if interrupted else (True,):
                attempt = store.start_attempt(claim, trial.number)
                report = Report(
                    step=20,
                    num_steps=20,
                    status="complete",
                    metrics={"validation_error": 0.1 + 0.01 * seed},
                    provenance={"card": card},
                )
                store.record(claim, trial.number, attempt.id, [report])
                state = TrialState.COMPLETE if last else TrialState.FAILED
                store.finish_attempt(
                    claim,
                    trial.number,
                    attempt.id,
                    state,
                    state.value,
                    trial_state=state if last else TrialState.WAITING,
                    objective=0.1 + 0.01 * seed if last else None,
                )
        store.release(claim, SweepState.COMPLETE, "all done")
        _set_durations(store, sweep["id"], seconds * 20)
        return sweep["id"]

    return run


def _set_durations(store, sweep_id, seconds):
    """Attempts of a test end at once; give them the time that they stand for."""
    import sqlalchemy as sa

    from sweeps.store.database.tables import attempts

    with store._writing() as write:
        write.conn.execute(
            sa.update(attempts)
            .where(attempts.c.sweep_id == sweep_id)
            .values(finished_at=attempts.c.started_at + int(seconds * 1e6))
        )


def forecast(client, spec, **changes):
    answer = client.post(VALIDATE, json=spec | {"resources": {"gpus": 1}} | changes)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_without_earlier_trials_the_cost_is_not_known(client, spec):
    found = forecast(client, spec)

    assert (found["gpu_hours"], found["rates"]) == (None, [])
    assert any("not known" in note for note in found["notes"])
    assert (found["assumed_seed_deviation"], found["seed_deviation_is"]) == (0.0012, "assumed")


def test_the_rate_of_the_same_shape_on_each_card_is_taken(client, spec, train):
    train("H100", 0.5, 3)
    train("A100", 1.5, 2)

    found = forecast(client, spec)

    # 8 trials of 20 steps.
    assert [(rate["card"], rate["trials"]) for rate in found["rates"]] == [("H100", 3), ("A100", 2)]
    assert found["gpu_hours"] == pytest.approx(160 * 0.5 / 3600)
    assert found["rates"][1]["gpu_hours"] == pytest.approx(160 * 1.5 / 3600)


def test_a_share_of_a_card_costs_its_share(client, spec, train):
    train("H100", 0.5, 3, resources={"gpus": 0.5})

    found = forecast(client, spec, resources={"gpus": 0.5})

    assert found["gpu_hours"] == pytest.approx(0.5 * 160 * 0.5 / 3600)


@pytest.mark.parametrize(
    "changes",
    [
        {"resources": {"gpus": 0.5}},
        {"base": {"depth": 16}},
        {"base": {"batch_size": 4}},
        {"base": {"report_every": 2}},
        {"base": {"test_evaluation": "curve"}},
        {"base": {"validation_fraction": 0.5}},
    ],
    ids=["share", "depth", "batch", "reports", "test set", "validation set"],
)
def test_another_shape_says_nothing(client, spec, train, changes):
    train("H100", 0.5)
    changed = changes | ({"base": spec["base"] | changes["base"]} if "base" in changes else {})

    assert forecast(client, spec, **changed)["gpu_hours"] is None


def test_trials_of_another_scale_of_the_softmax_are_of_the_same_shape(client, spec, train):
    train("H100", 0.5, base=spec["base"] | {"gamma_c": 0.5})

    assert forecast(client, spec)["gpu_hours"] == pytest.approx(160 * 0.5 / 3600)


def test_an_interrupted_trial_is_no_measure(client, spec, train):
    train("H100", 0.5, interrupted=True)

    assert forecast(client, spec)["gpu_hours"] is None


def test_without_a_gpu_there_are_trial_hours_only(client, spec, train):
    train("a CPU", 0.5, resources={})

    found = forecast(client, spec, resources={})

    assert found["gpu_hours"] == 0
    assert found["rates"][0]["trial_hours"] == pytest.approx(160 * 0.5 / 3600)


def test_a_measured_deviation_takes_the_place_of_the_assumed_one(client, store, spec, train):
    sweep_id = train()
    store_result(store, sweep_id, {"seed_deviation": 0.01})

    found = forecast(client, spec, replicates=3, comparison={"difference": 0.02})

    assert (found["assumed_seed_deviation"], found["seed_deviation_is"]) == (0.01, "measured")
    assert found["detectable_difference"] == pytest.approx(detectable_difference(0.01, 3))
    assert found["seeds_needed"] == seeds_needed(0.01, 0.02)


def test_pairing_by_seed_is_forecast_with_its_own_formula(client, store, spec, train):
    store_result(store, train(), {"seed_deviation": 0.01})

    declared = {"pairing": True, "difference": 0.02}
    found = forecast(client, spec, replicates=3, comparison=declared)

    # Two arms that have nothing in common on a seed differ by sqrt(2) times what one deviates.
    spread = 0.01 * 2**0.5
    seen = detectable_difference(spread, 3, paired=True)
    assert found["detectable_difference"] == pytest.approx(seen)
    assert seen > detectable_difference(0.01, 3)
    assert found["seeds_needed"] == seeds_needed(spread, 0.02, paired=True)
    assert any("paired by seed" in note for note in found["notes"])


def store_result(store, sweep_id, result):
    import sqlalchemy as sa

    from sweeps.store.database.tables import sweeps

    with store._writing() as write:
        write.conn.execute(sa.update(sweeps).where(sweeps.c.id == sweep_id).values(result=result))


def test_a_difference_that_takes_more_seeds_than_anybody_trains_has_no_number(client, spec):
    assert forecast(client, spec, comparison={"difference": 1e-7})["seeds_needed"] is None


def test_a_length_in_epochs_is_held_to_the_limit_of_steps(client, spec, assert_error):
    base = {name: value for name, value in spec["base"].items() if name != "steps"} | {"epochs": 2}

    # 60 images, a tenth of them held out, in batches of 8, the last one dropped: 6 an epoch.
    base |= {"last_batch": "drop", "validation_fraction": 0.1}
    assert client.post(VALIDATE, json=spec | {"base": base, "limits": {"steps": 12}}).is_success
    answer = client.post(VALIDATE, json=spec | {"base": base, "limits": {"steps": 11}})

    body = assert_error(answer, 422, "ConfigDoesNotFit")
    assert body["fields"][0]["path"] == "limits.steps"
