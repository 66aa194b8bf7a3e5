"""What pages ask about runs, trials and scenes is answered, and what is wrong is said."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from eval.trials.table import TrialStore
from robolearn.operations.studio.apart import Apart, BusyError, ComputingError
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.server.app import studio_app
from tests.eval.report_folder import trial
from tests.robolearn.capture.foreign import ring, write_foreign
from tests.robolearn.operations.studio.documents.training.test_run import make_run


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    folder = tmp_path_factory.mktemp("lab")
    for name in ("one", "two"):
        make_run(folder / "runs" / name)
    (folder / "runs" / "one" / "certificate.json").write_text("{}")
    (folder / "runs" / "begun").mkdir()
    (folder / "runs" / "begun" / "practice.jsonl").write_text("")
    (folder / "runs" / "two" / "config.yaml").write_text("policy: [broken")
    for name, kind in (("sim", "sim"), ("robot", "robot")):
        rows = [trial(p, "w", i, 0.4, False, kind=kind, episode=f"{p}{i}" if kind != "sim" else "")
                for p in "ab" for i in range(4)]  # fmt: skip
        with TrialStore(folder / name) as table:
            table.add(rows)
    (folder / "robot" / "deploy.json").write_text("{")
    write_foreign(folder / "desk", ring(3))
    with ThreadPoolExecutor(2) as pool:
        yield TestClient(studio_app(Library([folder]), pool))


@pytest.fixture(scope="module")
def ids(client: TestClient) -> dict[tuple[str, str], str]:
    things = client.get("/api/things").json()["things"]
    return {(t["kind"], t["where"]): t["id"] for t in things}


def test_a_certified_run_is_a_run_and_a_certificate(client, ids) -> None:
    assert ("run", "runs/one") in ids
    assert ("certificate", "runs/one/certificate.json") in ids
    answer = client.get(f"/api/things/{ids['run', 'runs/one']}/run").json()
    assert (answer["state"], answer["certified"]) == ("finished", True)


def test_a_run_that_logged_nothing_yet_has_no_curves(client, ids) -> None:
    answer = client.get(f"/api/things/{ids['run', 'runs/begun']}/curves?since=9&mark=9")
    assert answer.status_code == 200
    assert (answer.json()["columns"], answer.json()["next"]) == ({}, 0)


def test_who_asks_while_others_wait_is_told_to_ask_again(client, ids, monkeypatch) -> None:
    def busy(*_: object) -> bytes:
        raise BusyError("other things are being computed; ask again in a moment")

    monkeypatch.setattr(Apart, "make", busy)
    answer = client.get(f"/api/things/{ids['evaluation', 'sim']}/evaluation")
    assert answer.status_code == 503
    assert "ask again" in answer.json()["error"]


def test_curves_are_read_on_and_runs_told_apart(client, ids) -> None:
    one, two = ids["run", "runs/one"], ids["run", "runs/two"]
    part = client.get(f"/api/things/{one}/curves").json()
    assert part["columns"]["step"]["shape"] == [4]
    again = client.get(f"/api/things/{one}/curves?since={part['next']}&mark={part['mark']}").json()
    assert again["columns"] == {}
    found = client.get(f"/api/runs/differences?of={one},{two}").json()
    assert found["problems"]
    for query in ("", "?of=", "?of=0123456789abcdef", f"?of={ids['capture', 'desk']}"):
        assert client.get(f"/api/runs/differences{query}").status_code in (404, 422)


@pytest.mark.parametrize(
    "query", ["since=x", "since=-1", "since=9e9", "mark=%00", "since=" + "9" * 30]
)
def test_odd_numbers_are_refused(client, ids, query) -> None:
    answer = client.get(f"/api/things/{ids['run', 'runs/one']}/curves?{query}")
    assert answer.status_code == 422
    assert "whole number" in answer.json()["error"]


def test_trials_are_told_beside_the_server(client, ids, monkeypatch) -> None:
    # In this process: that another one does the same is the next test's business.
    monkeypatch.setattr(Apart, "make", _here)
    sim, robot = ids["evaluation", "sim"], ids["deployment", "robot"]
    report = client.get(f"/api/things/{sim}/evaluation").json()
    assert {r["policy"] for r in report["data"]["results"]} == {"a", "b"}
    page = client.get(f"/api/things/{robot}/trials?offset=3&limit=2").json()
    assert [t["row"] for t in page["trials"]] == [4, 5]
    found = client.get(f"/api/things/{robot}/deployment").json()
    assert any("deploy.json" in p["words"] for p in found["problems"])
    assert client.get(f"/api/trust?real={robot}&sim={sim}").json()["pairs"]
    assert client.get(f"/api/comparison?of={sim}").json()["comparison"]["worlds"]
    assert "no recording" in client.get(f"/api/things/{robot}/recordings/1").json()["why"]
    assert client.get(f"/api/things/{ids['run', 'runs/one']}/evaluation").status_code == 404
    certificate = ids["certificate", "runs/one/certificate.json"]
    assert client.get(f"/api/things/{certificate}/certificate").json()["problems"]


def test_pictures_of_a_capture(client, ids) -> None:
    desk = ids["capture", "desk"]
    assert client.get(f"/api/things/{desk}/pictures/1").content[:3] == b"\xff\xd8\xff"
    assert client.get(f"/api/things/{desk}/pictures/7").status_code == 404


def test_a_process_beside_the_server_answers_and_is_replaced() -> None:
    apart = Apart(idle_s=60.0)
    try:
        assert apart.make("json:dumps", "x") == b'"\\"x\\""'
        with pytest.raises(ComputingError, match="No such file"):
            apart.make("os:listdir", "/nowhere")
        with pytest.raises(ComputingError, match="has ended"):
            apart.make("os:_exit", 1)
        assert apart.make("os.path:basename", "a/b") == b'"b"'
    finally:
        apart.close()


def _here(_: Apart, place: str, *args: object) -> bytes:
    from robolearn.operations.studio.encoding import encode
    from robolearn.table import resolve

    found = resolve(place)(*args)
    return found if isinstance(found, bytes) else encode(found)


def test_nothing_outside_is_named_by_a_place(tmp_path: Path) -> None:
    from robolearn.operations.studio import routes

    for route in routes.ROUTES:
        assert route.place.startswith("robolearn.operations.studio."), route.path
