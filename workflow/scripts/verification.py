"""verification: every prediction beside its measured counterpart, and what explains the gap."""

from pathlib import Path

from roofline.provenance import file_sha256, read_results
from roofline.records import Roofline, read, write, write_text
from roofline.reporting import job, say
from roofline.verification import verify
from roofline.verification_text import markdown

if __name__ == "__main__":
    with job("verification", snakemake.log[0]):
        inputs = snakemake.input
        paths = [*inputs.devices, *inputs.predictions, *inputs.peaks, *inputs.bandwidths, *inputs.attention]
        root = Path()
        found = verify(
            read(Roofline, inputs.roofline),
            read_results(root, paths),
            {path: file_sha256(root / path) for path in paths},
        )
        write(found, snakemake.output.numbers)
        write_text(markdown(found), snakemake.output.words)
        judged = [entry.sealed_named_rightly for entry in found.entries if entry.sealed_named_rightly is not None]
        say(f"verification: {len(found.entries)} predictions, {sum(judged)} of {len(judged)} regimes named rightly")
