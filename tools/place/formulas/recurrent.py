"""Recurrent layers of cuDNN: every weight times every element of the sequence and batch."""

from formulas.base import Call, CallWork, formula
from formulas.products import product_dtype


@formula("_cudnn_rnn", "_cudnn_rnn_backward")
def recurrent_work(call: Call) -> CallWork:
    """Return the work of LSTM, GRU or RNN, forward or backward. The weights of all layers are a list."""
    sequence, weights = call.inputs[:2]
    backward = call.name.endswith("backward")
    matrices = [weight for weight in weights if len(weight.dims) == 2]
    weight_bytes = sum(weight.count for weight in weights) * sequence.item_bytes  # a list has no types
    hidden = min(matrices[0].dims[1], matrices[-1].dims[1])
    outputs = sequence.count // sequence.dims[-1] * hidden * sequence.item_bytes
    flops = 2 * sequence.count // sequence.dims[-1] * sum(matrix.count for matrix in matrices)
    read_bytes, written_bytes = sequence.bytes + weight_bytes, outputs
    if backward:  # gradients of the sequence and of the weights
        flops, read_bytes, written_bytes = 2 * flops, read_bytes + 2 * outputs, sequence.bytes + weight_bytes
    return CallWork(flops, read_bytes, written_bytes, product_dtype(call, sequence), True)
