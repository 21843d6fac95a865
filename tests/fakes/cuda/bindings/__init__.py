"""CUDA's driver for the stand-in of CuPy; the rest of cuda-bindings is not here."""
