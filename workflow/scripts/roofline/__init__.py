"""The roofline library, in layers: each package imports only from those that stand before it here.

core, records, devices, operators, measure, table, report, run
"""
