"""Decode attention: one token's query against cached keys and values (docs/decode_attention.md)."""

from roofline.operators.decode_attention.operator import DecodeAttention

__all__ = ["DecodeAttention"]
