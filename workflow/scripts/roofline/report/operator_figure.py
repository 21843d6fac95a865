"""How near an operator comes to its roof, over the bytes that a step moves: results/{picture}.png."""

from matplotlib.figure import Figure

from roofline.records.roofline import Roofline


def draw(roofline: Roofline, operator: str) -> Figure:
    figure = Figure(figsize=(10, 5))
    figure.set_label(operator)
    return figure
