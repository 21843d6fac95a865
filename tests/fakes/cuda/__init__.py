"""Replaces NVIDIA's package of this name, which would hide the stand-ins of this folder."""
