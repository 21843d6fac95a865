"""all_reduce_prediction: all-reduces between two GPUs as the record of their link predicts them, sealed."""

from roofline.measure.all_reduce_sealing import seal_all_reduces
from roofline.records.bandwidth_record import BandwidthRecord
from roofline.records.base import read, write
from roofline.records.files import below_results, file_sha256
from roofline.run.jobs import job, now, say_sealed

if __name__ == "__main__":
    path, name = snakemake.input.link, f"{snakemake.rule} {snakemake.wildcards.device}"
    with job(name, snakemake):
        link = read(BandwidthRecord, path)
        sealed = seal_all_reduces(link, below_results(path), file_sha256(path), "gpu", now())
        write(sealed, snakemake.output[0])
        say_sealed(f"{name}: {len(sealed.sizes)} sizes", snakemake.output[0])
