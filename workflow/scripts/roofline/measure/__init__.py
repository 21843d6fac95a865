"""Timing protocol, operator jobs, ceilings, sustained load, memory levels, and the seals made before them."""
