"""The JSON of a trace in lists of events: in chunks if it is laid out as torch.profiler writes it, else in one."""

import codecs
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import orjson

CHUNK_BYTES = 1 << 18  # of text that is parsed at once: more leaves the caches of the CPU
LONGEST_BYTES = 1 << 24  # without a list or the end of an event: the file is laid out otherwise
LIST = re.compile(rb'"traceEvents"\s*:\s*\[\s*')
FIRST_KEY = re.compile(rb'\{\s*"([^"\\]+)"')  # of an event; most have ph
BARE_NA = re.compile(r'(?<![\w"])N/A(?![\w"])')  # PyTorch 1.8 writes it without quotes
KEYS = ("deviceProperties", "step_s", "distributedInfo")  # next to the events, that placing needs
Part = tuple[dict[str, Any], list[Any]]  # values of KEYS, and events


class OtherLayoutError(Exception):
    """The file is not laid out as torch.profiler writes it, or not JSON."""


def open_unpacked(path: Path) -> BinaryIO:
    """Return a file to read, which is unpacked if gzip packed it."""
    raw = open(path, "rb")  # noqa: SIM115  who calls closes it
    return gzip.GzipFile(fileobj=raw) if raw.peek(2).startswith(b"\x1f\x8b") else raw


def read_chunks(path: Path) -> Iterator[Part]:
    """Yield a trace in parts. An event ends where `}` precedes the `{` and the key that others begin with.

    Raises OtherLayoutError; EOFError for a file that is cut.
    """
    with open_unpacked(path) as file:
        text, start = file.read(CHUNK_BYTES).removeprefix(codecs.BOM_UTF8), None
        while not (start := LIST.search(text)) and len(text) < LONGEST_BYTES and (chunk := file.read(CHUNK_BYTES)):
            text += chunk
        first_key = start and FIRST_KEY.match(text, start.end())
        if not (start and first_key):
            raise OtherLayoutError
        yield _parse(text[: start.end()] + b"]}")
        text = text[start.end() :]
        border = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|' + re.escape(first_key[1]) + rb')"')
        while chunk := file.read(CHUNK_BYTES):
            text += chunk
            between = border.search(text)  # the same between all events that are laid out alike
            end = text.rfind(between.group()) if between else 0
            if end > 0:
                yield _parse(b'{"traceEvents":[' + text[: end + 1] + b"]}")
                text = text[text.index(b"{", end) :]
            elif len(text) > LONGEST_BYTES:
                raise OtherLayoutError
    try:
        yield _parse(b'{"traceEvents":[' + text)
    except OtherLayoutError:
        if text.rstrip().endswith(b"}"):
            raise
        raise EOFError from None


def _parse(text: bytes) -> Part:
    try:
        content = orjson.loads(text)
    except orjson.JSONDecodeError:
        content = _parse_leniently(text)
    if not isinstance(content, dict) or not isinstance(content.get("traceEvents"), list):
        raise OtherLayoutError
    return {key: content[key] for key in KEYS if key in content}, content["traceEvents"]


def _parse_leniently(text: bytes) -> Any:
    """Parse what some versions write: names that are not UTF-8 or hold control characters, N/A and NaN."""
    try:
        return json.loads(BARE_NA.sub("null", text.decode("utf-8", "replace")), strict=False)
    except (ValueError, RecursionError):
        raise OtherLayoutError from None


def read_whole(path: Path) -> Iterator[Part]:
    """Yield a trace of any layout in one part, which takes several times the memory. Raises OtherLayoutError."""
    with open_unpacked(path) as file:
        yield _parse(file.read().removeprefix(codecs.BOM_UTF8))
