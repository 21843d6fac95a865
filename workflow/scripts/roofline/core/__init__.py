"""Arithmetic without input or output: rooflines, regimes, predictions, dtypes, statistics, formatting."""
