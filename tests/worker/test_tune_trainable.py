"""The adapter, on a real local Ray: actors are reused, threads set, logs kept."""

import gc
import json
import os

import pytest

from tests.worker.card_sharing.hosted import gone_after, held
from worker.card_sharing.protocol import host_address
from worker.tune_trainable import WORST, _host_key

pytestmark = [
    pytest.mark.stack,
    # Ray leaves files and sockets of its own processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def local_ray(tmp_path_factory):
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
        patch.setenv("RAY_AIR_NEW_OUTPUT", "0")
        # Seconds until an actor whose trial has returned is given up; a busy machine needs some.
        patch.setenv("TUNE_FUNCTION_THREAD_TIMEOUT_S", "120")
        try:
            # Ray refuses socket paths over 107 bytes, so its folder is directly below /tmp.
            ray.init(
                address="local",
                num_cpus=2,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
            )
            yield tmp_path_factory.mktemp("tune")
        finally:
            ray.shutdown()
            gc.collect()  # here, where what Ray has left open may be warned of


@pytest.fixture
def _host_stays(local_ray):
    """The host of this cluster's trials, which would end when none came for a while."""
    import ray

    address = host_address(ray.get(ray.remote(num_cpus=0)(_host_key).remote()))
    with gone_after(address), held(address):
        yield


def run_tasks(tasks, folder, name, at_once):
    from ray import tune

    from worker.tune_trainable import trainable

    tuner = tune.Tuner(
        tune.with_resources(trainable, {"cpu": 1}),
        param_space={"task": tune.grid_search(tasks)},
        tune_config=tune.TuneConfig(
            metric="objective", mode="min", reuse_actors=True, max_concurrent_trials=at_once
        ),
        run_config=tune.RunConfig(name=name, storage_path=str(folder), verbose=0),
    )
    return sorted(tuner.fit(), key=lambda r: r.config["task"]["checkpoint_dir"])


@pytest.fixture(scope="module")
def make_task(local_ray, data_home, tiny_config):
    def task(number, **fields):
        base = tiny_config.model_dump(exclude_unset=True)
        if fields.get("optimizer"):
            base.pop("alpha_s")
        config = type(tiny_config).model_validate(base | fields)
        return {
            "config": config.stored(),
            "device": "cpu",
            "measurement": {"per_layer": True} if number == 1 else None,
            "checkpoint_dir": str(local_ray / "checkpoints" / str(number)),
            "data_home": str(data_home),
            "log_path": str(local_ray / "logs" / f"{number}.log"),
        }

    return task


@pytest.fixture(scope="module")
def results(local_ray, make_task):
    """Four trials one after another in one actor: two good ones, a divergence, a refusal."""
    tasks = [
        make_task(0),
        make_task(1),
        make_task(2, optimizer="sgd", lr=1e12),
        make_task(3, batch_size=97) | {"log_ids": {"sweep": "0123456789ab", "trial": 3}},
        make_task(4),
    ]
    return run_tasks(tasks, local_ray, "adapter", at_once=1), local_ray / "logs"


def test_reports_arrive_whole_with_a_finite_objective(results):
    (first, measured, *_), _ = results

    report = first.metrics["report"]
    assert report["status"] == "complete"
    assert report["step"] == report["num_steps"] == 12
    assert first.metrics["objective"] == report["metrics"]["validation_error"]
    assert len(measured.metrics["report"]["series"]["effective_lr/conv5"]["values"]) == 4


def test_trials_share_an_actor_and_one_thread_each(results):
    (first, second, *_, last), _ = results

    where = [r.metrics["report"]["provenance"] for r in (first, second)]
    assert where[0]["pid"] == where[1]["pid"] != os.getpid()
    assert where[0]["threads"] == 1
    # After a divergence and a failure a trial still gives the numbers of the first.
    a, b = (r.metrics["report"]["metrics"] for r in (first, last))
    assert a.pop("images_per_second") > 0
    assert b.pop("images_per_second") > 0
    assert a == b


def test_a_divergence_is_a_report_and_no_error(results):
    (_, _, diverged, *_), _ = results

    assert diverged.error is None
    assert diverged.metrics["report"]["status"] == "diverged"
    assert diverged.metrics["objective"] == WORST


def test_an_exception_fails_its_trial_alone_and_is_in_its_log(results):
    found, logs = results

    assert [r.error is not None for r in found] == [False, False, False, True, False]
    refusal = "FieldError: batch_size must be at most the 84 training images"
    assert refusal in str(found[3].error).strip().splitlines()[-1]
    text = (logs / "3.log").read_text()
    assert refusal in text
    assert "Traceback" in text


def test_a_log_in_json_stands_beside_the_one_for_people_where_it_is_asked_for(results):
    _, logs = results

    records = [json.loads(line) for line in (logs / "3.jsonl").read_text().splitlines()]

    assert [path.name for path in logs.glob("*.jsonl")] == ["3.jsonl"]
    assert len(records) == 2
    ids = {"part": "worker", "sweep": "0123456789ab", "trial": 3, "attempt": 1}
    assert all(record.items() >= ids.items() for record in records)
    assert "Traceback" in records[1]["message"]


def test_the_last_report_says_what_the_trial_used_of_its_machine(results):
    (first, *_), _ = results

    used = first.metrics["report"]["usage"]["totals"]

    assert used.keys() == {"seconds", "cpu_hours", "memory_megabytes", "sharing"}
    assert 0 < used["cpu_hours"] < used["seconds"] / 3600 * (os.cpu_count() or 1) * 1.5
    assert used["memory_megabytes"] > 50


def test_each_trial_has_a_log_of_its_own(results):
    _, logs = results

    lines = (logs / "0.log").read_text().splitlines()

    assert "attempt 1 starts in process" in lines[0]
    assert [line.split("step ")[1].split()[0] for line in lines[1:]] == ["4/12", "8/12", "12/12"]


@pytest.mark.usefixtures("_host_stays")
def test_trials_that_share_a_card_share_a_process_and_report_as_others_do(
    results, local_ray, make_task
):
    """On a CPU, which a host takes for a card."""
    (first, *_), logs = results
    tasks = [make_task(10), make_task(11, batch_size=97), make_task(12)]

    found = run_tasks(
        [task | {"trials_per_gpu": 2} for task in tasks], local_ray, "hosted", at_once=2
    )

    assert [r.error is not None for r in found] == [False, True, False]
    reports = [found[n].metrics["report"] for n in (0, 2)]
    hosts = {report["provenance"]["pid"] for report in reports}
    assert len(hosts) == 1
    assert all(report["usage"]["totals"]["sharing"] >= 1 for report in reports)
    assert hosts.isdisjoint({first.metrics["report"]["provenance"]["pid"], os.getpid()})
    for report in reports:
        speed = {"images_per_second": 0.0}
        assert report["metrics"] | speed == first.metrics["report"]["metrics"] | speed
    assert "FieldError: batch_size must be at most the 84" in (logs / "11.log").read_text()
    lines = (logs / "12.log").read_text().splitlines()
    assert [line.split("step ")[1].split()[0] for line in lines[1:]] == ["4/12", "8/12", "12/12"]
