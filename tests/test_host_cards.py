"""What was measured between the cards of a host, as users are told."""

from records_factory import told

from roofline.report import screen
from roofline.report.pages import pages


def test_what_was_measured_between_cards_is_on_every_page():
    records = [*cards(800, 800), link("gpu0", "gpu1", 397)]
    shown = pages(told(*records))
    assert "397 GB/s" in shown["ROOFLINE.md"] and "397 GB/s" in shown["report.html"]
    assert "to gpu1 397" in screen.summary(told(*records))
