"""Records edited by hand, as one would who writes their digest anew."""

import json
from pathlib import Path

from roofline.records.base import RECORD_VERSION, with_digest


def write_edited(path: Path, content: dict) -> None:
    rest = {key: value for key, value in content.items() if key != "digest"}
    text = json.dumps(rest, indent=1) + "\n"
    path.write_text(with_digest(text) if rest.get("schema_version") == RECORD_VERSION else text, encoding="utf-8")
