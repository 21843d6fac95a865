"""Which cells are counted, and what is made of their counts."""

import pytest

from roofline.measure import counted_steps
from roofline.operators import registry
from roofline.operators.row_norm.cuda import WelfordGraph
from roofline.run import counters


@pytest.mark.parametrize("rule", ["decode_attn", "row_norm", "rmsnorm_matmul"])
def test_the_kernels_of_a_graph_are_counted_whatever_is_timed(rule):
    """The cells come from the operator and not from the settings, which may have graphs alone."""
    operator = registry.registered()[rule]
    found = counted_steps.counted(operator, "gpu")
    assert found and all(one.fused and not one.graph for one in found)


def test_where_there_are_graphs_alone_nothing_is_counted_and_ncu_is_not_called(monkeypatch, tmp_path):
    operator = type(registry.registered()["row_norm"])()
    monkeypatch.setattr(operator, "implementations", (WelfordGraph,), raising=False)
    monkeypatch.setattr(registry, "registered", lambda paths=(): {"row_norm": operator})
    monkeypatch.setattr(counters.nsight_compute, "profile", lambda *_: pytest.fail("ncu was called"))
    task = {"device": "gpu0", "operator": "row_norm", "operators": []}
    assert counters.count(tmp_path / "ncu", task, (9, 0), tmp_path / "fp32") == ([], [])
