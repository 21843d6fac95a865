"""checkpoint: a seeded checkpoint of a preset, for a run without weights of its own."""

from roofline.checkpoint import Preset, generate
from roofline.reporting import job, say

if __name__ == "__main__":
    name = snakemake.wildcards.preset
    with job(f"checkpoint {name}", snakemake.log[0]):
        p = snakemake.params
        preset = Preset(p.layers, p.heads, p.head_size, p.kv_heads)
        generate(snakemake.output[0], preset, p.seed)
        say(f"checkpoint {name}: generated weights of a layer, {preset.heads} heads of {preset.head_size}")
