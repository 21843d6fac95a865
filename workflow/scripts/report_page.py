"""report_page: the whole run on one self-contained page, and the same story as Markdown."""

from roofline.analysis.distribution import standings
from roofline.analysis.results import read_results
from roofline.analysis.spread import between_runs
from roofline.records.acceptance import Acceptance
from roofline.records.base import read
from roofline.records.files import file_sha256, write_text
from roofline.records.roofline import Roofline
from roofline.records.verification import Verification
from roofline.report import page
from roofline.report.story import story
from roofline.run.jobs import job, say
from roofline.run.paths import RESULTS, below_results

if __name__ == "__main__":
    with job("report_page", snakemake):
        inputs = snakemake.input
        roofline, found = read(Roofline, inputs.roofline), read_results(RESULTS, inputs.records)
        told = story(
            found,
            roofline,
            read(Verification, inputs.verification),
            read(Acceptance, inputs.acceptance),
            between_runs({name: device.name for name, device in roofline.devices.items()}),
            {below_results(path): file_sha256(path) for path in inputs.records},
            standings(found, roofline),
        )
        write_text(page.html(told), snakemake.output.page)
        write_text(page.markdown(told), snakemake.output.words)
        say(f"report_page: {', '.join(snakemake.output)}")
