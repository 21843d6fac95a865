"""GELU, a model for your own operator. In the config: `operators: [examples/gelu.py]`, `gelu: {sizes: [1048576]}`."""

import numpy

from roofline.api import Case, Field, Implementation, Job, Operator, OperatorSettings, Whole

CUDA = r"""__device__ float of(float x) { return __fdividef(x, 1 + __expf(-1.5957691f * (x + 0.044715f * x * x * x))); }
extern "C" __global__ void gelu(const float* __restrict__ x, float* __restrict__ y, unsigned n) {
    unsigned i = blockIdx.x * 1024 + threadIdx.x;  // four numbers a thread keep enough reads on their way
    for (int k = 0; k < 4; k++, i += 256) y[min(i, n - 1)] = of(x[min(i, n - 1)]);
}"""


def gelu(x, xp):
    return 0.5 * x * (1 + xp.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


class GeluSettings(OperatorSettings):
    sizes: list[Whole] = Field(default=[1 << 20, 1 << 24])  # how many numbers x holds


class Arrays(Implementation):  # nine operations, whose intermediate results go through memory
    name, kind, launches = "cupy", "gpu", 9

    def compute(self, inputs):
        return gelu(inputs["x"], self.device.xp)  # xp is CuPy, on the CPU NumPy


class OnCpu(Arrays):
    name, kind = "numpy", "cpu"


class Kernel(Implementation):  # reads every number once and writes it once
    name, kind, fused = "kernel", "gpu", True

    def compute(self, inputs):
        x, y, blocks = inputs["x"], inputs["y"], -(-inputs["x"].size // 1024)
        self.device.compiled(CUDA, "gelu")((blocks,), (256,), (x, y, numpy.uint32(x.size)))
        return y


class Gelu(Operator):
    name, title, mix = "gelu", "GELU", "copy"  # bytes written equal bytes read
    Settings, implementations, outputs = GeluSettings, (Arrays, Kernel, OnCpu), ("y",)

    def jobs(self, config):  # one record each
        return [Job(f"n{size}", (Case({"n": size}, "fp32"),)) for size in config.gelu.sizes]

    def flops(self, case, scope=None):
        return 9 * case.shape["n"]  # tanh counted as one

    def bytes(self, case, scope=None):
        return 2 * 4 * case.shape["n"]

    def inputs(self, device, case, seed):
        return {"x": device.normal((case.shape["n"],), "fp32", seed), "y": device.empty((case.shape["n"],), "fp32")}

    def reference(self, case, inputs):  # in float64
        return gelu(inputs["x"].astype("float64"), numpy)
