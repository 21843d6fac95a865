"""The names, titles and colours of memory levels, for the report, which reads devices through the table alone."""

from roofline.core.levels import ALL_CORES, LEVEL_TITLES, MAIN_MEMORY, main_memory_ceiling

__all__ = ["ALL_CORES", "LEVEL_TITLES", "MAIN_MEMORY", "main_memory_ceiling"]
