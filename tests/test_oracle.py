"""The figures of real runs are those that other code finds in their samples."""

import oracle


def test_it_agrees_with_the_committed_run(newest):
    assert oracle.check(newest) == []


def test_it_agrees_with_a_run_on_the_cpu(finished_run):
    assert oracle.check(finished_run.results) == []
