"""A policy on a server: the contract, the token, refusals, and messages that are nonsense."""

import functools
import os
import random
import signal
import threading

import numpy as np
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from robolearn.agents.chunk import ChunkAgent
from robolearn.cli import serve
from robolearn.errors import ConfigError, DataError, InferenceError, RemoteError
from robolearn.inference import server as server_module
from robolearn.inference.client import RemoteInference
from robolearn.inference.codec import Message, decode, encode, encode_output, encode_request
from robolearn.inference.protocol import read_request
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.runtime import run_episode
from tests.contracts import InferenceContract
from tests.mocks import CONDITION, POLICY_SPEC, FaultyPolicy, PointEnv, WalkPolicy, request_at
from tests.waiting import paced, pass_time, wait_until

TOKEN = "a-token-for-tests-only"


@functools.cache
def shared_server():
    return PolicyServer(WalkPolicy(), ServeConfig(token=TOKEN), "walk", "hash-of-walk")


@pytest.fixture(scope="module", autouse=True)
def _end():
    yield
    for inference in _made:
        inference.close()
    shared_server().close()


_made = []


def client(**options):
    made = RemoteInference(shared_server().url, TOKEN, **options)
    _made.append(made)
    return made


class TestRemote(InferenceContract):
    def make(self):
        for old in _made:
            old.close()
        return client()


def poll_on(inference, *, ask=False):
    for _ in paced(200, 2000):
        if ask:
            inference.submit(0, request_at(1))
        inference.poll(0, 0)


def answered(inference):
    inference.submit(0, request_at(1))
    wait_until(lambda: inference.poll(0, 0), what="an answer")


def send_nonsense(link):
    for _ in range(40):
        link.send(b"nonsense")
        assert decode(link.recv()).meta["kind"] == "error"


def serving(policy):
    return PolicyServer(policy, ServeConfig(token=TOKEN), "x", "y")


def test_the_client_knows_what_is_served():
    inference = client()
    assert (inference.name, inference.policy_hash) == ("walk", "hash-of-walk")
    assert inference.spec == POLICY_SPEC
    inference.close()


def test_an_episode_runs_over_the_network():
    env, inference = PointEnv(), client()
    env.advance = lambda: (pass_time(0.01, "a world in real time"), PointEnv.advance(env))
    agent = ChunkAgent(inference.spec, env.spec, name="walk", lead_ticks=1, realtime=True)
    result = run_episode(env, agent, inference, [], CONDITION, max_steps=20)
    inference.close()
    assert result.steps == 20
    assert len(result.inference_ns) >= 2
    assert {c.source for c in env.commands} >= {"policy"}


@pytest.mark.parametrize("token", ["", "wrong-but-long-enough", TOKEN + "x"])
def test_without_the_token_nothing_is_served(token):
    with pytest.raises(InferenceError, match="token is wrong"):
        RemoteInference(shared_server().url, token)


def test_bad_addresses_are_explained():
    with pytest.raises(InferenceError, match="robolearn serve"):
        RemoteInference("ws://127.0.0.1:9", TOKEN, timeout_s=1.0)
    with pytest.raises(ConfigError, match="ws://HOST:PORT"):
        RemoteInference("nonsense", TOKEN)


def test_others_are_let_in_only_with_a_token_of_ones_own():
    with pytest.raises(ConfigError, match="token"):
        ServeConfig(host="0.0.0.0")
    with pytest.raises(ConfigError, match="16 characters"):
        ServeConfig(token="short")
    assert len(serving_token()) >= 32


def serving_token():
    server = PolicyServer(WalkPolicy(), ServeConfig(), "x", "y")
    server.close()
    return server.token


@pytest.mark.parametrize(
    ("fault", "text"), [("nan", "non-finite"), ("shape", "actions"), ("hang", "within 0.3 s")]
)
def test_a_policy_that_fails_is_a_typed_error_that_stays(fault, text):
    policy = FaultyPolicy(fault)
    if fault == "hang":
        policy = WalkPolicy()

        def hangs(request, n=1):
            pass_time(1.0, "longer than the client waits")
            return WalkPolicy().sample(request)

        policy.sample = hangs
    server = serving(policy)
    inference = RemoteInference(server.url, TOKEN, timeout_s=0.3)
    inference.submit(0, request_at(1))
    # The type survives the thread: whoever must not quote a server knows by it.
    with pytest.raises(InferenceError, match=text) as failed:
        poll_on(inference)
    assert isinstance(failed.value, RemoteError) == (text != "within 0.3 s")
    with pytest.raises(InferenceError):
        inference.submit(0, request_at(2))
    inference.close()
    server.close()


def test_an_answer_for_another_time_is_a_typed_error_not_a_wait(monkeypatch):
    # A server that does not check its own answers.
    monkeypatch.setattr(
        "robolearn.inference.server.sample_checked", lambda policy, request: policy.sample(request)
    )
    server = serving(FaultyPolicy("time"))
    inference = RemoteInference(server.url, TOKEN)
    inference.submit(0, request_at(1))
    with pytest.raises(InferenceError, match="asked for"):
        poll_on(inference)
    inference.close()
    server.close()


def test_who_is_idle_makes_room_when_all_places_are_taken():
    config = ServeConfig(token=TOKEN, clients=2, idle_s=0.05)
    server = PolicyServer(WalkPolicy(), config, "walk", "hash")
    idle = [RemoteInference(server.url, TOKEN) for _ in range(2)]
    pass_time(0.06, "both are idle for longer than idle_s")
    answered(idle[1])
    fresh = RemoteInference(server.url, TOKEN)
    answered(fresh)
    # Who was idle longest has gone; who asked meanwhile has not.
    with pytest.raises(InferenceError, match="broke"):
        poll_on(idle[0], ask=True)
    answered(idle[1])
    for inference in (*idle, fresh):
        inference.close()
    server.close()


def test_a_server_whose_clients_all_ask_refuses_one_more():
    server = PolicyServer(WalkPolicy(), ServeConfig(token=TOKEN, clients=1), "walk", "hash")
    first = RemoteInference(server.url, TOKEN)
    with pytest.raises(InferenceError, match="no policy server"):
        RemoteInference(server.url, TOKEN)
    first.close()
    server.close()


def test_a_server_that_ends_is_a_typed_error():
    server = serving(WalkPolicy())
    inference = RemoteInference(server.url, TOKEN)
    server.close()
    with pytest.raises(InferenceError, match=r"broke|did not"):
        poll_on(inference, ask=True)
    inference.close()


def test_a_client_that_only_sends_nonsense_is_let_go():
    server = serving(WalkPolicy())
    headers = {"Authorization": f"Bearer {TOKEN}"}
    with connect(server.url, additional_headers=headers, proxy=None) as link:
        assert decode(link.recv()).meta["kind"] == "spec"
        with pytest.raises(ConnectionClosed):
            send_nonsense(link)
    assert server.refused == 20
    server.close()


def test_too_many_clients_are_told():
    server = PolicyServer(WalkPolicy(), ServeConfig(token=TOKEN, clients=1), "x", "y")
    first = RemoteInference(server.url, TOKEN)
    with pytest.raises(InferenceError, match="no policy server"):
        RemoteInference(server.url, TOKEN)
    first.close()
    server.close()


def test_the_command_serves_until_it_is_told_to_end(monkeypatch, capsys):
    monkeypatch.setattr("robolearn.operations.builders.policy_builder", lambda *_, **__: WalkPolicy)
    monkeypatch.setattr("robolearn.training.run_directory.policy_hash", lambda _: "hash")
    monkeypatch.setenv("ROBOLEARN_TOKEN", TOKEN)
    seen = []

    def talk(server):
        inference = RemoteInference(server.url, TOKEN)
        seen.append(inference.name)
        inference.close()
        os.kill(os.getpid(), signal.SIGTERM)

    servers = []
    kind = server_module.PolicyServer

    def keep(*arguments):
        servers.append(kind(*arguments))
        threading.Timer(0.5, talk, servers).start()
        return servers[0]

    monkeypatch.setattr(server_module, "PolicyServer", keep)
    assert serve.main(["runs/walk", "--port", "0"]) == 0
    assert seen == ["walk"]
    out = capsys.readouterr().out
    assert "serving runs/walk at ws://127.0.0.1:" in out
    assert TOKEN not in out


GOOD = encode_request(request_at(5), {"number": 3})


def mutated(rng):
    """A message that is a request no more, or only just."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    if kind == 1:
        return GOOD[: rng.randrange(len(GOOD))]
    data = bytearray(GOOD)
    if kind == 2:
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        return bytes(data)
    if kind == 3:
        return bytes(data) + rng.randbytes(rng.randrange(1, 50))
    odd = [None, -1, 2**70, "x", [], {}, [[1]], 1.5, True, "\x00" * 50]
    meta = {"kind": rng.choice(["request", "output", 3]), "number": rng.choice(odd)}
    meta["task"] = rng.choice(odd)
    names = ["t_ns", "seed", "observation:tool/xy_table", "prefix", "prefix_weight", "goal:", ""]
    shapes = [(), (0,), (1,), (1, 2, 2), (1, 16, 2), (0, 5), (1, 1, 1, 1), (300,)]
    arrays = {}
    for name in rng.sample(names, rng.randrange(len(names))):
        dtype = rng.choice([np.int64, np.float64, np.float32, np.bool_, np.uint8])
        value = rng.choice([0, 1, -1, np.nan, np.inf]) if dtype is np.float64 else 1
        arrays[name] = np.full(rng.choice(shapes), value, dtype=dtype)
    return encode(Message(meta, arrays))


def fuzz(count, seed):
    rng, refused = random.Random(seed), 0
    for _ in range(count):
        data = mutated(rng)
        try:
            request, _ = read_request(data, POLICY_SPEC)
        except DataError:
            refused += 1
            continue
        # What is let through can be answered.
        encode_output(WalkPolicy().sample(request))
    return refused


def test_nonsense_is_refused_by_a_typed_error():
    assert fuzz(2000, 0) > 1500


@pytest.mark.slow
def test_a_hundred_thousand_messages():
    assert fuzz(100_000, 1) > 75_000


def test_shapes_that_numpy_cannot_hold_are_refused():
    text = b'{"meta": {"kind": "request"}, "arrays": [["a", "<f8", [0, 4611686018427387904, 4]]]}'
    with pytest.raises(DataError, match="cannot have shape"):
        decode(b"RLM1" + len(text).to_bytes(4, "little") + text + b"\0" * (-(8 + len(text)) % 8))
