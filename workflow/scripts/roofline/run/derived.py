"""Files that follow from the records alone, and whether those on disk do: one mechanism for all of them."""

from collections.abc import Mapping
from typing import Any

from roofline.analysis.collect import Asked
from roofline.analysis.load import load
from roofline.analysis.results import Results
from roofline.analysis.spread import between_runs
from roofline.analysis.standing import standings
from roofline.analysis.table import OF_VERSION, Acceptance
from roofline.records.base import Record
from roofline.report.model import report
from roofline.report.rendering import html_page, text_page

TABLE = "roofline.json"
PAGES = ("ROOFLINE.md", "interpretation.md", "verification.md")


def derive(found: Results, asked: Mapping, sha256: Mapping[str, str]) -> dict[str, Record | str]:
    """What each derived file of results/ holds; `sha256` has the hash of every record."""
    wanted = Asked(**asked)
    roofline = load(found, wanted, sha256)
    spreads = between_runs(found.distributions)
    made = report(found, roofline, spreads, sha256, standings(found, roofline, wanted.effort))
    return {
        TABLE: roofline,
        "acceptance.json": Acceptance(checks=roofline.checks),
        "report.html": html_page(made),
        **{page: text_page(f"{page}.j2", made) for page in PAGES},
    }


def same(one: Record, other: Record) -> bool:
    return one.model_dump() == other.model_dump()


def same_figures(one: Record, archived: Record) -> bool:
    return _figures(archived, archived) == _figures(one, archived)


def _figures(content: Any, like: Any = None) -> Any:
    """Without text, and without fields that the other, of an earlier version, does not have."""
    if isinstance(content, Record):
        had = type(content).model_fields if like is None else like.model_fields_set
        fields = type(content).model_fields
        fields = [name for name, field in fields.items() if name in had and OF_VERSION not in field.metadata]
        return {name: _figures(getattr(content, name), like and getattr(like, name)) for name in fields}
    if isinstance(content, dict):
        return {name: _figures(one, like and like.get(name)) for name, one in content.items()}
    if isinstance(content, list):
        others = like if like and len(like) == len(content) else [None] * len(content)
        return [_figures(one, other) for one, other in zip(content, others, strict=True)]
    return content
