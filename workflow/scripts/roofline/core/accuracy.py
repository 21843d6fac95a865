"""How far a result lies from its reference."""


def relative_error(result, reference) -> float:
    """Norm of the difference over the norm of the reference, in float64; infinite where either is not finite.

    A reference of zeros has no norm to divide by: then it is the norm of the result itself.
    """
    import numpy

    result, reference = (numpy.asarray(values, numpy.float64) for values in (result, reference))
    if not (numpy.isfinite(result).all() and numpy.isfinite(reference).all()):
        return float("inf")
    # Without a BLAS, whose idle threads would spin on into what is timed next.
    apart, whole = (float(numpy.sqrt(numpy.square(values).sum())) for values in (result - reference, reference))
    return apart / (whole or 1.0)


def require_close(what: str, error: float, tolerance: float) -> None:
    """Raises ArithmeticError where a result is wrong: a wrong result is a failed job, never a number."""
    if not error <= tolerance:
        raise ArithmeticError(f"{what} differs from its float64 reference by {error:.2e}, allowed {tolerance:.0e}")
