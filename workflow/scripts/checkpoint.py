"""checkpoint: a seeded checkpoint of a preset, for a run without weights of its own."""

from roofline.checkpoint import Preset, generate
from roofline.reporting import job, say

if __name__ == "__main__":
    name = snakemake.wildcards.preset
    with job(f"checkpoint {name}", snakemake.log[0]):
        preset = Preset(snakemake.params.layers, snakemake.params.heads, snakemake.params.head_size)
        generate(snakemake.output[0], preset, snakemake.params.seed)
        say(f"checkpoint {name}: generated weights of {preset.layers} layers, {preset.heads} heads")
