"""``/trials`` with curves and logs, and the export of a whole sweep."""

import csv
import io
import json
import threading

import pyarrow.parquet
import pytest

from service.api.trial_files import GrowingLog


@pytest.fixture
def path(trained):
    return f"/api/v1/sweeps/{trained.id}"


def test_trials_are_listed_by_number_with_their_params_and_last_metrics(client, path):
    items = client.get(f"{path}/trials").json()["items"]

    assert [item["number"] for item in items] == [0, 1, 2, 3]
    assert items[0]["params"] == {"alpha_v": 0.05}
    assert items[0]["metrics"]["validation_error"] == pytest.approx(0.1)
    assert [item["state"] for item in items] == ["complete"] * 3 + ["diverged"]
    assert items[0]["attempts"] == []


def test_trials_are_filtered_sorted_and_paged(client, path):
    def numbers(**query):
        page = client.get(f"{path}/trials", params=query).json()
        return [item["number"] for item in page["items"]], page["next"]

    assert numbers(state="diverged")[0] == [3]
    assert numbers(point=0)[0] == [0, 1]
    assert numbers(sort="-number")[0] == [3, 2, 1, 0]
    assert numbers(sort="-objective")[0][:3] == [2, 1, 0]
    first, cursor = numbers(limit=3)
    assert first + numbers(limit=3, cursor=cursor)[0] == [0, 1, 2, 3]


def test_one_trial_comes_with_its_attempts_and_their_provenance(client, path):
    trial = client.get(f"{path}/trials/0").json()

    assert len(trial["attempts"]) == 1
    assert trial["attempts"][0]["provenance"]["host"] == "here"
    assert (trial["step"], trial["num_steps"]) == (20, 20)


@pytest.mark.parametrize("number", ["4", "2147483647"])
def test_a_trial_that_is_not_there_is_not_found(client, path, number, assert_error):
    for tail in ("", "/metrics", "/log", "/log/file", "/log/events"):
        assert_error(client.get(f"{path}/trials/{number}{tail}"), 404, "TrialNotFound")


@pytest.mark.parametrize("number", ["-1", "x", "2147483648", "9" * 50])
def test_a_number_that_cannot_be_one_is_refused(client, path, number, assert_error):
    assert_error(client.get(f"{path}/trials/{number}"), 422, "ValidationError")


def test_metrics_come_as_curves_and_only_the_named_ones(client, path):
    everything = client.get(f"{path}/trials/0/metrics").json()["metrics"]
    one = client.get(f"{path}/trials/0/metrics", params={"name": "train_loss"}).json()["metrics"]

    assert set(everything) == {"validation_error", "train_loss", "effective_lr/conv1"}
    assert one == {"train_loss": [[10, 1.0], [20, pytest.approx(0.2)]]}


def test_the_log_is_its_last_lines_and_empty_where_there_is_none(client, path, trained, home):
    log = home / "logs" / trained.id / "0.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {k}\n" for k in range(1000)))

    assert client.get(f"{path}/trials/0/log", params={"lines": 2}).text == "line 998\nline 999\n"
    assert client.get(f"{path}/trials/1/log").text == ""


def test_a_log_that_is_not_text_is_shown_all_the_same(client, path, trained, home):
    log = home / "logs" / trained.id / "0.log"
    log.parent.mkdir(parents=True)
    log.write_bytes(b"\xff\xfe\x00 progress\r 100%\n")

    assert client.get(f"{path}/trials/0/log").status_code == 200


def log_of(home, sweep, number=0):
    path = home / "logs" / sweep.id / f"{number}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_the_whole_log_and_any_part_of_it_can_be_had(client, path, trained, home):
    text = "".join(f"line {k} é\n" for k in range(20_000))
    log_of(home, trained).write_text(text)

    whole = client.get(f"{path}/trials/0/log/file")
    part = client.get(f"{path}/trials/0/log/file", headers={"Range": "bytes=7-10"})

    assert whole.text == text
    assert whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert (part.status_code, part.content) == (206, text.encode()[7:11])
    assert client.get(f"{path}/trials/1/log/file").text == ""


def log_events(client, path, **query):
    blocks = client.get(f"{path}/trials/0/log/events", **query).text.strip().split("\n\n")
    fields = [dict(line.split(": ", 1) for line in block.splitlines()) for block in blocks]
    return [(f["event"], json.loads(f["data"]), f.get("id")) for f in fields]


def test_a_log_is_followed_from_any_byte_in_bounded_pieces(client, path, trained, home):
    text = "".join(f"line {k} é <b>\n" for k in range(20_000))
    log_of(home, trained).write_text(text)

    events = log_events(client, path)
    rest = log_events(client, path, headers={"Last-Event-ID": events[1][2]}, params={"after": 3})

    assert "".join(data["text"] for name, data, _ in events if name == "log") == text
    assert max(len(data["text"].encode()) for name, data, _ in events if name == "log") < 70_000
    assert events[-1][:2] == ("end", {"state": "complete"})
    assert rest == events[2:]


def test_lines_that_are_written_while_one_looks_arrive(client, path, trained, home, monkeypatch):
    monkeypatch.setattr("service.api.routes.trials.LOG_SECONDS", 0.05)
    log = log_of(home, trained)
    threading.Timer(0.08, lambda: log.write_text("late\n")).start()

    assert log_events(client, path)[0] == ("log", {"text": "late\n"}, "5")


def test_a_log_that_begins_again_is_read_from_its_start(tmp_path):
    log = tmp_path / "0.log"
    log.write_text("a long first line\n")
    growing = GrowingLog(log, 0)

    first = growing.read()
    log.write_text("new\n")

    assert (first, growing.read(), growing.read()) == ("a long first line\n", "new\n", "")


def test_csv_has_one_row_for_each_trial_and_a_column_for_each_field(client, path, trained):
    response = client.get(f"{path}/export")

    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert response.headers["content-type"] == "text/csv; charset=utf-8"
    assert f"sweep-{trained.id}.csv" in response.headers["content-disposition"]
    assert [row["trial"] for row in rows] == ["0", "1", "2", "3"]
    assert [row["config.alpha_v"] for row in rows[::2]] == ["0.05", "0.06"]
    assert float(rows[1]["metrics.validation_error"]) == pytest.approx(0.11)
    assert (rows[3]["state"], rows[3]["objective"]) == ("diverged", "")


def test_json_has_the_spec_and_every_trial(client, path, spec):
    body = json.loads(
        client.get(f"{path}/export", params={"format": "json"}).text,
        parse_constant=pytest.fail,  # no bare NaN
    )

    assert body["sweep"]["spec"] == spec
    assert [trial["trial"] for trial in body["trials"]] == [0, 1, 2, 3]


def test_parquet_has_typed_columns(client, path):
    content = client.get(f"{path}/export", params={"format": "parquet"}).content

    table = pyarrow.parquet.read_table(io.BytesIO(content))
    assert table.num_rows == 4
    assert table.column("objective").to_pylist() == [
        pytest.approx(v) if v else None for v in (0.1, 0.11, 0.2, None)
    ]


@pytest.mark.parametrize("format", ["csv", "json", "parquet"])
def test_a_sweep_without_trials_exports_an_empty_table(client, spec, format):
    sweep_id = client.post("/api/v1/sweeps", json=spec).json()["id"]

    response = client.get(f"/api/v1/sweeps/{sweep_id}/export", params={"format": format})

    assert response.status_code == 200
    if format == "json":
        assert response.json()["trials"] == []


def test_another_format_is_refused(client, path, assert_error):
    assert_error(client.get(f"{path}/export", params={"format": "xls"}), 422, "ValidationError")


def test_trials_are_sorted_by_a_sampled_field(client, trained, assert_error):
    path = f"/api/v1/sweeps/{trained.id}/trials"

    items = client.get(path, params={"sort": "-params.alpha_v", "limit": 3}).json()["items"]
    unknown = client.get(path, params={"sort": "params.nope"})

    assert [item["params"]["alpha_v"] for item in items] == [0.06, 0.06, 0.05]
    assert "params.alpha_v" in assert_error(unknown, 422, "InvalidSort")["detail"]
