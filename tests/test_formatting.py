"""Numbers as people read them."""

import pytest

from roofline.core import formatting
from roofline.report.words import format_percent_span, format_span


@pytest.mark.parametrize(
    ("write", "value", "expected"),
    [
        (formatting.number, 0.01234, "0.0123"),
        (formatting.number, 1234.5, "1234"),
        (formatting.percent, 0.0312, "3.1 %"),
        (formatting.percent_digits, 0.0312, "3.1"),
        (formatting.picojoules, 0.85e-12, "0.85"),
        (formatting.issue_rate_text, 1.045e12, "1045 G warp instructions/s"),
        (formatting.duration, 4.56e-3, "4.56 ms"),
        (formatting.duration, 267e-9, "267 ns"),
        (formatting.traffic_text, 1.07e9, "1.07 GB"),
        (formatting.capacity, 3 << 30, "3 GiB"),
        (formatting.level_label, "l1", "L1"),
        (formatting.join_words, ["a", "b", "c"], "a, b and c"),
        (format_span, [12, 172], "12 to 172"),
        (format_span, [], "-"),
        (format_percent_span, [0.031, 0.9], "3.1 to 90 %"),
    ],
)
def test_as_written(write, value, expected):
    assert write(value) == expected
