"""Operators: base.py is their interface; each other module or package here is one of them."""
