// A product of a decode step: the library's few_rows.cuh with the epilogue of the step.

#include "../../../workflow/scripts/roofline/operators/gemm/kernels/half_types.cuh"
#include "step_epilogue.cuh"
#include "../../../workflow/scripts/roofline/operators/rmsnorm_matmul/kernels/few_rows.cuh"
