"""The roofline library: arithmetic, measuring and records. Nothing in here knows Snakemake."""
