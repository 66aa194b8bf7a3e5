import ast

import pytest

from tests.benchmarks.run import HERE, areas


@pytest.mark.parametrize("area", areas())
def test_every_area_has_rows(area: str) -> None:
    # Read, not imported: some need minutes of set-up, or packages of extras.
    module = ast.parse((HERE / f"bench_{area}.py").read_text())
    functions = {node.name: node for node in module.body if isinstance(node, ast.FunctionDef)}
    assert "rows" in functions
    arguments = functions["rows"].args
    assert [a.arg for a in (*arguments.args, *arguments.kwonlyargs)] == ["long"]
