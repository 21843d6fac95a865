"""The names, titles and colours of memory levels, for the report, which reads devices through the table alone."""

from roofline.devices.levels import ALL_CORES as ALL_CORES
from roofline.devices.levels import LEVEL_COLOURS as LEVEL_COLOURS
from roofline.devices.levels import LEVEL_TITLES as LEVEL_TITLES
from roofline.devices.levels import MAIN_MEMORY as MAIN_MEMORY
from roofline.devices.levels import main_memory_ceiling as main_memory_ceiling
