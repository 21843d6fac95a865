"""In the place of NVIDIA's package of this name, which would hide what stands beside it."""
