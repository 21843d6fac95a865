"""Whether interpretation.md, as it was written, answers the lab's three questions."""

import re
from collections.abc import Sequence

from roofline.table.checks.acceptance import QUESTIONS
from roofline.table.rows import Roofline

# For each paragraph, the parts of its question. A part is answered by any of these words; some say why none is known.
ANSWERS: tuple[dict[str, str], ...] = (
    {
        "whether GEMMs come near their ceilings": r"reference GEMM|Not this one|No compute ceiling",
        "whether the memory slope holds": r"slope is confirmed|is not confirmed|Not this one|No compute ceiling",
        "how far to trust it": r"Repeats|Not yet|Not this one|No compute ceiling",
    },
    {
        "where a kernel lands on the memory slope": r"of the memory slope|No operator|No share|Shares of a roof",
        "its share of the peak": r"% of the \w+ peak|No operator|No share|Shares of a roof",
        "what a better implementation buys": r"bought|No operator|No share|Shares of a roof",
    },
    {
        "the ratio of attained TFLOPS": r"attained TFLOPS differ|No ratio",
        "the ratio of the bandwidths": r"bandwidths differ|bandwidths is unknown|No ratio",
        "what took the difference": r"What took the difference|No ratio",
        "what PCIe costs": r"PCIe|No ratio",
    },
)


def find_unanswered(paragraphs: Sequence[str]) -> list[str]:
    """Return the parts of the three questions that these paragraphs do not answer."""
    pairs = zip(paragraphs, ANSWERS, strict=True)
    return [part for text, answers in pairs for part, words in answers.items() if not re.search(words, text)]


def judge_answers(table: Roofline, paragraphs: Sequence[str]) -> Roofline:
    """Return the table with the check of the three questions failed if the paragraphs leave a part unanswered."""
    unanswered = find_unanswered(paragraphs)
    failure = {"result": "fail", "reason": f"interpretation.md does not say {'; '.join(unanswered)}"}
    checks = [
        check.model_copy(update=failure)
        if unanswered and check.check == QUESTIONS and check.result == "pass"
        else check
        for check in table.checks
    ]
    return table.model_copy(update={"checks": checks})
