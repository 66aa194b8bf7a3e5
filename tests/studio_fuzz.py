"""Random requests to a studio: by its tests, and by the hundred thousand in its benchmark."""

from __future__ import annotations

import random

from starlette.testclient import TestClient

from robolearn.web.address import Served

TOKEN = "a-token-of-this-test"
SERVED = Served("127.0.0.1", 8000, secure=False)
OWN = {"Authorization": f"Bearer {TOKEN}"}
SECRET = "nobody-may-read-this"

PIECES = [
    "..", "%2e%2e", "..%2f", "....//", "/etc/passwd", "%00", "secret.txt", "page", "vendor", "api",
    "things", "episodes", "frames", "store.json", "-1", "0", "9" * 30, "~", "\\", "%5c", "é", "%ff",
    "{thing}", " ", "index.html", "annotations", "C:", "//", ";", "1e9", "0x1",
]  # fmt: skip


def fuzz(client: TestClient, count: int, seed: int) -> None:
    """``count`` random requests: none crashes the server, none reads what lies outside."""
    rng, store = (
        random.Random(seed),
        client.get("/api/things", headers=OWN).json()["things"][0]["id"],
    )
    for _ in range(count):
        parts = rng.choices([*PIECES, store], k=rng.randint(1, 6))
        path = "/" + "/".join(parts).lstrip("/")
        if rng.random() < 0.5:
            path = f"/api/things/{store}/" + "/".join(parts[1:])
        if rng.random() < 0.3:
            names = ["filter", "sort", "rows", "since", "token", "a"]
            path += f"?{rng.choice(names)}={rng.choice(PIECES)}"
        method = rng.choice(["GET", "GET", "GET", "POST", "HEAD", "PUT", "OPTIONS"])
        body = rng.choice([b"", b"{", b"[]", b"\xff\xfe", b'{"key": 1}', b'{"episodes": [9e99]}'])
        right = rng.random() < 0.8
        headers = dict(OWN) if right else {"Authorization": f"Bearer {rng.random()}"}
        if rng.random() < 0.1:
            headers["Origin"] = "http://evil.example"
        answer = client.request(method, path, headers=headers, content=body)
        assert answer.status_code < 500, (method, path, body, answer.text)
        assert SECRET not in answer.text
        assert "root:" not in answer.text
        if not right or "Origin" in headers:
            assert answer.status_code >= 400, (method, path)
