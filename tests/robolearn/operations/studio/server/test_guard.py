"""Nobody without the token is answered, no other page is, and nothing outside is served."""

import json
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.studio.library import Library
from robolearn.operations.studio.server.app import studio_app
from robolearn.operations.studio.server.guard import MOST_TOLD, Guard
from tests.episodes import small_episode
from tests.studio_fuzz import OWN, SECRET, SERVED, TOKEN, fuzz


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Generator[TestClient]:
    folder = tmp_path_factory.mktemp("studio")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "lab" / "store.json.txt").parent.mkdir()
    with EpisodeStore.create(folder / "lab" / "store").writer() as writer:
        for seed in range(3):
            writer.append(small_episode(seed, image=seed == 0))
    with ThreadPoolExecutor(2) as pool:
        app = Guard(studio_app(Library([folder / "lab"]), pool), SERVED, TOKEN)
        # Redirects are looked at, not followed.
        yield TestClient(app, base_url="http://127.0.0.1:8000", follow_redirects=False)


def _id(client: TestClient) -> str:
    return client.get("/api/things", headers=OWN).json()["things"][0]["id"]


def test_the_first_address_sets_a_cookie_that_scripts_cannot_read(client: TestClient):
    answer = client.get("/", params={"token": TOKEN})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    name, _, value = cookie.partition(";")[0].partition("=")
    page = client.get("/", headers={"Cookie": f"{name}={value}"})
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    client.cookies.clear()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"robolearn_studio_8000={TOKEN[:-1]}"},
        {"Cookie": f"robolearn_studio_9000={TOKEN}"},
        {"Cookie": "=;;;="},
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/things", "/page/main.js", "/nothing"])
def test_without_the_token_nothing_is_answered(
    client: TestClient, headers: dict[str, str], path: str
):
    answer = client.get(path, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers


def test_a_wrong_token_in_the_address_opens_nothing(client: TestClient):
    answer = client.get("/", params={"token": f"{TOKEN}x"})
    assert answer.status_code == 403


def test_another_name_for_this_address_is_refused(client: TestClient):
    answer = client.get("/api/things", headers=OWN | {"Host": "evil.example"})
    assert answer.status_code == 421


@pytest.mark.parametrize(
    "more",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9000"},
        {"Origin": "https://127.0.0.1:8000"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    ],
)
def test_other_pages_are_refused_also_with_the_cookie(client: TestClient, more: dict[str, str]):
    cookie = {"Cookie": f"robolearn_studio_8000={TOKEN}"}
    assert client.get("/api/things", headers=cookie).status_code == 200
    assert client.get("/api/things", headers=cookie | more).status_code == 403


def test_foreign_pages_cannot_fill_the_log(client: TestClient, caplog: pytest.LogCaptureFixture):
    app = Guard(client.app, SERVED, TOKEN)
    here = TestClient(app, base_url="http://127.0.0.1:8000")
    for k in range(60):
        told = {"Origin": f"http://evil{k % 30}.example\x1b[2J"}
        assert here.get("/api/things", headers=OWN | told).status_code == 403
    lines = [r.getMessage() for r in caplog.records]
    assert len(lines) == MOST_TOLD + 1
    assert "no more" in lines[-1]
    assert not any("\x1b" in line for line in lines)


def test_a_link_from_another_page_opens_the_page(client: TestClient):
    cookie = {"Cookie": f"robolearn_studio_8000={TOKEN}"}
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=cookie | followed).status_code == 200


def test_documents_and_errors_are_json(client: TestClient):
    found = client.get("/api/things", headers=OWN).json()
    assert found["counts"]["store"] == 1
    table = client.get(f"/api/things/{_id(client)}/episodes", headers=OWN).json()
    assert table["total"] == 3
    nothing = client.get("/api/things/0123456789abcdef", headers=OWN)
    assert nothing.status_code == 404
    assert "0123456789abcdef" in nothing.json()["error"]
    assert client.post("/api/things", headers=OWN).status_code == 405
    assert client.delete("/api/things", headers=OWN).status_code == 405


def test_random_requests(client: TestClient):
    fuzz(client, 300, seed=0)


def test_what_is_posted_is_bounded(client: TestClient):
    answer = client.get("/api/things?a=" + "x" * 20_000, headers=OWN)
    assert answer.status_code == 414


def test_a_document_names_no_file_of_the_library(client: TestClient):
    # An id is the only thing that a client can say, and it is a hash.
    ids = [t["id"] for t in client.get("/api/things", headers=OWN).json()["things"]]
    assert all(len(i) == 16 and int(i, 16) >= 0 for i in ids)
    assert json.dumps(ids)


def test_a_store_that_vanishes_is_told_and_the_rest_works(client: TestClient, tmp_path: Path):
    EpisodeStore.create(tmp_path / "one")
    EpisodeStore.create(tmp_path / "two")
    library = Library([tmp_path])
    with ThreadPoolExecutor(1) as pool:
        app = Guard(studio_app(library, pool), SERVED, TOKEN)
        here = TestClient(app, base_url="http://127.0.0.1:8000")
        things = here.get("/api/things", headers=OWN).json()["things"]
        (tmp_path / "one").rename(tmp_path / ".gone")
        first = here.get(f"/api/things/{things[0]['id']}/episodes", headers=OWN)
        assert first.status_code == 422
        assert "does not exist" in first.json()["error"]
        assert here.get(f"/api/things/{things[1]['id']}/episodes", headers=OWN).json()["total"] == 0
