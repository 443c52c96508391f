"""The means to write kernels in NumPy: torch's rules for dtypes and shapes, and calls bound to their arguments.

prepared.py    a prepared function -> a kernel of a library
promotion.py   operands -> the dtype that torch computes in, and checks of dtypes
shapes.py      shapes and dims of arguments -> shapes of results
evaluate.py    a function and its operands -> a bound call, cast to the compute dtype and back

    library = KernelLibrary("mine")
    kernel = partial(prepared_kernel, library)

    @kernel("aten::lgamma.out")
    def lgamma(context, self, out):
        check_kind(self.dtype, "bif")
        out = context.resize(out, self.shape)
        return function_call(context, _lgamma, (self,), out, FLOAT64)
"""
