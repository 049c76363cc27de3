"""The exception that ends a program from within one of its calls."""


class StopProgram(BaseException):
    """Ends a program, and is not an error of it: no `except Exception` catches it."""
