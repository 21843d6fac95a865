"""Operators, one module each: FLOPs and bytes beside the code that runs them, and a float64 reference."""
