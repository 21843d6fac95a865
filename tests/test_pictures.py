"""All pictures of a run at once: the same bytes as one by one."""

from pathlib import Path

from roofline.records.base import read
from roofline.records.compute import PeakFlopsRecord
from roofline.records.memory import BandwidthRecord
from roofline.records.roofline import Roofline
from roofline.report import load_figure, operator_figure, roofline_figure, sweep_figure
from roofline.report.figure_style import save
from roofline.run import pictures

EXAMPLES = Path(__file__).parents[1] / "reference/nvidia-h200/examples"


def test_drawn_side_by_side_they_are_the_same(tmp_path):
    roofline = read(Roofline, EXAMPLES / "roofline.json")
    peaks = [read(PeakFlopsRecord, EXAMPLES / "gpu0/peak_flops/fp16.json")]
    bandwidths = [read(BandwidthRecord, EXAMPLES / "gpu0/bandwidth/hbm.json")]
    together, alone = tmp_path / "together", tmp_path / "alone"
    together.mkdir(), alone.mkdir()
    pictures.draw(together, roofline, peaks, bandwidths, {"own": "gelu", "gemm": "gemm"}, dpi=72)
    save(roofline_figure.draw(roofline), [alone / "roofline.png", alone / "roofline.svg"])
    for picture, name in (("own", "gelu"), ("gemm", "gemm")):
        save(operator_figure.draw(roofline, name), [alone / f"{picture}.png"])
    save(sweep_figure.draw(bandwidths), [alone / "sweep.png"])
    save(load_figure.draw(peaks), [alone / "load.png"])
    made = {path.name: path.read_bytes() for path in together.iterdir()}
    assert made == {path.name: path.read_bytes() for path in alone.iterdir()} and len(made) == 6
