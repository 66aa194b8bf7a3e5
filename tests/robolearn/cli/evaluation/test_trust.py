"""``robolearn trust --table``: what people export from spreadsheets, good and bad."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from robolearn.cli.main import main
from robolearn.operations.trust.table import trust_of_table
from tests.browser import chromium

HEAD = "task,policy,real_successes,real_trials,sim_successes,sim_trials\n"
GOOD = HEAD + "".join(f"push,p{i},{3 * i},30,{12 * i + 6},120\n" for i in range(8))


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["trust", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def document(capsys: pytest.CaptureFixture[str], path: Path) -> list[dict]:
    code, out, _ = run(capsys, "--table", str(path), "--json")
    assert code == 0, out
    # NaN and Infinity are no JSON.
    return json.loads(out, parse_constant=pytest.fail)


def test_json_has_an_object_per_task(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    (found,) = document(capsys, path)
    assert (found["task"], found["k"], found["verdict"]) == ("push", 8, "ranks reliably")
    assert found["pearson"] == found["spearman"] == pytest.approx(1.0)
    assert found["mmrv"] == 0.0
    assert found["intervals"]["spearman"]["fisher_z"][0] > 0.5
    assert found["intervals"]["pearson"]["over_trials"][1] <= 1.0
    assert found["floors"]["noise"]["mmrv"]["p95"] > 0
    assert found["floors"]["permutation"]["least_p"] == pytest.approx(1 / 40320)
    assert found["real_trials"] == [30, 30]
    path.write_text(GOOD + "lift,p0,1,10,2,20\n")
    push, lift, both = document(capsys, path)
    assert (push["task"], lift["task"], both["pooled"]) == ("push", "lift", True)
    assert (lift["pearson"], lift["undefined"]["pearson"]) == (
        None,
        "1 policy; three or more are needed",
    )
    assert lift["verdict"] == "not shown"


MORE = "t,a,3,9,2,9\nt,b,4,9,2,9\n"


@pytest.mark.parametrize(
    ("content", "where", "said"),
    [
        (HEAD + "t,p,31,30,5,10\n", ":2", "real_successes is 31 of 30 trials"),
        (HEAD + "t,p,-1,30,5,10\n", ":2", "real_successes is '-1'"),
        (HEAD + "t,p,1.5,30,5,10\n", ":2", "expected a whole number"),
        (HEAD + "t,p,NaN,30,5,10\n", ":2", "real_successes is 'NaN'"),
        (HEAD + "t,p,1,inf,5,10\n", ":2", "real_trials is 'inf'"),
        (HEAD + "t,p,many,30,5,10\n", ":2", "expected a number"),
        (HEAD + "t,p,1_0,30,5,10\n", ":2", "expected a number"),
        (HEAD + "t,p,0,0,5,10\n", ":2", "real_trials is 0"),
        (HEAD + "t,p,3,,5,10\n", ":2", "real_trials is empty"),
        (HEAD + "t,p,,,5,10\n", ":2", "nothing is known of 'p' in real"),
        (HEAD + "t,p,3,10,,\n", ":2", "nothing is known of 'p' in sim"),
        (HEAD + "t,,3,10,5,10\n", ":2", "policy is empty"),
        (HEAD + "t,p,3,10,5,10\nt,p,4,10,5,10\n", ":3", "there twice in task 't' (first in line 2"),
        (HEAD + "t,p,3,10,5,10,7\n", ":2", "7 cells, the first line 6"),
        (HEAD, "", "no line below"),
        ("", "", "is empty"),
        ("\n\n", "", "is empty"),
        ("task,policy,real_successes,sim_score\n", "", "lacks the columns real_trials"),
        ("a,b\n1,2\n", "", "got 'a', 'b'"),
        ("task,policy,real_score,sim_score\nt,p,1.2,.5\n", ":2", "real_score is 1.2"),
        ("task,policy,real_score,sim_score\nt,p,.5,-0.1\n", ":2", "sim_score is -0.1"),
        ("task,policy,real_score,sim_score\nt,p,85,90\n", ":2", "shares, not percent"),
        ("task,task,policy,real_score,sim_score\nt,t,p,1,1\n", "", "columns task twice"),
        (
            HEAD.strip() + ",real_score\nt,p,3,10,5,10,0.9\n",
            ":2",
            "real_score is 0.9, but 3 of 10 are 0.300",
        ),
        (HEAD + 't,p,"1,000","2,000",5,10\n', ":2", "for 1000 and others for 1; write"),
        (HEAD.replace(",", ";") + "t;p;1;2;3;1.000\n", ":2", "sim_trials is '1.000'"),
        (HEAD + "t,p,1,1 000,5,10\n", ":2", "without separators"),
        (HEAD + "t,p,3/10,10,5,10\n", ":2", "a column each"),
        ("task,policy,real_score,sim_score\nt,p,85 %,.9\n", ":2", "between 0 and 1: 0.85"),
        (
            "task,policy,real_score,sim_score\nt,p,0,5,0,6\n",
            ":2",
            "decimal commas, stand in quotes",
        ),
        (
            HEAD.strip() + ',remark\nt,p,1,9,2,9,"odd\nt,q,1,9,2,9,\nt,r,1,9,2,9,\n',
            ":2",
            "never closed",
        ),
        (HEAD + "t,p,85%,100,5,10\n", ":2", "real_successes is '85%'; expected a number"),
        (HEAD + "t,p,#DIV/0!,100,5,10\n", ":2", "real_successes is '#DIV/0!'; expected a number"),
        (HEAD + "t,p,,100,5,10\n", ":2", "real_successes is empty"),
        (HEAD + "t,p,1e400,1e400,5,10\n", ":2", "real_successes is '1e400'"),
        (HEAD + "t,p,1,1e17,5,10\n", ":2", "real_trials is '1e17'"),
        (HEAD + "t,p\x1b[31m,1,9,5,10\n", ":2", "policy has the control character U+001B"),
        (HEAD + "t,\u202ep,1,9,5,10\n", ":2", "policy has the control character U+202E"),
        (HEAD + "\n\nt,p,3,10,5,10\nt,q,3,10,5,nan\n", ":5", "sim_trials is 'nan'"),
        (HEAD + 't,"p\nof two lines",3,10,5,10\nt,q,3,10,5,x\n', ":4", "sim_trials is 'x'"),
        (HEAD + "t,p," + "1" * 200_000 + ",10,5,10\n", ":2", "field larger than field limit"),
        (HEAD.replace("sim_trials", ""), "", "lacks the columns sim_trials"),
        ("PK\x03\x04rest", "", "is a workbook"),
        ("a\0b,c\n", "", "zero bytes"),
        # Two stray quotes: what stands between them was one policy's name.
        (HEAD + 't,"p,1,9,2,9\nt,q",2,9,2,9\n' + MORE, ":2", "closed in line 3 only"),
        (HEAD + MORE + 't,"p,1,9,2,9\n\nt,s,2,9,2,9\nt,q",2,9,2,9\n', ":4", "that 4 lines count"),
        (HEAD + 't,"p,1,9,2,9\r\nt,s,2,9,2,9\r\nt,"q,2,9,2,9\n' + MORE, ":2", "in line 4 only"),
        (
            HEAD.strip() + ',remark\nt,p,1,9,2,9,"good\nt,q,2,9,2,9,bad"\n' + MORE,
            ":2",
            "or double a quote that is part of a name",
        ),
        (HEAD.replace("policy", '"policy') + 't,p"r,1,9,2,9\n' + MORE, ":1", "in line 2 only"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(capsys, tmp_path, content, where, said) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(content)
    code, _, err = run(capsys, "--table", str(path))
    assert code == 2
    assert said in err
    assert f"bad.csv{where}" in err


def columns_turned(text: str) -> str:
    return "".join(",".join(line.split(",")[::-1]) + "\n" for line in text.splitlines())


def test_spreadsheets_of_all_kinds_read_alike(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    expected = document(capsys, path)
    semicolons = GOOD.replace(",", ";").replace("\n", "\r\n")
    for content in (
        b"\xef\xbb\xbf" + GOOD.encode(),
        b"\xef\xbb\xbf" + semicolons.encode(),
        ("sep=;\r\n" + semicolons + ";;;;;\r\n").encode(),
        ("\ufeffSEP=;\r\n" + semicolons).encode(),
        ('"Sep=;";;;;;\r\n' + semicolons).encode(),
        ("SEP=\t\n" + GOOD.replace(",", "\t")).encode(),
        ("sep=|\n" + GOOD.replace(",", "|")).encode(),
        ("\r\n;;;;;\r\n" + semicolons.replace("\r\n", "\r\n\r\n")).encode(),
        semicolons.replace("\r\n", "\r").encode(),
        GOOD.replace(",", "\t").encode("utf-16"),
        GOOD.replace(",", "\t").encode("utf-16-le"),
        GOOD.replace(",", ";").encode("utf-16-be"),
        columns_turned(GOOD).encode(),
        GOOD.replace("task,policy", " Task , POLICY ").replace("real_t", "Real t").encode(),
        GOOD.replace(",30,", ',"30.0",').encode(),
        "\n".join(
            ", ".join(f'"{cell}"' for cell in line.split(",")) for line in GOOD.splitlines()
        ).encode(),
    ):
        path.write_bytes(content)
        assert document(capsys, path) == expected
    path.write_text("task;policy;real_score;sim_score\n"
                    + "".join(f"t;p{i};0,{i};0,{i}5\n" for i in range(8)))  # fmt: skip
    (found,) = document(capsys, path)
    assert found["bias"] == pytest.approx(0.05)
    path.write_bytes("task,policy,real_score,sim_score\nt,Bär,0.5,0.5\n".encode("latin-1"))
    assert "CSV UTF-8" in run(capsys, "--table", str(path))[2]
    assert run(capsys, "--table", str(tmp_path))[0] == 2
    assert "does not exist" in run(capsys, "--table", str(tmp_path / "none.csv"))[2]
    assert run(capsys)[0] == 2


def test_separators_in_quotes_separate_nothing(capsys, tmp_path: Path) -> None:
    """A semicolon table with one column of many commas in its name was taken for one of commas."""
    path = tmp_path / "r.csv"
    path.write_text(GOOD)
    expected = document(capsys, path)[0]
    remark = '"who, when, where, and with which gripper, block, light, table"'
    head, *lines = GOOD.replace(",", ";").splitlines()
    several = ['"well, the light;\nwas odd, and so on"', *["fine"] * (len(lines) - 1)]
    path.write_text(
        "\n".join([f"{head};{remark}", *map(";".join, zip(lines, several, strict=True))]) + "\n"
    )
    found = document(capsys, path)[0]
    assert found["policies"] == expected["policies"]
    assert found["notes"] == [f"columns that are not read: {remark[1:-1]}"]


def test_a_pipe_is_read_and_other_things_are_named(capsys, tmp_path: Path, monkeypatch) -> None:
    path, pipe = tmp_path / "r.csv", tmp_path / "pipe"
    path.write_text(GOOD)
    expected = document(capsys, path)
    os.mkfifo(pipe)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pipe.write_text, GOOD)
        assert document(capsys, pipe) == expected
        written.result()
    for other, said in (("/dev/null", "neither a file nor a pipe"), (tmp_path, "it is a folder")):
        assert said in run(capsys, "--table", str(other))[2]
    monkeypatch.setattr(Path, "read_bytes", lambda _: (_ for _ in ()).throw(OSError(13, "denied")))
    assert "cannot be read: denied" in run(capsys, "--table", str(path))[2]


def test_names_that_differ_in_capitals_count_as_two_and_are_named(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEAD + "push,p,1,30,3,120\nPush,p,2,30,4,120\npush,P,1,30,3,120\n")
    notes = document(capsys, path)[0]["notes"]
    assert "tasks 'push' and 'Push' differ only in capitals and count as 2" in notes
    assert "policies 'p' and 'P' differ only in capitals and count as 2" in notes


def test_names_that_look_alike_are_named(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    # A space of another width is a space; what has no width makes another name.
    path.write_text(HEAD + "t,p a,1,30,3,120\nt,p a\u200b,2,30,4,120\n", encoding="utf-8")
    notes = document(capsys, path)[0]["notes"]
    (said,) = (n for n in notes if "cannot be seen" in n)
    assert (
        said == "policies 'p a' and 'p a\\u200b' differ only in what cannot be seen and count as 2"
    )
    path.write_text(HEAD + "t,p a,1,30,3,120\nt,p\u00a0a,2,30,4,120\n", encoding="utf-8")
    assert "there twice" in run(capsys, "--table", str(path))[2]


def test_more_policies_than_pairs_can_be_compared_of_are_refused(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(HEAD + "".join(f"t,p{i},1,9,2,9\n" for i in range(5_001)))
    code, _, err = run(capsys, "--table", str(path))
    assert code == 2
    assert "task 't' has 5001 policies; expected 5000 or fewer" in err


def test_trials_here_and_rates_there(capsys, tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    lines = [HEAD.strip() + ",real_score,sim_score,remark"]
    lines += [f"counted,política-{i}-政策,{3 * i},30,{1e5 * i:.0f},1000000,,," for i in range(8)]
    lines += [f"rated,π{i},,,,,0.{i},0.{9 - i},odd" for i in range(8)]
    path.write_text("\n".join(lines), encoding="utf-8")
    counted, rated, pooled = document(capsys, path)
    assert counted["policies"][1]["policy"] == "política-1-政策"
    assert counted["sim_trials"] == [1_000_000, 1_000_000]
    assert counted["verdict"] == "ranks reliably"
    assert (rated["verdict"], rated["floors"]["noise"]) == ("not shown", {})
    assert rated["spearman"] == -1.0
    assert any("trial numbers are not known" in n for n in rated["notes"])
    assert not any("trial numbers" in n for n in counted["notes"])
    assert pooled["k"] == 0
    assert "remark" in run(capsys, "--table", str(path))[1]


def test_two_hundred_policies_are_one_table(capsys, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rates = rng.random(200)
    path = tmp_path / "r.csv"
    path.write_text(HEAD + "".join(
        f"t,p{i},{rng.binomial(50, r)},50,{rng.binomial(200, r)},200\n" for i, r in enumerate(rates)
    ))  # fmt: skip
    (found,) = document(capsys, path)
    assert (found["k"], found["verdict"]) == (200, "ranks reliably")


def test_the_pages(capsys, tmp_path: Path) -> None:
    path, page, text = (tmp_path / n for n in ("r.csv", "out/t.html", "out/t.md"))
    path.write_text(GOOD.replace("p0", "<b>$x^2$|p0</b>"))
    code, out, _ = run(capsys, "--table", str(path), "--html", str(page), "--markdown", str(text))
    assert code == 0
    assert "push: ranks reliably" in out
    assert "Spearman" in out
    assert "\\|p0" in text.read_text()
    assert "<b>$x" not in page.read_text()
    with chromium(390, 844) as tab:
        tab.open(page.as_uri())
        tab.wait_for("[...document.images].every(i => i.complete && i.naturalWidth > 0)")
        assert tab.evaluate("document.documentElement.scrollWidth") <= 390
        light = tab.evaluate("getComputedStyle(document.body).backgroundColor")
        tab.size(390, 844, dark=True)
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != light
        assert not tab.errors
    first = page.read_text()
    run(capsys, "--table", str(path), "--html", str(page))
    assert page.read_text() == first
    assert run(capsys, "--table", str(path), "--html", str(tmp_path))[0] == 2


def test_the_page_says_each_tasks_verdict_in_short(tmp_path: Path) -> None:
    """Of more than four tasks the first line counts verdicts; whose they are stands below."""
    page = tmp_path / "t.html"
    assert main(["trust", "--table", "configs/trust/simpler.csv", "--html", str(page)]) == 0
    short = page.read_text().partition('id="reading"')[0]
    assert "pick_coke_can: screens only. Spearman 0.77" in short
    assert "open_drawer: ranks reliably. Spearman 1.00" in short


def test_names_in_another_form_of_letters_are_said(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    lines = ["task,policy,real_score,sim_score"]
    lines += [f"{task},p{i},0.{i},0.{i}" for task in ("push", "\uff50ush") for i in range(3)]
    table.write_text("\n".join(lines), encoding="utf-8")
    (note, *_) = trust_of_table(table).report.notes
    assert note == "tasks 'push' and '\uff50ush' differ only in the form of letters and count as 2"


@pytest.mark.parametrize(
    ("more", "verdict"),
    [("", "screens only"), ("t,known as a rate,,,,,0.97,0.97\n", "screens only")],
)
def test_trial_numbers_that_are_known_count_beside_a_rate(tmp_path, capsys, more, verdict):
    """Nine trials of each are too few for an order, also where one policy more is known as a rate
    alone: what was known of the others had been forgotten then.
    """
    table = tmp_path / "table.csv"
    columns = "task,policy,real_successes,real_trials,sim_successes,sim_trials,real_score,sim_score"
    rows = [f"t,p{k},{k},9,{k},9,,\n" for k in range(10)]
    table.write_text(f"{columns}\n{''.join(rows)}{more}")
    (task,) = document(capsys, table)
    assert task["verdict"] == verdict


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table", "t.csv", "--by", "score"], "--by: of trials"),
        (["--table", "t.csv", "--sim-world", "x"], "--sim-world: of trials"),
        (["--real", "r", "--sim", "s", "--against", "../here/s"], "--against is what --sim is"),
    ],
)
def test_what_would_say_nothing_is_refused(capsys, tmp_path, monkeypatch, words, said):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert said in err
