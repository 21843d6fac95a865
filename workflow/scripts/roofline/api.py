"""The public API: all that tools may import of the library."""

from roofline.records.manifest import Manifest
from roofline.run.archive import Refused
from roofline.run.archive import newest as newest_archive
from roofline.run.archive import opened as open_archive

__all__ = ["Manifest", "Refused", "newest_archive", "open_archive"]
