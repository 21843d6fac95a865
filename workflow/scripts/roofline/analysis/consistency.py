"""Whether the figures of sustained load follow from its curve; all else, records hold themselves to."""

from roofline.measure.sustained import summarise
from roofline.records.base import require_same, require_same_interval
from roofline.records.compute import PeakFlopsRecord
from roofline.records.operator import JobRecord


def contradictions(record: JobRecord) -> list[str]:
    """A line where a record's sustained rate is not what its curve gives."""
    load = record.peak.sustained if isinstance(record, PeakFlopsRecord) and record.peak else None
    if not load:
        return []
    again = summarise(load.curve, load.product, load.seconds)
    try:
        require_same("sustained tflops", load.tflops, again.tflops)
        require_same_interval("sustained ci95", load.ci95, again.ci95)
    except ValueError as error:
        return [str(error)]
    return []
