// many_rows.cuh, which says what this is compiled with, and its plain epilogue.

#include "../../gemm/kernels/half_types.cuh"
#include "epilogue.cuh"
#include "many_rows.cuh"
